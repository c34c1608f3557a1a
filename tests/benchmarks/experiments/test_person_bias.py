"""Whose captions are counted, and how they are made neutral."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.experiments.person_bias import compare, neutral, sex_of


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["A woman rides.", "A person rides."], "women"),
        (["A man and his dog."], "men"),
        (["Two people walk; there is a human."], None),
        (["A woman rides.", "A boy watches."], None),
    ],
)
def test_a_picture_is_of_those_whom_its_captions_name(
    texts: list[str], expected: str | None
) -> None:
    assert sex_of(texts) == expected


def test_neutral_captions_name_nobody() -> None:
    assert neutral("A woman holds her dog.") == "A person holds their dog."
    assert neutral("Two boys and a manager; he waves") == "Two children and a manager; they waves"
    assert sex_of([neutral("She and the guys lift him, ladies first")]) is None


def test_a_difference_comes_with_an_interval_over_pictures() -> None:
    generator = np.random.default_rng(0)
    women = np.arange(400) % 2 == 0
    values = 100.0 * (generator.random(400) < np.where(women, 0.8, 0.3))
    found = compare(values, women, np.arange(400) // 4)
    low, high = found["interval"]
    assert low < found["difference"] < high
    assert low > 30
    assert found["difference"] == pytest.approx(values[women].mean() - values[~women].mean())
    equal = compare(np.full(400, 50.0), women, np.arange(400) // 4)
    assert equal["interval"] == [0, 0]

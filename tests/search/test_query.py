from __future__ import annotations

import datetime
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from helpers.colour_encoder import ColourEncoder
from polyglance.encoders.translated_queries import consistency_scores
from polyglance.errors import PolyglanceError
from polyglance.search.query import EXCLUDE_WEIGHT, build_filter, query_vector

COLOURS = ColourEncoder()


def cosine(vector: NDArray[np.float32], colour: str) -> float:
    return float(vector @ COLOURS.encode_texts([colour])[0])


def test_words_and_pictures_are_added_as_unit_vectors() -> None:
    blue = Image.new("RGB", (4, 4), (0, 0, 255))
    alone = query_vector(COLOURS, ["red"])
    assert cosine(alone, "red") == pytest.approx(1)
    both = query_vector(COLOURS, ["red"], [blue])
    assert cosine(both, "red") == pytest.approx(np.sqrt(0.5), abs=0.01)
    assert cosine(both, "blue") == pytest.approx(np.sqrt(0.5), abs=0.01)
    assert np.linalg.norm(both) == pytest.approx(1)


def test_excluded_parts_are_subtracted_with_half_the_weight() -> None:
    vector = query_vector(COLOURS, ["red"], exclude=["blue"])
    assert cosine(vector, "blue") == pytest.approx(-EXCLUDE_WEIGHT / np.hypot(1, EXCLUDE_WEIGHT))
    assert cosine(vector, "red") == pytest.approx(1 / np.hypot(1, EXCLUDE_WEIGHT))
    red = Image.new("RGB", (4, 4), (255, 0, 0))
    assert cosine(query_vector(COLOURS, ["white"], exclude_pictures=[red]), "red") < cosine(
        query_vector(COLOURS, ["white"]), "red"
    )


class Words(ColourEncoder):
    """Knows one word in each language, and records its calls."""

    known = {"de": "rot", "fr": "bleu"}  # noqa: RUF012
    asked: list[str | None]

    def encode_texts(
        self, texts: Sequence[str], *, language: str | None = None
    ) -> NDArray[np.float32]:
        colours = {"rot": "red", "bleu": "blue"}
        known = [text if text == self.known.get(language or "") else "" for text in texts]
        return super().encode_texts([colours.get(text, text) for text in known])


def test_a_query_in_several_languages_is_their_average() -> None:
    encoder = Words()
    text = {"de": "rot", "fr": "bleu", "cs": "nothing that it knows", "en": ""}
    vector = query_vector(encoder, [text])
    pictures = encoder.encode_pictures(
        [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue", "green", "purple")]
    )
    expected = consistency_scores(encoder, {code: [text] for code, text in text.items()}, pictures)
    scores = pictures @ vector
    np.testing.assert_allclose(scores / scores[0], expected[:, 0] / expected[0, 0], rtol=1e-4)
    assert scores.argmax() == 3


@pytest.mark.parametrize("nothing", [[], [""], ["  "], [{"de": " "}]])
def test_an_empty_query_is_an_error(nothing: list[str]) -> None:
    with pytest.raises(PolyglanceError, match="give a text"):
        query_vector(COLOURS, nothing)


def test_date_formats() -> None:
    for given, expected in (
        ("2024", "2024"), ("2024-07", "2024-07"), ("2024-02-29", "2024-02-29"),
        ("2024-07-31 18:05", "2024-07-31T18:05"), (2024, "2024"),
        (datetime.date(2024, 7, 1), "2024-07-01"),
        (datetime.datetime(2024, 7, 1, 2, 3, 4, 5), "2024-07-01T02:03:04"),
    ):  # fmt: skip
        assert build_filter(None, None, given, None).since == expected
    for wrong in ("24", "2023-02-29", "July", "2024-7-1", "2024-13", "", "2024-07-", "٢٠٢٤"):
        with pytest.raises(PolyglanceError, match="write a date as"):
            build_filter(None, None, None, wrong)


def test_kinds_are_validated_and_an_empty_filter_is_false() -> None:
    with pytest.raises(PolyglanceError, match="picture or clip"):
        build_filter(None, "film", None, None)
    assert not build_filter(None, None, None, None)
    assert build_filter("/a", "clip", None, None).folders == ("/a",)

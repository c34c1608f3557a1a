from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyglance.data import caption_files
from polyglance.data.caption_files import build_captions, open_captions
from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError
from polyglance.records import Record


class Letters:
    """A tokenizer whose tokens are letters; it drops question marks."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text if letter != "?"] for text in texts]


def records() -> list[Record]:
    return [
        Record(captions={"en": ("a dog", "dogs")}),
        Record(),
        Record(captions={"de": ("ein Hund",), "en": ("a cat, asleep",)}),
        Record(captions={"en": ("?",), "cs": ("pes",)}),
        Record(captions={"fr": ("un chien", "?"), "de": ("Katze",), "en": ("x",)}),
    ]


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_mapped_captions_equal_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(caption_files, "_RECORDS_AT_A_TIME", at_a_time)
    table = build_captions(iter(records()), Letters(), tmp_path / "c", "key", max_tokens=6)
    expected = CaptionTable.build(records(), Letters(), max_tokens=6)
    assert (table.language_codes, table.num_records) == (expected.language_codes, 5)
    for name in ("token_ids", "offsets", "record_ids", "language_ids"):
        assert getattr(table, name).tolist() == getattr(expected, name).tolist()
        assert isinstance(getattr(table, name), np.memmap)
    rows = np.array([4, 0, 3])
    for ours, theirs in zip(table.gather(rows), expected.gather(rows), strict=True):
        assert ours.tolist() == theirs.tolist()
    images = np.array([0, 2, 4] * 20)
    drawn = [t.sample(images, np.random.default_rng(0)).tolist() for t in (table, expected)]
    assert drawn[0] == drawn[1]


def test_captions_are_built_once_for_a_key(tmp_path: Path) -> None:
    build_captions(records(), Letters(), tmp_path / "c", "first")

    def unread() -> Record:
        raise AssertionError("the manifest is read again")

    again = build_captions((unread() for _ in range(1)), Letters(), tmp_path / "c", "first")
    assert len(again) == 8
    assert open_captions(tmp_path / "c", "second") is None
    assert len(build_captions(records()[:1], Letters(), tmp_path / "c", "second")) == 2
    assert not (tmp_path / "c.partial").exists()
    assert open_captions(tmp_path / "nothing") is None


def test_an_interrupted_build_leaves_nothing_and_damage_is_named(tmp_path: Path) -> None:
    def broken() -> list[Record]:
        yield from records()  # type: ignore[misc]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_captions(broken(), Letters(), tmp_path / "c", "key")
    assert not any(tmp_path.iterdir())
    build_captions(records(), Letters(), tmp_path / "c", "key")
    with (tmp_path / "c" / "token_ids").open("r+b") as file:
        file.truncate(5)
    with pytest.raises(DataError, match="token_ids: is damaged; delete"):
        open_captions(tmp_path / "c")
    assert len(build_captions([], Letters(), tmp_path / "empty", "key")) == 0

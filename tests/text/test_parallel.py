from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record, write_manifest
from polyglance.text.parallel import read_parallel


def test_two_files(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    here.write_text("The dog.\n\n", encoding="utf-8")
    there.write_text("Der Hund .\nleer\n", encoding="utf-8")
    text = read_parallel([here, there], None)
    assert text.pairs == [(["The", "dog."], ["Der", "Hund", "."]), ([], ["leer"])]
    cut = read_parallel([here, there], ["en", "deu"])
    assert cut.pairs[0] == (["The", "dog"], ["Der", "Hund"])
    assert next(cut.plain()) == (["the", "dog"], ["der", "hund"])
    assert (cut.source, cut.target) == ("en", "de")
    there.write_text("Der Hund.\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"has 2 lines and .* 1"):
        read_parallel([here, there], None)


def test_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    records = [
        Record(captions={"en": ("A dog.", "Two."), "zh": ("一只狗", "两")}),
        Record(captions={"en": ("A cat.",)}),
        Record(captions={"en": ("One.", "More."), "zh": ("一",)}),
    ]
    write_manifest(path, records)
    text = read_parallel([path], ["en", "zh"])
    assert text.pairs[0] == (["A", "dog"], ["一", "只", "狗"])
    assert len(text.pairs) == 3
    with pytest.raises(DataError, match="both en and fr"):
        read_parallel([path], ["en", "fr"])
    for languages in (None, ["en"], ["en", "zh", "de"]):
        with pytest.raises(PolyglanceError, match="en,de"):
            read_parallel([path], languages)

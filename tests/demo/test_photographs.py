from __future__ import annotations

from collections import Counter

import pytest
from PIL import Image

from polyglance.demo.photographs import FOLDER, Photograph, photographs
from polyglance.vision.pictures import read_picture

FREE_LICENCES = {
    "CC0-1.0",
    "LicenseRef-public-domain",
    "CC-BY-2.0",
    "CC-BY-4.0",
    "CC-BY-SA-3.0",
    "CC-BY-SA-4.0",
}


def test_files_and_entries_correspond() -> None:
    files = sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".json")
    files.remove("LICENCES.md")
    assert [photograph.file for photograph in photographs()] == files
    assert len(files) >= 60


@pytest.mark.parametrize("photograph", photographs(), ids=lambda photograph: photograph.file)
def test_photographs_are_small_and_credited(photograph: Photograph) -> None:
    picture = read_picture(photograph.path)
    assert 200 <= max(picture.size) <= 320
    with Image.open(photograph.path) as opened:
        assert opened.format == "WEBP"
    assert photograph.licence in FREE_LICENCES
    for field in (photograph.title, photograph.author, photograph.version, photograph.original):
        assert field.strip() == field != ""
    assert photograph.distribution in {"Debian", "PyPI", "npm"}
    assert photograph.page is None or photograph.page.startswith("https://")
    assert photograph.author in photograph.credit


def test_photographs_are_distinct_and_small_in_total() -> None:
    entries = photographs()
    assert sum(photograph.path.stat().st_size for photograph in entries) < 1_200_000
    for field in ("file", "title"):
        assert max(Counter(getattr(photograph, field) for photograph in entries).values()) == 1
    assert max(Counter(photograph.path.read_bytes() for photograph in entries).values()) == 1


def test_licences_that_require_credit_get_it() -> None:
    text = (FOLDER / "LICENCES.md").read_text(encoding="utf-8")
    section = ""
    credited = set()
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[len("## [") : line.index("]")]
        for photograph in photographs():
            if line.startswith(f"- `{photograph.file}`:"):
                assert photograph.title in line
                assert line.endswith(f"by {photograph.author}")
                assert section.replace(" ", "-") == photograph.licence
                credited.add(photograph.file)
    assert credited == {p.file for p in photographs() if p.licence.startswith("CC-BY")}

"""Names of emoji out of files as CLDR's package has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyglance.errors import PolyglanceError
from polyglance.text.emoji import emoji_names


def annotations(folder: Path, locale: str, names: dict[str, str]) -> None:
    inner = {sign: {"default": [name], "tts": [name]} for sign, name in names.items()}
    (folder / locale).mkdir(parents=True)
    whole = {"annotations": {"identity": {"language": locale}, "annotations": inner}}
    (folder / locale / "annotations.json").write_text(json.dumps(whole), encoding="utf-8")


def test_names_are_grouped_by_emoji(tmp_path: Path) -> None:
    folder = tmp_path / "package" / "annotations"
    annotations(folder, "en", {"🦉": "owl", "🦀": "crab", "{": "open curly bracket"})
    annotations(folder, "tr", {"🦉": "baykuş", "🐧": "penguen"})
    annotations(folder, "en-GB", {"🦉": "British owl"})
    for place in (tmp_path / "package", folder):
        assert emoji_names(place) == [{"en": "owl", "tr": "baykuş"}, {"en": "crab"}]


def test_files_that_are_not_annotations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="cldr-annotations-full"):
        emoji_names(tmp_path)
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "annotations.json").write_text("[]")
    with pytest.raises(PolyglanceError, match="not emoji annotations"):
        emoji_names(tmp_path)

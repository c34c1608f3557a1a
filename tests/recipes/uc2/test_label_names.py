from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.uc2.label_names import Labels, named_labels, read_names


def test_imagenet_s_classes_have_names_of_their_own_or_by_a_dictionary(tmp_path: Path) -> None:
    (tmp_path / "en-de.tsv").write_text("retriever\tApportierhund\ngoldfish\tGoldfisch\n")
    found = named_labels(Labels(dictionaries="{source}-{target}.tsv"), ("en", "fr", "de"), tmp_path)
    assert found.names["en"][1] == "goldfish"
    assert found.names["de"][1] == "Goldfisch"
    golden = found.names["en"].index("golden retriever")
    assert found.names["de"][golden] == "Apportierhund"  # by the word that says what it is
    assert found.names["de"][0] == found.names["en"][0]
    assert found.names["fr"][1] != "goldfish"
    assert {code: len(names) for code, names in found.names.items()} == {
        "en": 1000, "fr": 1000, "de": 1000,
    }  # fmt: skip
    assert found.own["fr"] == 1.0
    assert 0.001 < found.own["de"] < 0.02


def test_names_of_other_labels_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("en\tde\nred dog\troter Hund\ncat\tKatze\n", encoding="utf-8")
    found = named_labels(Labels("labels.tsv"), ("en", "de", "cs"), tmp_path)
    assert found.names == {
        "en": ["red dog", "cat"], "de": ["roter Hund", "Katze"], "cs": ["red dog", "cat"],
    }  # fmt: skip
    assert found.own == {"en": 1.0, "de": 1.0, "cs": 0.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dog\tHund\ncat\tKatze\n", "expected codes of languages in the first line"),
        ("en\tde\ncat\n", r"labels\.tsv:2: expected a name in each of en, de"),
        ("", "expected codes of languages"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_names(path)


def test_english_must_be_among_them(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("de\nHund\n", encoding="utf-8")
    with pytest.raises(PolyglanceError, match="need names in English"):
        named_labels(Labels("labels.tsv"), ("de",), tmp_path)

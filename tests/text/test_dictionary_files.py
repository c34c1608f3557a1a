from __future__ import annotations

from pathlib import Path

import pytest

from helpers.dictd import write_dictd
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.text.dictionary_files import find_dictionaries, languages_in_name, open_dictionaries


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("freedict-eng-deu.index", ("en", "de")),
        ("en-de.txt", ("en", "de")),
        ("en-de.0-5000.txt", ("en", "de")),
        ("panlex_eng_jpn.tsv", ("en", "ja")),
        ("dic-en-fr.tsv.gz", ("en", "fr")),
        ("EN-ZH.txt", ("en", "zh")),
        ("words.txt", None),
        ("qq-xq.txt", None),
    ],
)
def test_languages_from_file_names(name: str, languages: tuple[str, str] | None) -> None:
    assert languages_in_name(Path(name)) == languages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dictd(tmp_path, [("dog", "dog /x/\nHund <masc>\n")], name="freedict-eng-deu")
    (tmp_path / "en-de.txt").write_text("dog Köter\ncat Katze\n", encoding="utf-8")
    (tmp_path / "fr-en.tsv").write_text("chien\tdog\n", encoding="utf-8")
    (tmp_path / "notes.md").write_text("en-es")
    return tmp_path


def test_all_dictionaries_of_a_source_language(folder: Path) -> None:
    assert set(find_dictionaries([folder])) == {("en", "de"), ("fr", "en")}
    found = open_dictionaries([folder])
    assert list(found) == ["de", "fr"]
    assert found["de"].translations("dog") == ("Köter", "Hund")  # en-de comes before freedict
    assert found["fr"].translations("Dog") == ("chien",)  # turned around
    assert found["fr"].source == "en"
    assert list(open_dictionaries([folder], languages=["deu"])) == ["de"]
    assert open_dictionaries([folder], source="fr")["en"].translations("chien") == ("dog",)


def test_scores_sort_a_reversed_dictionary(tmp_path: Path) -> None:
    """The aligner's: else *Mann* would be whichever English word of it comes first, a *guy*."""
    learned = "guy\tMann\t0.52\nguy\tKerl\t0.3\nman\tMann\t0.96\nmale\tMann\t0.38\n"
    (tmp_path / "en-de.tsv").write_text(learned, encoding="utf-8")
    english = open_dictionaries([tmp_path], source="de")["en"]
    assert english.translations("mann") == ("man", "guy", "male")
    assert english.source == "de"


def test_files_and_patterns(folder: Path) -> None:
    named = open_dictionaries([folder / "freedict-*.index", folder / "en-de.txt"])
    assert named["de"].translations("dog") == ("Hund", "Köter")
    assert list(find_dictionaries([folder / "*-en.*"])) == [("fr", "en")]


def test_malformed_lines_are_skipped_if_problems_are_collected(folder: Path) -> None:
    (folder / "en-de.txt").write_text("dog Köter\nnonsense\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"en-de\.txt:2"):
        open_dictionaries([folder])
    problems = Problems()
    found = open_dictionaries([folder], problems=problems)
    assert found["de"].translations("dog") == ("Köter", "Hund")
    assert [problem.line for problem in problems.items] == [2]


def test_missing_dictionaries_are_refused(folder: Path) -> None:
    with pytest.raises(PolyglanceError, match=r"from English to Spanish in .*dict-freedict"):
        open_dictionaries([folder], languages=["es"])
    with pytest.raises(PolyglanceError, match="no dictionaries there"):
        open_dictionaries([folder / "nowhere"])
    with pytest.raises(PolyglanceError, match="to any language"):
        open_dictionaries([folder], source="sw")

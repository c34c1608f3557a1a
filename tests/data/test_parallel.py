from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from PIL import Image

from polyglance.data.parallel import read_parallel
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import Record, write_manifest


def test_two_files(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    here.write_text("The dog.\n\n", encoding="utf-8")
    there.write_text("Der Hund .\nleer\n", encoding="utf-8")
    text = read_parallel([here, there])
    assert text.pairs == [(["The", "dog."], ["Der", "Hund", "."]), ([], ["leer"])]
    cut = read_parallel([here, there], ["en", "deu"])
    assert cut.pairs[0] == (["The", "dog"], ["Der", "Hund"])
    assert (cut.source, cut.target) == ("en", "de")
    there.write_text("Der Hund.\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"has 2 lines and .* 1"):
        read_parallel([here, there])


def test_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(path, [Record(captions={"en": ("A dog.", "Two."), "zh": ("一只狗", "两")})])
    text = read_parallel([path], ["en", "zh"])
    assert text.pairs == [(["A", "dog"], ["一", "只", "狗"]), (["Two"], ["两"])]
    with pytest.raises(DataError, match="both en and fr"):
        read_parallel([path], ["en", "fr"])
    for languages in (None, ["en"], ["en", "zh", "de"]):
        with pytest.raises(PolyglanceError, match="en,de"):
            read_parallel([path], languages)


def test_one_file_as_fast_align_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "en-de.txt.gz"
    lines = b"nonsense\nThe dog. ||| Der Hund .\n\xff ||| x\n\nA ||| Ein\n"
    path.write_bytes(gzip.compress(lines))
    problems = Problems()
    text = read_parallel([path], problems=problems)
    # What is no pair has no words, so that the lines stay where they are.
    assert text.pairs == [
        ([], []), (["The", "dog."], ["Der", "Hund", "."]), ([], []), ([], []), (["A"], ["Ein"]),
    ]  # fmt: skip
    assert sorted(problem.line or 0 for problem in problems.items) == [1, 3]
    cut = read_parallel([path], ["en", "de"], problems=problems)
    assert cut.pairs[1] == (["The", "dog"], ["Der", "Hund"])
    with pytest.raises(DataError, match=r"en-de\.txt\.gz:1"):
        read_parallel([path])


@pytest.mark.parametrize("languages", [None, ["en", "de"]])
def test_missing_empty_and_binary_files_are_refused(
    languages: list[str] | None, tmp_path: Path
) -> None:
    missing, empty, picture, damaged = (
        tmp_path / name for name in ("nope", "empty.txt", "dog.png", "damaged.txt.gz")
    )
    empty.write_text("\n \n")
    Image.new("RGB", (64, 64), "red").save(picture)
    damaged.write_bytes(b"no archive")
    for path, message in (
        (missing, "nope: no such file or folder"),
        ("x" * 300, "x: no such file or folder"),
        (empty, r"empty\.txt is empty; give"),
        (picture, r"dog\.png is not UTF-8 text; give"),
        (damaged, r"damaged\.txt\.gz: cannot be read further"),
    ):
        with pytest.raises(DataError, match=message):
            read_parallel([Path(path)], languages, problems=Problems())
    # What is text, but not parallel, and what no line tells anything about, is as before.
    empty.write_text("A dog.\n")
    for path in (empty, tmp_path):
        with pytest.raises(PolyglanceError, match=r"^give two text files"):
            read_parallel([path])


def test_a_format_is_used_or_refused(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    here.write_text("A ||| Ein\n")
    there.write_text("Ein\n")
    with pytest.raises(PolyglanceError, match="no format is called 'bogus'"):
        read_parallel([here, there], format="bogus")
    with pytest.raises(PolyglanceError, match="--format tatoeba needs one dataset"):
        read_parallel([here, there], format="tatoeba")
    with pytest.raises(DataError, match="a:1: expected"):
        read_parallel([here], ["en", "de"], format="jsonl")


def test_separators_inside_json_are_not_fast_align(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_manifest(path, [Record(captions={"en": ("a ||| b",), "de": ("c",)})])
    assert read_parallel([path], ["en", "de"]).pairs == [(["a", "b"], ["c"])]


def test_sentences_by_language_and_other_formats(tmp_path: Path) -> None:
    flat = tmp_path / "flat.jsonl.gz"
    lines = '{"en": "A dog.", "de": "Ein Hund."}\nnonsense\n{"en": "A cat."}\n'
    flat.write_bytes(gzip.compress(lines.encode()))
    problems = Problems()
    text = read_parallel([flat], ["de", "en"], problems=problems)
    assert text.pairs == [(["Ein", "Hund"], ["A", "dog"])]
    assert [problem.line for problem in problems.items] == [2]
    with pytest.raises(DataError, match=r"flat\.jsonl\.gz:2"):
        read_parallel([flat], ["de", "en"])

    for code, text in (("en", "A dog.\nA cat.\n"), ("de", "Ein Hund.\nEine Katze.\n")):
        (tmp_path / f"train.{code}").write_text(text, encoding="utf-8")
    (tmp_path / "train_images.txt").write_text("1.jpg\n2.jpg\n", encoding="utf-8")
    text = read_parallel([tmp_path], ["en", "de"], format="multi30k-task1")
    assert text.pairs[1] == (["A", "cat"], ["Eine", "Katze"])
    with pytest.raises(PolyglanceError, match="no format is called"):
        read_parallel([flat], ["de", "en"], format="multi40k")

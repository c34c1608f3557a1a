"""Tatoeba sentence pairs.

Layout: ``tatoeba.tsv`` with a language (ISO 639-3), a sentence and its English translation per
line:

    deu<TAB>Ich liebe dich.<TAB>I love you.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files, without_gz
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import Problems
from polyglance.languages import normalise_language
from polyglance.records import Record, read_lines


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record of text alone per pair."""
    for path in find_files(source, lambda name: without_gz(name).endswith(".tsv"), "tatoeba.tsv"):
        for number, line in read_lines(path, problems):
            with reporting(problems, path, number):
                yield Record(captions=_parse(line), split=options.split)


def _parse(line: str) -> dict[str, tuple[str, ...]]:
    columns = line.split("\t")
    if len(columns) != 3:
        raise ValueError("'LANGUAGE<TAB>SENTENCE<TAB>ENGLISH SENTENCE'")
    language = normalise_language(columns[0])
    sentence, english = (
        check_text(columns[1], "a sentence"),
        check_text(columns[2], "an English sentence"),
    )
    return {language: (sentence,), "en": (english,)} if language != "en" else {"en": (sentence,)}

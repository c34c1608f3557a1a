"""What the labels of a feature store are called, in every language that captions are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.languages import is_language_code
from polyglance.recipes.common import not_there
from polyglance.records import read_lines
from polyglance.text.dictionaries import Dictionary, dictionary_is_there, open_dictionary
from polyglance.vision.labels import LABEL_LANGUAGES, label_names

ENGLISH = "en"


@dataclass(frozen=True)
class Labels:
    """Where the names of labels come from; what has none in a language has its English name."""

    names: str | None = None
    """A table inside the data folder, a row a label, a column a language under its code.
    None for the names of ImageNet's classes, by which our own extraction labels."""
    dictionaries: str | None = None
    """Dictionaries inside the data folder, with {source} and {target} for codes, for languages
    that have no names: from English, word by word."""


@dataclass(frozen=True)
class NamedLabels:
    """The names of all labels, by language."""

    names: Mapping[str, Sequence[str]]
    own: Mapping[str, float]
    """Of each language, what share of the labels has a name of its own."""


def named_labels(labels: Labels, languages: Sequence[str], data: Path) -> NamedLabels:
    """Names in these languages, English at first."""
    if labels.names is not None:
        known = read_names(data / labels.names)
    else:
        codes = [code for code in (ENGLISH, *languages) if code in LABEL_LANGUAGES]
        known = {code: [names[0] for names in label_names(code)] for code in codes}
    english = known.get(ENGLISH)
    if english is None:
        raise PolyglanceError(f"{labels.names}: labels need names in English beside the others")
    if missing := missing_dictionaries(labels, languages, data):
        raise DataError(*missing)
    names: dict[str, Sequence[str]] = {ENGLISH: english}
    own = {ENGLISH: 1.0}
    for language in languages:
        found: Sequence[str | None] = known.get(language, [None] * len(english))
        if language not in known and labels.dictionaries is not None:
            dictionary = open_dictionary(_dictionary(labels, language, data), source=ENGLISH)
            found = [_translated(name, dictionary) for name in english]
        names[language] = [name or plain for name, plain in zip(found, english, strict=True)]
        own[language] = sum(name is not None for name in found) / len(english)
    return NamedLabels(names, own)


def missing_dictionaries(labels: Labels, languages: Iterable[str], data: Path) -> list[str]:
    """Say it of dictionaries for languages without names that are not there."""
    if labels.dictionaries is None:
        return []
    known = LABEL_LANGUAGES if labels.names is None else read_names(data / labels.names)
    paths = [_dictionary(labels, code, data) for code in languages if code not in (ENGLISH, *known)]
    return not_there(
        [path for path in paths if not dictionary_is_there(path)],
        "there is no dictionary; learn one from translations by polyglance text align"
        " --dictionary, or set labels.dictionaries to null: then labels keep their English names",
    )


def read_names(path: Path) -> dict[str, list[str]]:
    """A table of names with tabs between: codes of languages, then a row a label."""
    rows = [line.split("\t") for _, line in read_lines(path, Problems(strict=True)) if line]
    if len(rows) < 2 or not all(map(is_language_code, rows[0])):
        raise DataError(f"{path}: expected codes of languages in the first line, then a label each")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]) or not all(row):
            raise DataError(f"{path}:{number}: expected a name in each of {', '.join(rows[0])}")
    return {code: [row[place] for row in rows[1:]] for place, code in enumerate(rows[0])}


def _translated(name: str, dictionary: Dictionary) -> str | None:
    """A name as a whole or, where that is unknown, the word it ends with, which says what it is."""
    for known in (name, name.split()[-1]):
        if found := dictionary.translations(known):
            return found[0]
    return None


def _dictionary(labels: Labels, language: str, data: Path) -> Path:
    pattern = labels.dictionaries or ""
    return data / pattern.replace("{source}", ENGLISH).replace("{target}", language)

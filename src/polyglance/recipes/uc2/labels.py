"""Names of region labels in every language of the captions, as text and as sub-words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.languages import is_language_code, normalise_language
from polyglance.nn.packing import Packing
from polyglance.recipes.run_folder import name_missing
from polyglance.records import read_lines
from polyglance.text.dictionaries import Dictionary, dictionary_exists, open_dictionary
from polyglance.vision.labels import LabelClasses, label_languages, label_names

Indices = NDArray[np.int64]
ENGLISH = "en"
_OBJECT_LABELS = "img_label_objects"
"""How UC2 calls its files of label names."""
_BACKGROUND = "background"


@dataclass(frozen=True)
class LabelNamesConfig:
    """Where names of labels come from; a label without one in a language keeps the English."""

    names: str | None = None
    """A table inside the data folder: a row a label, a column a language headed by its code. Or
    UC2's folder ``object_labels``: ``img_label_objects.txt`` in English and
    ``img_label_objects_de.txt`` and so on, a label a line. None for the names of `classes`."""
    classes: LabelClasses = "imagenet"
    """With which our own extraction labels regions: ``imagenet`` for grid cells, ``coco`` for a
    detector's objects."""
    background: bool = False
    """Whether the store's class 0 is the background, so that names begin with class 1: true for
    UNITER's soft labels, false for the object ids of VOLTA and LXMERT."""
    dictionaries: str | None = None
    """Dictionaries inside the data folder, with {source} and {target} for language codes, that
    translate English names for languages without any."""


@dataclass(frozen=True)
class LabelNames:
    """The names of all labels, by language."""

    names: Mapping[str, Sequence[str]]
    coverage: Mapping[str, float]
    """By language, the share of labels with a name of its own."""


def load_label_names(config: LabelNamesConfig, languages: Sequence[str], data: Path) -> LabelNames:
    """Load names in these languages and in English.

    Args:
        config: where they come from.
        languages: of the captions.
        data: the data folder.

    Returns:
        The names, English first.
    """
    if config.names is not None:
        known = read_label_names(data / config.names)
        if config.background:
            known = {code: [_BACKGROUND, *names] for code, names in known.items()}
    else:
        named = label_languages(config.classes)
        codes = [code for code in (ENGLISH, *languages) if code in named]
        known = {code: [n[0] for n in label_names(code, config.classes)] for code in codes}
    english = known.get(ENGLISH)
    if english is None:
        raise PolyglanceError(f"{config.names}: names of labels need an English column: add one")
    if missing := missing_dictionaries(config, languages, data):
        raise DataError(*missing)
    names: dict[str, Sequence[str]] = {ENGLISH: english}
    coverage = {ENGLISH: 1.0}
    for language in languages:
        own: Sequence[str | None] = known.get(language, [None] * len(english))
        if language not in known and config.dictionaries is not None:
            dictionary = open_dictionary(_dictionary(config, language, data), source=ENGLISH)
            own = [_translate(name, dictionary) for name in english]
        names[language] = [name or plain for name, plain in zip(own, english, strict=True)]
        coverage[language] = sum(name is not None for name in own) / len(english)
    return LabelNames(names, coverage)


def missing_dictionaries(
    config: LabelNamesConfig, languages: Iterable[str], data: Path
) -> list[str]:
    """Name dictionaries that languages without label names need and the data folder lacks.

    Args:
        config: where names come from.
        languages: of the captions.
        data: the data folder.

    Returns:
        A sentence, or nothing.
    """
    if config.dictionaries is None:
        return []
    known: Iterable[str] = (
        label_languages(config.classes)
        if config.names is None
        else read_label_names(data / config.names)
    )
    paths = [_dictionary(config, code, data) for code in languages if code not in (ENGLISH, *known)]
    return name_missing(
        [path for path in paths if not dictionary_exists(path)],
        "there is no dictionary; learn one from translations with 'polyglance text align"
        " --dictionary', or set labels.dictionaries to null to keep English names",
    )


def read_label_names(path: Path) -> dict[str, list[str]]:
    """Read a tab-separated table, language codes and then one row a label, or UC2's folder."""
    if path.is_dir():
        return _read_object_labels(path)
    rows = [line.split("\t") for _, line in read_lines(path, Problems(strict=True)) if line]
    if len(rows) < 2 or not all(map(is_language_code, rows[0])):
        raise DataError(f"{path}: expected language codes in the first line, then a label each")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]) or not all(row):
            raise DataError(f"{path}:{number}: expected a name in each of {', '.join(rows[0])}")
    return {code: [row[column] for row in rows[1:]] for column, code in enumerate(rows[0])}


def _read_object_labels(folder: Path) -> dict[str, list[str]]:
    """Read UC2's ``object_labels``: a file a language, a label a line."""
    names = {}
    for path in sorted(folder.glob(f"{_OBJECT_LABELS}*.txt")):
        code = path.stem.removeprefix(_OBJECT_LABELS).removeprefix("_") or ENGLISH
        if is_language_code(code):
            lines = [line.strip() for _, line in read_lines(path, Problems(strict=True))]
            names[normalise_language(code)] = lines
    counts = {len(lines) for lines in names.values()}
    if ENGLISH not in names or len(counts) != 1 or not all(map(all, names.values())):
        raise DataError(
            f"{folder}: expected {_OBJECT_LABELS}.txt, {_OBJECT_LABELS}_de.txt and so on, one label"
            " a line and as many in each"
        )
    return names


def _translate(name: str, dictionary: Dictionary) -> str | None:
    """Translate a name or, if it is unknown, its last word, which says what it is."""
    for known in (name, name.split()[-1]):
        if translations := dictionary.translations(known):
            return translations[0]
    return None


def _dictionary(config: LabelNamesConfig, language: str, data: Path) -> Path:
    pattern = config.dictionaries or ""
    return data / pattern.replace("{source}", ENGLISH).replace("{target}", language)


class NameTokenizer(Protocol):
    """The part of a tokenizer that label names need."""

    def encode_batch(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> Sequence[Sequence[int]]:
        """Return the ids of each text, without special tokens."""
        ...


class LabelTokens:
    """The sub-words of every label's name in every language."""

    def __init__(self, names: Mapping[str, Sequence[str]], tokenizer: NameTokenizer) -> None:
        """Tokenize ``names``, one for each label, in the same order in all languages."""
        self.languages = tuple(names)
        self.num_labels = len(names[self.languages[0]])
        by_language = [
            tokenizer.encode_batch(names[code], add_special_tokens=False) for code in names
        ]
        for language, tokens in zip(self.languages, by_language, strict=True):
            if len(tokens) != self.num_labels:
                raise PolyglanceError(
                    f"there are {len(tokens)} names of labels in {language}, and"
                    f" {self.num_labels} in {self.languages[0]}: give one for each label"
                )
            if empty := [number for number, ids in enumerate(tokens) if not len(ids)]:
                raise PolyglanceError(
                    f"label {empty[0]} has no name in {language} that the vocabulary can spell"
                )
        flat = [ids for tokens in by_language for ids in tokens]
        self._size = np.array([len(ids) for ids in flat], np.int64)
        self._start = np.cumsum(self._size) - self._size
        self._ids = np.array([token for ids in flat for token in ids], np.int64)

    def sample(
        self, language_ids: Indices, labels: Indices, uniform: NDArray[np.float64]
    ) -> Indices:
        """Sample one sub-word of each label's name in a language.

        Args:
            language_ids: ``(n,)`` numbers of languages here.
            labels: ``(n,)``.
            uniform: ``(n,)`` random numbers in [0, 1), which decide.

        Returns:
            ``(n,)`` ids of sub-words.
        """
        name = language_ids * self.num_labels + labels
        within = (uniform * self._size[name]).astype(np.int64)
        ids: Indices = self._ids[self._start[name] + within]
        return ids

    def language_ids(self, languages: Sequence[str]) -> Indices:
        """Return the number of each language here."""
        if missing := sorted(set(languages) - set(self.languages)):
            raise PolyglanceError(f"labels have no names in {', '.join(missing)}")
        return np.array([self.languages.index(code) for code in languages], np.int64)

    def embed(self, embeddings: Tensor, language: str) -> Tensor:
        """Return the mean word embedding of each label's name, ``(labels, hidden_size)``.

        No gradient reaches ``embeddings``, which are ``(vocab_size, hidden_size)``.
        """
        first = int(self.language_ids([language])[0]) * self.num_labels
        sizes = self._size[first : first + self.num_labels]
        start = int(self._start[first])
        ids = torch.from_numpy(self._ids[start : start + int(sizes.sum())]).to(embeddings.device)
        return Packing.of(sizes, embeddings.device).mean(embeddings.detach()[ids])

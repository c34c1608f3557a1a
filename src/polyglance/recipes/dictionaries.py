"""Dictionaries between English and other languages, from whatever is at hand.

What sentences teach comes first, since it knows what words mean in captions: from
translations where there are any, else from what was written of the same
pictures. FreeDict's dictionaries, where they are installed, add what
sentences do not know.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from polyglance.data.readers import read_all
from polyglance.recipes.keys import fingerprint, stamps
from polyglance.records import Record, read_manifest
from polyglance.text import dictionaries as dictionary_code
from polyglance.text import learned_dictionary as learning_code
from polyglance.text.alignment import AlignerSettings, align
from polyglance.text.alignment import models as aligner_code
from polyglance.text.alignment.parallel import ParallelText
from polyglance.text.dictionaries import Dictionary, open_dictionary
from polyglance.text.dictionary_files import FREEDICT, find_dictionaries
from polyglance.text.learned_dictionary import mutual_dictionaries
from polyglance.text.words import WordTokenizer
from polyglance.weights.cache import make_once

PIVOT = "en"
_FILES = "{source}-{target}.tsv"
_CODE = (sys.modules[__name__], dictionary_code, learning_code, aligner_code)
_LEAST_TRANSLATED, _LEAST_DESCRIBED = 0.02, 0.002
"""How likely a translation must be; far less where sentences only tell of the same picture."""
_WITHOUT_ORDER = AlignerSettings(words=8, diagonal=0, jumps=0, alpha=0.0)
"""IBM's first model alone: what two people say of one picture has no order in common."""


def learned_dictionaries(
    described: Path,
    parallel: Path | None,
    languages: Sequence[str],
    *,
    cache: Path,
    freedict: Path | None = Path(FREEDICT),
) -> str:
    """Dictionaries of two manifests, made once in a folder of ``cache``; returns their pattern."""
    given = [path for path in (described, parallel) if path is not None]
    installed = _installed(freedict)
    added = [p for language in languages for p in installed.get((PIVOT, language), ())]
    name = fingerprint(list(languages), *given, [stamps(path) for path in added], *_CODE)
    folder = cache / f"dictionaries-{name}"

    def make(partial: Path) -> None:
        sentences = [] if parallel is None else read_all("jsonl", parallel)
        records = list(read_manifest(described))
        make_dictionaries(records, sentences, languages, str(partial / _FILES), freedict=freedict)

    make_once(folder, lambda path: path.is_dir(), make)
    return str(folder / _FILES)


def make_dictionaries(
    described: Sequence[Record],
    parallel: Sequence[Record],
    languages: Sequence[str],
    pattern: str,
    *,
    freedict: Path | None = Path(FREEDICT),
) -> None:
    """Write dictionaries from each language to English and back, where there are none yet.

    ``described`` are training captions, ``parallel`` sentences with translations;
    ``pattern`` names files by ``{source}`` and ``{target}``.
    """
    for language in languages:
        paths = {
            way: Path(pattern.replace("{source}", way[0]).replace("{target}", way[1]))
            for way in ((PIVOT, language), (language, PIVOT))
        }
        if language == PIVOT or all(path.is_file() for path in paths.values()):
            continue
        learned = _learned(described, parallel, language)
        published = _published(language, freedict, described)
        for (path, ours), theirs in zip(
            zip(paths.values(), learned, strict=True), published, strict=True
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            (ours | theirs).save(path)


def _learned(
    described: Sequence[Record], parallel: Sequence[Record], language: str
) -> tuple[Dictionary, Dictionary]:
    """What sentences teach, from English and back: translations, or else descriptions."""
    text = ParallelText.from_records(parallel, PIVOT, language)
    settings, least = AlignerSettings(), _LEAST_TRANSLATED
    if not text.pairs:
        text = ParallelText.of(_descriptions(described, language), PIVOT, language)
        settings, least = _WITHOUT_ORDER, _LEAST_DESCRIBED
    pairs = [pair for pair in text.plain() if all(pair)]
    if not pairs:
        return _nothing(language)
    found = align(pairs, settings)
    return mutual_dictionaries(found, source=PIVOT, target=language, least=least)


def _descriptions(records: Sequence[Record], language: str) -> Iterator[tuple[str, str]]:
    """Each English sentence with each other one of the same picture."""
    for record in records:
        yield from product(record.captions.get(PIVOT, ()), record.captions.get(language, ()))


def _installed(folder: Path | None) -> Mapping[tuple[str, str], Sequence[Path]]:
    """FreeDict's dictionaries, none where it is not installed."""
    return {} if folder is None or not folder.is_dir() else find_dictionaries([folder])


def _published(
    language: str, folder: Path | None, described: Sequence[Record]
) -> tuple[Dictionary, Dictionary]:
    """FreeDict's English dictionary of a language and the same turned round, if installed.

    Only words that are said of pictures are taken, translations by how often they are.
    """
    installed = _installed(folder).get((PIVOT, language))
    if installed is None:
        return _nothing(language)
    english, other = _counts(described, PIVOT), _counts(described, language)
    there = Dictionary(
        (
            (word, translation)
            for word, translation in open_dictionary(installed[0], source=PIVOT).pairs()
            if word in english and translation.lower() in other
        ),
        source=PIVOT,
    )
    return there.ranked(other), there.reversed(source=language).ranked(english)


def _nothing(language: str) -> tuple[Dictionary, Dictionary]:
    return Dictionary((), source=PIVOT), Dictionary((), source=language)


def _counts(records: Sequence[Record], language: str) -> Mapping[str, int]:
    texts = (text for record in records for text in record.captions.get(language, ()))
    return WordTokenizer.from_texts(texts, language).counts

"""Dictionaries between English and other languages, from whatever is available.

Alignments of sentences come first, since they know what words mean in captions: of
translations where there are any, else of captions of the same image. FreeDict's
dictionaries, where installed, add what sentences lack.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from polyglance.data.readers import read_all_records
from polyglance.records import Record, read_manifest
from polyglance.text import dictionaries as dictionary_code
from polyglance.text import learned_dictionary as learning_code
from polyglance.text.alignment import AlignerSettings, align
from polyglance.text.alignment import models as aligner_code
from polyglance.text.alignment.parallel import ParallelText
from polyglance.text.dictionaries import Dictionary, open_dictionary
from polyglance.text.dictionary_files import FREEDICT_FOLDER, find_dictionaries
from polyglance.text.learned_dictionary import dictionaries_from_alignment
from polyglance.text.words import WordTokenizer
from polyglance.utils.fingerprint import file_stats, fingerprint
from polyglance.weights.cache import make_once

PIVOT = "en"
_FILES = "{source}-{target}.tsv"
_CODE = (sys.modules[__name__], dictionary_code, learning_code, aligner_code)
_MIN_SCORE_PARALLEL, _MIN_SCORE_CAPTIONS = 0.02, 0.002
"""Minimum probability of a translation; far lower where texts only describe the same image."""
_IBM1_ONLY = AlignerSettings(
    ibm1_iterations=8, fast_align_iterations=0, hmm_iterations=0, alpha=0.0
)
"""IBM model 1 alone: two descriptions of an image have no word order in common."""


def learned_dictionaries(
    captions: Path,
    parallel: Path | None,
    languages: Sequence[str],
    *,
    cache_dir: Path,
    freedict: Path | None = Path(FREEDICT_FOLDER),
) -> str:
    """Learn dictionaries between English and other languages, or find them in the cache.

    Args:
        captions: Manifest of training captions.
        parallel: Manifest of sentences with translations, or None.
        languages: Languages besides English.
        cache_dir: Keeps the dictionaries.
        freedict: Folder of FreeDict's dictionaries, or None.

    Returns:
        A path with ``{source}`` and ``{target}`` for language codes.
    """
    manifests = [path for path in (captions, parallel) if path is not None]
    installed = _installed(freedict)
    files = [p for language in languages for p in installed.get((PIVOT, language), ())]
    name = fingerprint(list(languages), *manifests, [file_stats(path) for path in files], *_CODE)
    folder = cache_dir / f"dictionaries-{name}"

    def make(partial: Path) -> None:
        sentences = [] if parallel is None else read_all_records("jsonl", parallel)
        records = list(read_manifest(captions))
        make_dictionaries(records, sentences, languages, str(partial / _FILES), freedict=freedict)

    make_once(folder, lambda path: path.is_dir(), make)
    return str(folder / _FILES)


def make_dictionaries(
    captions: Sequence[Record],
    parallel: Sequence[Record],
    languages: Sequence[str],
    pattern: str,
    *,
    freedict: Path | None = Path(FREEDICT_FOLDER),
) -> None:
    """Write dictionaries from each language to English and back, where there are none yet.

    Args:
        captions: Training captions.
        parallel: Sentences with translations.
        languages: Languages besides English.
        pattern: Path with ``{source}`` and ``{target}`` for language codes.
        freedict: Folder of FreeDict's dictionaries, or None.
    """
    for language in languages:
        paths = [
            Path(pattern.replace("{source}", source).replace("{target}", target))
            for source, target in ((PIVOT, language), (language, PIVOT))
        ]
        if language == PIVOT or all(path.is_file() for path in paths):
            continue
        learned = _learn(captions, parallel, language)
        published = _published(language, freedict, captions)
        for path, own, others in zip(paths, learned, published, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            (own | others).save(path)


def _learn(
    captions: Sequence[Record], parallel: Sequence[Record], language: str
) -> tuple[Dictionary, Dictionary]:
    """Learn from English and back: from translations, or else from captions of one image."""
    text = ParallelText.from_records(parallel, PIVOT, language)
    settings, min_score = AlignerSettings(), _MIN_SCORE_PARALLEL
    if not text.pairs:
        text = ParallelText.from_texts(_caption_pairs(captions, language), PIVOT, language)
        settings, min_score = _IBM1_ONLY, _MIN_SCORE_CAPTIONS
    pairs = [pair for pair in text.lowercased() if all(pair)]
    if not pairs:
        return _empty(language)
    alignment = align(pairs, settings)
    return dictionaries_from_alignment(
        alignment, source=PIVOT, target=language, min_score=min_score
    )


def _caption_pairs(records: Sequence[Record], language: str) -> Iterator[tuple[str, str]]:
    """Yield each English caption with each caption of the same image in another language."""
    for record in records:
        yield from product(record.captions.get(PIVOT, ()), record.captions.get(language, ()))


def _installed(folder: Path | None) -> Mapping[tuple[str, str], Sequence[Path]]:
    """Find FreeDict's dictionaries; none where it is not installed."""
    return {} if folder is None or not folder.is_dir() else find_dictionaries([folder])


def _published(
    language: str, folder: Path | None, captions: Sequence[Record]
) -> tuple[Dictionary, Dictionary]:
    """Return FreeDict's English dictionary of a language and its reverse, if installed.

    Only words of captions are kept; translations are ordered by their frequency there.
    """
    installed = _installed(folder).get((PIVOT, language))
    if installed is None:
        return _empty(language)
    english, other = _word_counts(captions, PIVOT), _word_counts(captions, language)
    forward = Dictionary(
        (
            (word, translation)
            for word, translation in open_dictionary(installed[0], source=PIVOT).pairs()
            if word in english and translation.lower() in other
        ),
        source=PIVOT,
    )
    return forward.ranked(other), forward.reversed(source=language).ranked(english)


def _empty(language: str) -> tuple[Dictionary, Dictionary]:
    return Dictionary((), source=PIVOT), Dictionary((), source=language)


def _word_counts(records: Sequence[Record], language: str) -> Mapping[str, int]:
    texts = (text for record in records for text in record.captions.get(language, ()))
    return WordTokenizer.from_texts(texts, language).counts

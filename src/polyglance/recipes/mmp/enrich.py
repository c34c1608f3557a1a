"""Make captions and words in languages that nobody captioned in, out of English captions.

- Captions half or wholly in another language, word by word from dictionaries: one language a
  caption, as in a query.
- Machine translations of captions.
- Words with their translations, names of emoji and of ImageNet's classes: short texts, as
  people type them.

The results are manifests beside the corpora, for a recipe to read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from polyglance import weights
from polyglance.data.readers import read_all_records
from polyglance.nn.pretrained import load_encoder
from polyglance.records import Record, write_manifest
from polyglance.text import open_tokenizer
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import Dictionary
from polyglance.text.dictionary_files import FREEDICT_FOLDER, open_dictionaries
from polyglance.text.emoji import emoji_names
from polyglance.text.segment import word_spans
from polyglance.text.translation.translators import Translator
from polyglance.training.sense_selection import select_senses
from polyglance.training.word_vectors import encode_words
from polyglance.vision.labels import LABEL_LANGUAGES, label_names

MIXED = "mul"
"""ISO 639's code for several languages, under which code-switched captions stand."""

SWITCH_LANGUAGES = (
    "tr", "tr", "ja", "ja", "pl", "pl", "id", "id", "ru", "ru", "ko", "es", "hu", "fi", "bg",
    "hi", "nl", "sv", "el", "hr",
)  # fmt: skip
"""Languages that captions are switched to; one that is listed twice is drawn twice as often."""

VARIANTS = 2
_BETAS = (0.5, 1.0)
"""Switch half of the words, or all that a dictionary has."""
_MIN_COUNT = {1: 2, 2: 3}
"""How often a word, or a phrase of two, must occur in captions to be translated."""

_FUNCTION_WORDS = frozenset((
    "the", "and", "with", "for", "her", "his", "its", "their", "this", "that", "are", "was",
    "were", "has", "have", "from", "into", "onto", "over", "under", "out", "off", "while", "who",
    "which", "them", "they", "she", "him", "one", "some", "other", "another", "there", "being",
))  # fmt: skip
"""Not replaced one by one: languages differ too much in them."""


def enrich(
    data: Path,
    out: Path,
    *,
    pictures: Sequence[str],
    parallel: Sequence[str],
    emoji: Path | None = None,
    dictionaries: Sequence[str | Path] = (FREEDICT_FOLDER,),
    translators: Sequence[Translator] = (),
    encoder: str = "e5-small",
    switch_languages: Sequence[str] = SWITCH_LANGUAGES,
    seed: int = 0,
    device: str = "cpu",
    quiet: bool = True,
) -> dict[str, int]:
    """Enrich the English captions of manifests; return the number of records by file.

    Args:
        data: Folder of the manifests.
        out: Folder to write to, under the same names, and ``words.jsonl`` for words.
        pictures: Manifests of images, such as ``flickr8k/train.jsonl``; the new file holds
            the new captions alone.
        parallel: Manifests of parallel texts; the new file also holds the old captions.
        emoji: The unpacked npm package cldr-annotations-full, for names of emoji.
        dictionaries: Files or folders of dictionaries.
        translators: Machine translators from English.
        encoder: Multilingual text encoder that selects word senses.
        switch_languages: Languages that captions are switched to.
        seed: Of the languages and shares drawn.
        device: Where the encoder runs.
        quiet: Show no progress.
    """
    corpora = {name: read_all_records("jsonl", data / name) for name in (*pictures, *parallel)}
    english = [list(record.captions.get("en", ())) for one in corpora.values() for record in one]
    names = [] if emoji is None else emoji_names(emoji)
    translations = select_translations(
        frequent_words(text for texts in english for text in texts),
        open_dictionaries(dictionaries, quiet=quiet),
        encoder,
        device=device,
        quiet=quiet,
    )
    words = word_records(translations, names)
    counts = {"words.jsonl": write_manifest(out / "words.jsonl", words)}
    switchable = with_emoji_names(translations, names)
    rng = np.random.default_rng(seed)
    for name, records in corpora.items():
        captioned = [record for record in records if "en" in record.captions]
        texts = [text for record in captioned for text in record.captions["en"]]
        new = {MIXED: code_switch(texts, switchable, switch_languages, rng)}
        new |= {one.target: [[text] for text in one.translate(texts)] for one in translators}
        keep = name in parallel
        counts[name] = write_manifest(out / name, _with_captions(captioned, new, keep=keep))
    return counts


def frequent_words(texts: Iterable[str]) -> set[str]:
    """Return the words and pairs of words that occur often enough in English texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = [text[start:end].lower() for start, end in word_spans(text, "en")]
        counts.update(words)
        counts.update(map(" ".join, pairwise(words)))
    return {
        word
        for word, count in counts.items()
        if count >= _MIN_COUNT[1 + word.count(" ")]
        and len(word) > 2
        and word not in _FUNCTION_WORDS
    }


def select_translations(
    words: set[str],
    dictionaries: Mapping[str, Dictionary],
    encoder: str,
    *,
    device: str = "cpu",
    quiet: bool = True,
) -> dict[str, Dictionary]:
    """Return the translations of words in each language that an encoder finds similar."""
    folder = weights.folder(encoder)
    network = load_encoder(folder).to(device).eval()
    encode = partial(encode_words, network, open_tokenizer(folder), quiet=quiet)
    return select_senses(dictionaries, words, encode)


def word_records(
    dictionaries: Mapping[str, Dictionary], emoji: Sequence[Mapping[str, str]]
) -> Iterable[Record]:
    """Yield words, ImageNet's classes and emoji names, each with its translations."""
    words = dict.fromkeys(word for dictionary in dictionaries.values() for word in dictionary)
    for word in words:
        translations = {
            language: dictionary.translations(word)
            for language, dictionary in dictionaries.items()
            if word in dictionary
        }
        yield Record(captions={"en": (word,), **translations})
    for number in range(len(label_names())):
        names = {language: label_names(language)[number][:2] for language in LABEL_LANGUAGES}
        yield Record(captions=names)
    for by_language in emoji:
        yield Record(captions={language: (name,) for language, name in by_language.items()})


def with_emoji_names(
    dictionaries: Mapping[str, Dictionary], emoji: Sequence[Mapping[str, str]]
) -> dict[str, Dictionary]:
    """Return the dictionaries extended by names of emoji."""
    languages = dict.fromkeys([*dictionaries, *(code for names in emoji for code in names)])
    return {
        code: dictionaries.get(code, Dictionary((), source="en"))
        | Dictionary(((names["en"], names[code]) for names in emoji if code in names), source="en")
        for code in languages
        if code != "en"
    }


def code_switch(
    texts: Sequence[str],
    dictionaries: Mapping[str, Dictionary],
    languages: Sequence[str],
    rng: np.random.Generator,
) -> list[list[str]]:
    """Return variants of each text, each switched to one language drawn at random.

    Variants with fewer than two replaced words are left out.

    Args:
        texts: English texts.
        dictionaries: From English, by language.
        languages: Languages to draw from; repeated ones are drawn more often.
        rng: Draws languages, shares and words.
    """
    available = np.array([language for language in languages if language in dictionaries])
    variants: list[list[str]] = [[] for _ in texts]
    if not len(available):
        return variants
    language = rng.choice(available, (VARIANTS, len(texts)))
    beta = rng.choice(_BETAS, (VARIANTS, len(texts)))
    for code in dict.fromkeys(available):
        for share in _BETAS:
            rows = np.nonzero((language == code) & (beta == share))[1].tolist()
            switcher = CodeSwitcher(
                {str(code): dictionaries[code]}, beta=share, rank_exponent=np.inf
            )
            prepared = switcher.prepare([texts[row] for row in rows])
            for row, switched in zip(rows, prepared.draw(rng), strict=True):
                if len(switched.replacements) > 1:
                    variants[row].append(switched.text)
    return variants


def _with_captions(
    records: Sequence[Record], new: Mapping[str, Sequence[Sequence[str]]], *, keep: bool
) -> Iterable[Record]:
    """Yield records with new captions; ``new`` has some for each English caption in turn."""
    start = 0
    for record in records:
        end = start + len(record.captions["en"])
        added = {
            language: tuple(text for some in texts[start:end] for text in some if text)
            for language, texts in new.items()
        }
        start = end
        captions = {**(record.captions if keep else {}), **{k: v for k, v in added.items() if v}}
        if captions:
            yield replace(record, captions=captions)

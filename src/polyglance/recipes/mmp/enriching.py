"""More to learn from than a corpus has: captions and words in languages that nobody captioned in.

- Captions half or wholly in another language, word by word out of dictionaries: one
  language a caption, as a query has.
- Captions translated by a machine.
- Words with their translations, names of emoji and of what ImageNet shows: short
  texts, as people type them.

What is made stands beside the corpora as manifests, for a recipe to read.
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
from polyglance.data.readers import read_all
from polyglance.nn.pretrained import load_encoder
from polyglance.records import Record, write_manifest
from polyglance.text import open_tokenizer
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import Dictionary
from polyglance.text.dictionary_files import FREEDICT, open_dictionaries
from polyglance.text.emoji import emoji_names
from polyglance.text.segment import cut_words
from polyglance.text.translators import Translator
from polyglance.training.word_choice import by_likeness
from polyglance.training.word_vectors import encode_words
from polyglance.vision.labels import LABEL_LANGUAGES, label_names

MIXED = "mul"
"""ISO 639's code for what is in several languages: code-switched captions stand under it."""

SWITCHED = (
    "tr", "tr", "ja", "ja", "pl", "pl", "id", "id", "ru", "ru", "ko", "es", "hu", "fi", "bg",
    "hi", "nl", "sv", "el", "hr",
)  # fmt: skip
"""Into which languages captions are switched; what stands twice is drawn twice as often."""

VARIANTS = 2
_BETAS = (0.5, 1.0)
"""Half of the words, or all that a dictionary has."""
_SEEN = {1: 2, 2: 3}
"""How often captions must have a word, or a phrase of two, for it to be worth translating."""

_LITTLE_WORDS = frozenset((
    "the", "and", "with", "for", "her", "his", "its", "their", "this", "that", "are", "was",
    "were", "has", "have", "from", "into", "onto", "over", "under", "out", "off", "while", "who",
    "which", "them", "they", "she", "him", "one", "some", "other", "another", "there", "being",
))  # fmt: skip
"""They differ too much between languages to be replaced one by one."""


def enrich(
    data: Path,
    out: Path,
    *,
    pictures: Sequence[str],
    parallel: Sequence[str],
    emoji: Path | None = None,
    dictionaries: Sequence[str | Path] = (FREEDICT,),
    translators: Sequence[Translator] = (),
    encoder: str = "e5-small",
    switched: Sequence[str] = SWITCHED,
    seed: int = 0,
    device: str = "cpu",
    quiet: bool = True,
) -> dict[str, int]:
    """Write what the English captions of manifests under ``data`` give; returns records by file.

    For ``flickr8k/train.jsonl`` of pictures, ``out/flickr8k/train.jsonl`` holds the new
    captions of each; for parallel texts the file holds the old ones as well.
    ``words.jsonl`` holds the words.
    """
    corpora = {name: read_all("jsonl", data / name) for name in (*pictures, *parallel)}
    english = [list(record.captions.get("en", ())) for one in corpora.values() for record in one]
    names = [] if emoji is None else emoji_names(emoji)
    known = chosen_translations(
        seen_words(text for texts in english for text in texts),
        open_dictionaries(dictionaries, quiet=quiet),
        encoder,
        device=device,
        quiet=quiet,
    )
    written = {"words.jsonl": write_manifest(out / "words.jsonl", word_records(known, names))}
    switchable = with_names(known, names)
    rng = np.random.default_rng(seed)
    for name, records in corpora.items():
        ours = [record for record in records if "en" in record.captions]
        texts = [text for record in ours for text in record.captions["en"]]
        new = {MIXED: switch(texts, switchable, switched, rng)}
        new |= {one.target: [[text] for text in one.translate(texts)] for one in translators}
        keep = name in parallel
        written[name] = write_manifest(out / name, _with_captions(ours, new, keep=keep))
    return written


def seen_words(texts: Iterable[str]) -> set[str]:
    """The words and pairs of words that English texts have more than once or twice."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = [text[start:end].lower() for start, end in cut_words(text, "en")]
        counts.update(words)
        counts.update(map(" ".join, pairwise(words)))
    return {
        word
        for word, count in counts.items()
        if count >= _SEEN[1 + word.count(" ")] and len(word) > 2 and word not in _LITTLE_WORDS
    }


def chosen_translations(
    words: set[str],
    dictionaries: Mapping[str, Dictionary],
    encoder: str,
    *,
    device: str = "cpu",
    quiet: bool = True,
) -> dict[str, Dictionary]:
    """What these words are in each language, as far as an encoder finds them alike."""
    folder = weights.folder(encoder)
    network = load_encoder(folder).to(device).eval()
    encode = partial(encode_words, network, open_tokenizer(folder), quiet=quiet)
    return by_likeness(dictionaries, words, encode)


def word_records(
    known: Mapping[str, Dictionary], emoji: Sequence[Mapping[str, str]]
) -> Iterable[Record]:
    """Words, names of emoji and of ImageNet's classes, each with its translations."""
    words = dict.fromkeys(word for dictionary in known.values() for word in dictionary)
    for word in words:
        found = {language: d.translations(word) for language, d in known.items() if word in d}
        yield Record(captions={"en": (word,), **found})
    for number in range(len(label_names())):
        names = {language: label_names(language)[number][:2] for language in LABEL_LANGUAGES}
        yield Record(captions=names)
    for by_language in emoji:
        yield Record(captions={language: (name,) for language, name in by_language.items()})


def with_names(
    known: Mapping[str, Dictionary], emoji: Sequence[Mapping[str, str]]
) -> dict[str, Dictionary]:
    """The dictionaries, and behind them the names of emoji."""
    languages = dict.fromkeys([*known, *(code for names in emoji for code in names)])
    return {
        code: known.get(code, Dictionary((), source="en"))
        | Dictionary(((names["en"], names[code]) for names in emoji if code in names), source="en")
        for code in languages
        if code != "en"
    }


def switch(
    texts: Sequence[str],
    dictionaries: Mapping[str, Dictionary],
    languages: Sequence[str],
    rng: np.random.Generator,
) -> list[list[str]]:
    """Each text in a few variants, each in a language drawn; those hardly changed are left out."""
    drawn = np.array([language for language in languages if language in dictionaries])
    found: list[list[str]] = [[] for _ in texts]
    if not len(drawn):
        return found
    language = rng.choice(drawn, (VARIANTS, len(texts)))
    beta = rng.choice(_BETAS, (VARIANTS, len(texts)))
    for code in dict.fromkeys(drawn):
        for share in _BETAS:
            rows = np.nonzero((language == code) & (beta == share))[1].tolist()
            switcher = CodeSwitcher({str(code): dictionaries[code]}, beta=share, preference=np.inf)
            prepared = switcher.prepare([texts[row] for row in rows])
            for row, one in zip(rows, prepared.switched(rng), strict=True):
                if len(one.spans) > 1:
                    found[row].append(one.text)
    return found


def _with_captions(
    records: Sequence[Record], new: Mapping[str, Sequence[Sequence[str]]], *, keep: bool
) -> Iterable[Record]:
    """The records with what was made of each of their English captions."""
    done = 0
    for record in records:
        count = len(record.captions["en"])
        made = {
            language: tuple(text for found in texts[done : done + count] for text in found if text)
            for language, texts in new.items()
        }
        done += count
        captions = {**(record.captions if keep else {}), **{k: v for k, v in made.items() if v}}
        if captions:
            yield replace(record, captions=captions)

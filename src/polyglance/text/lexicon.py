"""A joint vocabulary of words of several languages, as SMALR (Burns et al. 2020) embeds them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.languages import normalise_language
from polyglance.records import Record, atomic_write, parse_json
from polyglance.text.segment import normalise_word, word_spans
from polyglance.text.words import WordTokenizer

if TYPE_CHECKING:
    from polyglance.text.dictionaries import Dictionary

PAD_ID, MASK_ID = 0, 1
"""Ids of the padding and the mask token."""

_SPECIALS = ("<pad>", "<mask>")
_FILE = "lexicon.json"

Counts = Mapping[str, int]
"""Words with their counts, most frequent first."""

Integers = NDArray[np.int64]


class Lexicon:
    """Words of several languages: ``<pad>``, ``<mask>``, then language by language.

    Within a language the most frequent word comes first. A spelling that two languages
    share is two words. A language added later changes no id of the others.

    ``aliases`` gives words of one language the id of another language's word: the
    paper's dictionary mapping baseline, see `with_dictionaries`.
    """

    def __init__(
        self,
        counts: Mapping[str, Counts],
        *,
        segmented: Collection[str] = (),
        aliases: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Build from counts by language; ``segmented`` languages are split by a segmenter."""
        self.counts = {normalise_language(code): dict(words) for code, words in counts.items()}
        """The count of each word by language, in the order of the ids."""
        self.segmented = frozenset(map(normalise_language, segmented))
        self.aliases = {code: dict(words) for code, words in (aliases or {}).items()}
        """Words without an id of their own, by language, with the id that they share."""
        self.languages = tuple(self.counts)
        self.words = (*_SPECIALS, *(word for counts in self.counts.values() for word in counts))
        """The word of each id."""
        sizes = [len(words) for words in self.counts.values()]
        self._starts = dict(
            zip(self.languages, np.cumsum([len(_SPECIALS), *sizes]).tolist(), strict=False)
        )
        specials = [-1] * len(_SPECIALS)
        self.language_ids = np.concatenate(
            [specials, np.repeat(np.arange(len(sizes)), sizes)]
        ).astype(np.int64)
        """Each word's index into ``languages``; -1 for padding and mask."""
        self.frequency_ranks = np.concatenate([specials, *map(np.arange, sizes)], dtype=np.int64)
        """Each word's frequency rank in its language, from 0; -1 for padding and mask."""

    @classmethod
    def from_texts(
        cls,
        texts: Mapping[str, Iterable[str]],
        *,
        min_count: int = 1,
        max_words: int | None = None,
        segmented: Collection[str] = (),
    ) -> Lexicon:
        """Build the lexicon of texts by language.

        Args:
            texts: Texts of each language.
            min_count: Leave out words that occur less often.
            max_words: Keep only so many words of each language.
            segmented: Languages that a dictionary-based segmenter splits into words.
        """
        counts = {}
        for code, own in texts.items():
            vocabulary = WordTokenizer.from_texts(
                own, code, min_count=min_count, max_words=max_words, use_segmenter=code in segmented
            )
            counts[code] = vocabulary.counts
        return cls(counts, segmented=segmented)

    @classmethod
    def from_records(
        cls,
        records: Iterable[Record],
        *,
        languages: Sequence[str] | None = None,
        min_count: int = 1,
        max_words: int | None = None,
        segmented: Collection[str] = (),
    ) -> Lexicon:
        """Build the lexicon of records' captions (see `from_texts`), of all languages or these."""
        return cls.from_texts(
            texts_by_language(records, languages),
            min_count=min_count,
            max_words=max_words,
            segmented=segmented,
        )

    def __len__(self) -> int:
        return len(self.words)

    def word_id(self, word: str, language: str) -> int | None:
        """Return the id of a normalised (lower-case) word; None where unknown."""
        return self._word_ids(language).get(word)

    def encode(self, text: str, language: str) -> list[int]:
        """Return the ids of a text's words; unknown words are dropped."""
        return self.tokenizer(language).encode(text)

    def encode_batch(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Return the word ids of each text of one language."""
        return self.tokenizer(language).encode_batch(texts)

    def coverage(self, text: str, language: str) -> float:
        """Return the share of a text's words that the lexicon has; 0 for a text without words."""
        spans = word_spans(text, language, use_segmenter=language in self.segmented)
        words = [normalise_word(text[start:end], language) for start, end in spans]
        return sum(word in self.counts[language] for word in words) / max(1, len(words))

    def tokenizer(self, language: str) -> LexiconTokenizer:
        """Return the tokenizer of one language."""
        code = normalise_language(language)
        if code not in self.tokenizers:
            raise PolyglanceError(
                f"the lexicon has no words of {language!r}, only of {', '.join(self.languages)}"
            )
        return self.tokenizers[code]

    @cached_property
    def tokenizers(self) -> dict[str, LexiconTokenizer]:
        """A tokenizer for each language, as `CaptionTable.build` takes them."""
        return {code: LexiconTokenizer(self, code) for code in self.languages}

    def with_language(self, language: str, texts: Iterable[str], **options: Any) -> Lexicon:
        """Return the lexicon with another language added; existing ids stay the same.

        ``options`` are those of `from_texts`.
        """
        code = normalise_language(language)
        if code in self.counts:
            raise PolyglanceError(f"the lexicon already has words of {code!r}")
        added = Lexicon.from_texts({code: texts}, **options)
        return Lexicon(
            {**self.counts, **added.counts},
            segmented=self.segmented | added.segmented,
            aliases=self.aliases,
        )

    def without_rare(self, min_count: int) -> Lexicon:
        """Return the lexicon of words with at least this count: the paper's frequency baseline."""
        return self._with_min_counts(dict.fromkeys(self.languages, min_count))

    def with_dictionaries(
        self, dictionaries: Mapping[str, Dictionary], min_count: int, *, pivot: str = "en"
    ) -> Lexicon:
        """Map rare words to words of ``pivot``: the paper's dictionary mapping baseline.

        A rare word shares the id of the first of its translations that the pivot has,
        since dictionaries list the best first; it is dropped if there is none.

        Args:
            dictionaries: From each language to the pivot.
            min_count: Words with a lower count are mapped.
            pivot: The language mapped to; all of its words stay.
        """
        min_counts = {code: 0 if code == pivot else min_count for code in self.languages}
        frequent = self._with_min_counts(min_counts)
        pivot_words = frequent._word_ids(pivot)
        for code in self.languages:
            if code == pivot or code not in dictionaries:
                continue
            for word in self.counts[code].keys() - frequent.counts[code].keys():
                words = (normalise_word(t, pivot) for t in dictionaries[code].translations(word))
                best = next((pivot_words[t] for t in words if t in pivot_words), None)
                if best is not None:
                    frequent.aliases.setdefault(code, {})[word] = best
        return Lexicon(frequent.counts, segmented=self.segmented, aliases=frequent.aliases)

    def save(self, folder: Path) -> Path:
        """Write ``lexicon.json``: the words and counts of each language."""
        content = {
            "languages": {
                code: {"words": " ".join(words), "counts": list(words.values())}
                for code, words in self.counts.items()
            },
            "segmented": sorted(self.segmented),
            "borrowed": self.aliases,
        }
        with atomic_write(folder / _FILE) as out:
            json.dump(content, out, ensure_ascii=False, separators=(",", ":"))
            out.write("\n")
        return folder / _FILE

    @classmethod
    def open(cls, path: str | Path) -> Lexicon:
        """Open a ``lexicon.json``, or the one in a folder."""
        path = Path(path)
        path = path / _FILE if path.is_dir() else path
        try:
            content = parse_json(path.read_bytes())
            return cls(*_counts(content), **_options(content))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}: expected a lexicon as Polyglance saves it ({error})"
            ) from None

    def _word_ids(self, language: str) -> dict[str, int]:
        return self.tokenizer(language).word_ids

    def _with_min_counts(self, min_counts: Mapping[str, int]) -> Lexicon:
        counts = {
            code: {word: count for word, count in words.items() if count >= min_counts[code]}
            for code, words in self.counts.items()
        }
        return Lexicon(counts, segmented=self.segmented)


class LexiconTokenizer(WordTokenizer):
    """The tokenizer of one language of a lexicon; its ids are the lexicon's."""

    unk_id = None
    mask_id = MASK_ID

    def __init__(self, lexicon: Lexicon, language: str) -> None:
        counts = lexicon.counts[language]
        super().__init__(counts.items(), language, use_segmenter=language in lexicon.segmented)
        start = lexicon._starts[language]
        own = {word: number for number, word in enumerate(counts, start)}
        self.word_ids = own | lexicon.aliases.get(language, {})
        """The id of each word, aliases included."""
        self._ids = self.word_ids
        self._words = list(lexicon.words)
        self._lexicon = lexicon

    def save(self, folder: Path) -> None:
        """Write the whole lexicon."""
        self._lexicon.save(folder)


def texts_by_language(
    records: Iterable[Record], languages: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Return the captions of records by language, of all languages or of these."""
    chosen = None if languages is None else [normalise_language(code) for code in languages]
    texts: dict[str, list[str]] = {code: [] for code in chosen or ()}
    for record in records:
        for code, captions in record.captions.items():
            if chosen is None or code in chosen:
                texts.setdefault(code, []).extend(captions)
    return texts


def _counts(content: Any) -> tuple[dict[str, dict[str, int]]]:
    counts = {}
    for code, entry in content["languages"].items():
        words, numbers = entry["words"].split(" ") if entry["words"] else [], entry["counts"]
        if not all(type(number) is int for number in numbers) or len(set(words)) < len(words):
            raise ValueError(f"the words of {code} must be unique, and their counts integers")
        counts[code] = dict(zip(words, numbers, strict=True))
    return (counts,)


def _options(content: Any) -> dict[str, Any]:
    total = sum(len(entry["counts"]) for entry in content["languages"].values()) + len(_SPECIALS)
    for words in content["borrowed"].values():
        if not all(type(number) is int and 0 <= number < total for number in words.values()):
            raise ValueError("a borrowed word must have the id of another")
    return {"segmented": content["segmented"], "aliases": content["borrowed"]}

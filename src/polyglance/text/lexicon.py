"""The words of several languages in one numbering, as SMALR (Burns et al. 2020) embeds them."""

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
"""What fills up a batch, and what hides a word."""

_SPECIALS = ("<pad>", "<mask>")
_FILE = "lexicon.json"

Counts = Mapping[str, int]
"""Words with how often each was seen, the commonest first."""

Numbers = NDArray[np.int64]


class Lexicon:
    """Words of several languages by number: ``<pad>``, ``<mask>``, then language by language.

    Within a language the commonest word comes first. A spelling that two
    languages share is two words. Languages lie one after another, so that one
    added later moves no word of the others.

    With ``borrowed``, words of a language stand for words of another: the paper's
    baseline of dictionary mapping, see `with_dictionaries`.
    """

    def __init__(
        self,
        counts: Mapping[str, Counts],
        *,
        segmented: Collection[str] = (),
        aliases: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """``segmented`` names languages that a segmenter with a dictionary cuts into words."""
        self.counts = {normalise_language(code): dict(words) for code, words in counts.items()}
        """How often each word was seen, by language, in the order of the ids."""
        self.segmented = frozenset(map(normalise_language, segmented))
        self.aliases = {code: dict(words) for code, words in (aliases or {}).items()}
        """Words that have no number of their own, with the number that they stand for."""
        self.languages = tuple(self.counts)
        self.words = (*_SPECIALS, *(word for known in self.counts.values() for word in known))
        """The spelling of each number."""
        sizes = [len(known) for known in self.counts.values()]
        self._starts = dict(
            zip(self.languages, np.cumsum([len(_SPECIALS), *sizes]).tolist(), strict=False)
        )
        specials = [-1] * len(_SPECIALS)
        self.language_ids = np.concatenate(
            [specials, np.repeat(np.arange(len(sizes)), sizes)]
        ).astype(np.int64)
        """Each word's language, as a position in ``languages``; -1 for padding and mask."""
        self.frequency_ranks = np.concatenate([specials, *map(np.arange, sizes)], dtype=np.int64)
        """0 for the commonest word of its language; -1 for padding and mask."""

    @classmethod
    def from_texts(
        cls,
        texts: Mapping[str, Iterable[str]],
        *,
        min_count: int = 1,
        max_words: int | None = None,
        segmented: Collection[str] = (),
    ) -> Lexicon:
        """The words of texts by language, seen at least ``min_count`` times, the commonest
        ``max_words`` of each language."""
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
        """The words of the captions of records, of all languages in them or of these."""
        return cls.from_texts(
            texts_by_language(records, languages),
            min_count=min_count,
            max_words=max_words,
            segmented=segmented,
        )

    def __len__(self) -> int:
        return len(self.words)

    def word_id(self, word: str, language: str) -> int | None:
        """The number of a word in its lexicon's spelling (lower case); None where unknown."""
        return self._numbers(language).get(word)

    def encode(self, text: str, language: str) -> list[int]:
        """The numbers of a text's words; unknown words are dropped."""
        return self.tokenizer(language).encode(text)

    def encode_batch(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """The numbers of many texts of one language."""
        return self.tokenizer(language).encode_batch(texts)

    def coverage(self, text: str, language: str) -> float:
        """How many of a text's words are known in a language, from 0 to 1; 0 without any word."""
        cuts = word_spans(text, language, use_segmenter=language in self.segmented)
        words = [normalise_word(text[start:end], language) for start, end in cuts]
        return sum(word in self.counts[language] for word in words) / max(1, len(words))

    def tokenizer(self, language: str) -> LexiconTokenizer:
        """One language of this lexicon as a tokenizer like any other."""
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
        """This lexicon and another language's words after it, of `from_texts`; all words
        keep their numbers."""
        code = normalise_language(language)
        if code in self.counts:
            raise PolyglanceError(f"the lexicon has words of {code!r} already")
        added = Lexicon.from_texts({code: texts}, **options)
        return Lexicon(
            {**self.counts, **added.counts},
            segmented=self.segmented | added.segmented,
            aliases=self.aliases,
        )

    def without_rare(self, min_count: int) -> Lexicon:
        """Only words that were seen so often: the paper's baseline of frequency thresholding."""
        return self._only(dict.fromkeys(self.languages, min_count))

    def with_dictionaries(
        self, dictionaries: Mapping[str, Dictionary], min_count: int, *, pivot: str = "en"
    ) -> Lexicon:
        """Rare words stand for a word of ``pivot``: the paper's baseline of dictionary mapping.

        ``dictionaries`` lead from a language to the pivot. A word of another
        language that was seen less than ``min_count`` times becomes the first of its
        translations that the pivot has, for dictionaries have the best first; one
        without any is dropped. Words of the pivot all stay.
        """
        limits = {code: 0 if code == pivot else min_count for code in self.languages}
        kept = self._only(limits)
        pivot_words = kept._numbers(pivot)
        for code in self.languages:
            if code == pivot or code not in dictionaries:
                continue
            for word in self.counts[code].keys() - kept.counts[code].keys():
                spelled = (normalise_word(t, pivot) for t in dictionaries[code].translations(word))
                best = next((pivot_words[t] for t in spelled if t in pivot_words), None)
                if best is not None:
                    kept.aliases.setdefault(code, {})[word] = best
        return Lexicon(kept.counts, segmented=self.segmented, aliases=kept.aliases)

    def save(self, folder: Path) -> Path:
        """Write ``lexicon.json``: for each language its words in one line, and their counts."""
        content = {
            "languages": {
                code: {"words": " ".join(known), "counts": list(known.values())}
                for code, known in self.counts.items()
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
        """Read a ``lexicon.json`` or the folder that holds it."""
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

    def _numbers(self, language: str) -> dict[str, int]:
        return self.tokenizer(language).word_ids

    def _only(self, limits: Mapping[str, int]) -> Lexicon:
        counts = {
            code: {word: count for word, count in known.items() if count >= limits[code]}
            for code, known in self.counts.items()
        }
        return Lexicon(counts, segmented=self.segmented)


class LexiconTokenizer(WordTokenizer):
    """One language of a lexicon as a tokenizer; its ids are the numbers of the lexicon."""

    unk_id = None
    mask_id = MASK_ID

    def __init__(self, lexicon: Lexicon, language: str) -> None:
        counts = lexicon.counts[language]
        super().__init__(counts.items(), language, use_segmenter=language in lexicon.segmented)
        start = lexicon._starts[language]
        own = {word: number for number, word in enumerate(counts, start)}
        self.word_ids = own | lexicon.aliases.get(language, {})
        """The number of each word, of those too that stand for a word of another language."""
        self._ids = self.word_ids
        self._words = list(lexicon.words)
        self._lexicon = lexicon

    def save(self, folder: Path) -> None:
        """Write the whole lexicon."""
        self._lexicon.save(folder)


def texts_by_language(
    records: Iterable[Record], languages: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """The captions of records, of all languages in the order that they come in, or of these."""
    chosen = None if languages is None else [normalise_language(code) for code in languages]
    texts: dict[str, list[str]] = {code: [] for code in chosen or ()}
    for record in records:
        for code, captions in record.captions.items():
            if chosen is None or code in chosen:
                texts.setdefault(code, []).extend(captions)
    return texts


def _counts(content: Any) -> tuple[dict[str, dict[str, int]]]:
    counts = {}
    for code, known in content["languages"].items():
        words, numbers = known["words"].split(" ") if known["words"] else [], known["counts"]
        if not all(type(number) is int for number in numbers) or len(set(words)) < len(words):
            raise ValueError(f"the words of {code} must be different, and their counts whole")
        counts[code] = dict(zip(words, numbers, strict=True))
    return (counts,)


def _options(content: Any) -> dict[str, Any]:
    total = sum(len(known["counts"]) for known in content["languages"].values()) + len(_SPECIALS)
    for words in content["borrowed"].values():
        if not all(type(number) is int and 0 <= number < total for number in words.values()):
            raise ValueError("a borrowed word must have the number of another")
    return {"segmented": content["segmented"], "aliases": content["borrowed"]}

"""Word-level tokenizer with one vocabulary per language, as in SMALR (Burns et al. 2020)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

from polyglance.errors import DataError, PolyglanceError
from polyglance.languages import normalise_language
from polyglance.records import atomic_write
from polyglance.text.segment import UNSPACED, Span, normalise_word, word_spans
from polyglance.text.tokenizer import Encoding, max_content_length
from polyglance.utils.bounded import parse_json

UnknownPolicy = Literal["drop", "map"]

PAD, UNK = "<pad>", "<unk>"


class WordTokenizer:
    """Words of one language: ``<pad>`` 0, ``<unk>`` 1, then words by falling frequency.

    Words outside the vocabulary are dropped, as in SMALR, or become ``<unk>`` with
    ``unknown="map"``. No special tokens are added around a text.
    """

    bos_id: int | None = None
    eos_id: int | None = None
    mask_id: int | None = None
    pad_id: int | None = 0
    unk_id: int | None = 1

    def __init__(
        self,
        counts: Iterable[tuple[str, int]],
        language: str,
        *,
        lower: bool = True,
        use_segmenter: bool = False,
        unknown: UnknownPolicy = "drop",
    ) -> None:
        if unknown not in get_args(UnknownPolicy):
            raise PolyglanceError(f"unknown must be 'drop' or 'map', not {unknown!r}")
        self.counts = dict(counts)
        """The count of each word in the corpus of the vocabulary, in the order of the ids."""
        self.language = normalise_language(language)
        self.lower = lower
        self.use_segmenter = use_segmenter
        self.unknown: UnknownPolicy = unknown
        self._words = [PAD, UNK, *self.counts]
        self._ids = {word: number for number, word in enumerate(self._words)}

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        language: str,
        *,
        min_count: int = 1,
        max_words: int | None = None,
        lower: bool = True,
        use_segmenter: bool = False,
        unknown: UnknownPolicy = "drop",
    ) -> WordTokenizer:
        """Build the vocabulary of a corpus, by falling frequency and then by spelling.

        Args:
            texts: The corpus.
            language: Its language.
            min_count: Leave out words that occur less often.
            max_words: Keep only so many words.
            lower: Lower-case words.
            use_segmenter: Split Chinese or Japanese by a dictionary-based segmenter.
            unknown: Drop words outside the vocabulary, or map them to ``<unk>``.
        """
        empty = cls((), language, lower=lower, use_segmenter=use_segmenter, unknown=unknown)
        counts = Counter(word for text in texts for word in empty.words(text))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        frequent = [(word, count) for word, count in ranked if count >= min_count][:max_words]
        return cls(frequent, language, lower=lower, use_segmenter=use_segmenter, unknown=unknown)

    @property
    def vocab_size(self) -> int:
        """Number of ids; they run from 0."""
        return len(self._words)

    def words(self, text: str) -> list[str]:
        """Return the normalised words of a text, in the vocabulary or not."""
        return [word for word, _ in self._split(text)]

    def encode(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """Return the ids of a text's words."""
        return self.encode_with_spans(
            text, add_special_tokens=add_special_tokens, max_length=max_length
        ).ids

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """Return the word ids of each text."""
        return [
            self.encode(t, add_special_tokens=add_special_tokens, max_length=max_length)
            for t in texts
        ]

    def encode_with_spans(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> Encoding:
        """Return the ids of `encode` together with their words and spans."""
        max_words = max_content_length(max_length, 0)
        known = [(word, span) for word, span in self._split(text) if self._is_encoded(word)][
            :max_words
        ]
        ids = [self._ids.get(word, 1) for word, _ in known]
        return Encoding(ids, self.tokens(ids), [span for _, span in known])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words, joined as the language is written."""
        words = [word for word in self.tokens(ids) if word != PAD]
        return ("" if self.language in UNSPACED else " ").join(words)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the words of these ids."""
        words = []
        for number in ids:
            if not 0 <= number < len(self._words):
                raise PolyglanceError(f"the tokenizer has no token of id {number}")
            words.append(self._words[number])
        return words

    def save(self, folder: Path) -> None:
        """Write ``words.json``: the settings, and each word with its count."""
        content = {
            "language": self.language,
            "lower": self.lower,
            "dictionary": self.use_segmenter,
            "unknown": self.unknown,
            "words": self.counts,
        }
        with atomic_write(folder / "words.json") as out:
            json.dump(content, out, ensure_ascii=False, indent=1)
            out.write("\n")

    @classmethod
    def open(cls, path: Path) -> WordTokenizer:
        """Open a ``words.json``, or the one in a folder."""
        path = path / "words.json" if path.is_dir() else path
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: expected a word vocabulary as JSON ({error})") from error
        kinds = {"language": str, "lower": bool, "dictionary": bool, "unknown": str, "words": dict}
        if not isinstance(content, dict) or set(content) != set(kinds):
            raise DataError(f"{path}: expected an object of {', '.join(kinds)}")
        for name, kind in kinds.items():
            if not isinstance(content[name], kind):
                raise DataError(f"{path}: expected {name!r} to be of type {kind.__name__}")
        words = content.pop("words")
        if not all(type(count) is int for count in words.values()):
            raise DataError(f"{path}: expected each word with its count")
        return cls(words.items(), use_segmenter=content.pop("dictionary"), **content)

    def _split(self, text: str) -> list[tuple[str, Span]]:
        words = []
        for start, end in word_spans(text, self.language, use_segmenter=self.use_segmenter):
            word = normalise_word(text[start:end], self.language, lower=self.lower)
            # NFKC expands U+FDFA, for one, to several words.
            words += [(part, (start, end)) for part in word.split()]
        return words

    def _is_encoded(self, word: str) -> bool:
        return self.unknown == "map" or word in self._ids

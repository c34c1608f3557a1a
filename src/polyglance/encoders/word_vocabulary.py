"""The words of several languages in one small file, each with its row of the word table.

A lexicon of 48,951 words takes 570 kB as ``lexicon.json`` and a third of that here. The
file is one xz stream of, in little-endian order:

    4 bytes       ``PGW1``
    2 x uint32    the bytes of the header and of the words
    header        JSON: the number of words of each ``language``, which languages a
                  dictionary cuts (``segmented``), and which words stand for another
                  (``borrowed``), by its number in the lexicon
    words         in UTF-8, one per line, language by language, most frequent first
    8 x n bytes   counts of the words, by byte planes, for language detection
    4 x m bytes   rows: differences of consecutive ones, by byte planes, including those
                  of the lexicon's two special tokens

Words and their ids are those of `polyglance.text.lexicon.Lexicon`.
"""

from __future__ import annotations

import json
import lzma
import struct
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.vocabulary import FILTERS
from polyglance.errors import DataError, PolyglanceError
from polyglance.languages import get_language, normalise_language
from polyglance.text.detection import LanguageDetector
from polyglance.text.lexicon import Lexicon
from polyglance.utils.bounded import decompress_xz, parse_json

_MAGIC = b"PGW1"
_HEADER = struct.Struct("<4s2I")
_SPECIALS = 2
"""Number of special tokens of the lexicon: padding and mask, which no text has."""


class WordVocabulary:
    """Tokenises text to rows of the word table."""

    def __init__(self, lexicon: Lexicon, rows: NDArray[np.int32]) -> None:
        """``rows`` maps the lexicon's ids to rows of the table."""
        self.lexicon, self.rows = lexicon, rows

    def encode(self, text: str, max_length: int, language: str | None = None) -> list[int]:
        """Return the rows of a text's words; unknown words are left out.

        Args:
            text: Any text.
            max_length: Maximum number of rows; longer texts are truncated.
            language: Its language; None for the most likely one with any known word.
        """
        if language is not None:
            return self._encode(text, max_length, self._check_language(language))
        for likely in self._likely_languages(text):
            if rows := self._encode(text, max_length, likely):
                return rows
        return []

    def _encode(self, text: str, max_length: int, language: str) -> list[int]:
        ids = self.lexicon.tokenizers[language].encode(text, max_length=max_length)
        rows: list[int] = self.rows[ids].tolist()
        return rows

    def _likely_languages(self, text: str) -> list[str]:
        """Return the languages, most likely first."""
        languages = self.lexicon.languages
        if len(languages) < 2:
            return list(languages)
        scores = self._detector.scores(text)
        return sorted(languages, key=scores.__getitem__, reverse=True)

    @cached_property
    def _detector(self) -> LanguageDetector:
        return LanguageDetector(self.lexicon)

    def _check_language(self, language: str) -> str:
        try:
            code = normalise_language(language)
        except (ValueError, AttributeError):
            raise PolyglanceError(
                f"a language is a code such as 'de' or 'yue', not {language!r}"
            ) from None
        if code not in self.lexicon.counts:
            raise PolyglanceError(
                f"the model has no words of {get_language(code).english_name} ({code}), only of"
                f" {', '.join(self.lexicon.languages)}: search in one of these"
            )
        return code

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        lexicon = self.lexicon
        head = {
            "languages": {code: len(words) for code, words in lexicon.counts.items()},
            "segmented": sorted(lexicon.segmented),
            "borrowed": lexicon.aliases,
        }
        header = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
        text = "\n".join(lexicon.words[_SPECIALS:]).encode()
        counts = [count for words in lexicon.counts.values() for count in words.values()]
        steps = np.diff(self.rows.astype("<i4"), prepend=np.int32(0)).astype("<i4")
        parts = [
            _HEADER.pack(_MAGIC, len(header), len(text)),
            header,
            text,
            _planes(np.array(counts, "<u8")),
            _planes(steps),
        ]
        return lzma.compress(b"".join(parts), filters=FILTERS)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "the vocabulary") -> WordVocabulary:
        """Parse the content of the file; ``name`` is used in errors."""
        try:
            data = decompress_xz(content)
            magic, header_bytes, text_bytes = _HEADER.unpack_from(data)
            text_at = _HEADER.size + header_bytes
            counts_at = text_at + text_bytes
            if magic != _MAGIC:
                raise ValueError("it is not a vocabulary of words")
            head = parse_json(data[_HEADER.size : text_at])
            text = data[text_at:counts_at].decode()
            words = text.split("\n") if text else []
            rows_at = counts_at + 8 * len(words)
            counts = _from_planes(data[counts_at:rows_at], "<u8").tolist()
            rows = np.cumsum(_from_planes(data[rows_at:], "<i4"), dtype=np.int32)
            if not len(rows) - _SPECIALS == len(words) == sum(head["languages"].values()):
                raise ValueError("its parts do not fit together")
            pairs = iter(zip(words, counts, strict=True))
            lexicon = Lexicon(
                {
                    code: dict(next(pairs) for _ in range(size))
                    for code, size in head["languages"].items()
                },
                segmented=head["segmented"],
                aliases=head["borrowed"],
            )
            if len(lexicon) != len(rows):
                raise ValueError("a word is in it twice")
        except (ValueError, LookupError, TypeError, AttributeError,
                RecursionError, struct.error) as error:  # fmt: skip
            raise DataError(f"{name} is damaged ({error}): install or export it again") from error
        return cls(lexicon, rows)


def _planes(numbers: NDArray[np.generic]) -> bytes:
    """Return all first bytes, all second bytes and so on; the high ones compress well."""
    return numbers.view(np.uint8).reshape(-1, numbers.itemsize).T.tobytes()


def _from_planes(content: bytes, dtype: str) -> NDArray[np.int64]:
    size = np.dtype(dtype).itemsize
    planes = np.frombuffer(content, np.uint8).reshape(size, -1)
    return np.ascontiguousarray(planes.T).view(dtype)[:, 0]

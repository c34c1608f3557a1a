"""The words of several languages in one small file, each with its row of the model's table.

A lexicon of 48,951 words takes 570 kB as ``lexicon.json`` and a third of that here. The
file is one xz stream of, in little-endian order:

    4 bytes       ``PGW1``
    2 x uint32    the bytes of the header and of the words
    header        JSON: the number of words of each ``language``, which languages a
                  dictionary cuts (``segmented``), and which words stand for another
                  (``borrowed``), by its number in the lexicon
    words         in UTF-8, one a line, language by language, the commonest first
    8 x n bytes   how often each was seen, by byte planes: what languages are told apart by
    4 x m bytes   rows: steps from one to the next, by byte planes; the lexicon's two
                  specials have rows as well

Words and their numbers are those of `polyglance.text.lexicon.Lexicon`.
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
from polyglance.languages import describe, normalise_language
from polyglance.text.detection import LanguageDetector
from polyglance.text.lexicon import Lexicon

_MAGIC = b"PGW1"
_HEADER = struct.Struct("<4s2I")
_SPECIALS = 2
"""Of the lexicon: padding and mask, which no text has."""


class WordVocabulary:
    """Text to rows of the table of words."""

    def __init__(self, lexicon: Lexicon, rows: NDArray[np.int32]) -> None:
        """``rows`` has the row of each of the lexicon's numbers."""
        self.lexicon, self.rows = lexicon, rows

    def encode(self, text: str, longest: int, language: str | None = None) -> list[int]:
        """The rows of the first ``longest`` words that the language has; others are left out.

        Without a ``language`` it is the likeliest one in which any word of the text is known.
        """
        if language is not None:
            return self._encoded(text, longest, self._known(language))
        for likely in self._likely(text):
            if found := self._encoded(text, longest, likely):
                return found
        return []

    def _encoded(self, text: str, longest: int, language: str) -> list[int]:
        numbers = self.lexicon.tokenizers[language].encode(text, max_length=longest)
        found: list[int] = self.rows[numbers].tolist()
        return found

    def _likely(self, text: str) -> list[str]:
        """The languages, likeliest first."""
        languages = self.lexicon.languages
        if len(languages) < 2:
            return list(languages)
        scores = self._detector.scores(text)
        return sorted(languages, key=scores.__getitem__, reverse=True)

    @cached_property
    def _detector(self) -> LanguageDetector:
        return LanguageDetector(self.lexicon)

    def _known(self, language: str) -> str:
        try:
            code = normalise_language(language)
        except (ValueError, AttributeError):
            raise PolyglanceError(
                f"a language is a code such as 'de' or 'yue', not {language!r}"
            ) from None
        if code not in self.lexicon.counts:
            raise PolyglanceError(
                f"the model has no words of {describe(code).english} ({code}), only of"
                f" {', '.join(self.lexicon.languages)}: ask in one of these"
            )
        return code

    def to_bytes(self) -> bytes:
        """The file."""
        lexicon = self.lexicon
        head = {
            "languages": {code: len(known) for code, known in lexicon.counts.items()},
            "segmented": sorted(lexicon.segmented),
            "borrowed": lexicon.borrowed,
        }
        header = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
        text = "\n".join(lexicon.words[_SPECIALS:]).encode()
        counts = [count for known in lexicon.counts.values() for count in known.values()]
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
        """Read the file; ``name`` is what an error calls it."""
        try:
            data = lzma.decompress(content)
            magic, header_bytes, text_bytes = _HEADER.unpack_from(data)
            text_at = _HEADER.size + header_bytes
            counts_at = text_at + text_bytes
            if magic != _MAGIC:
                raise ValueError("it is not a vocabulary of words")
            head = json.loads(data[_HEADER.size : text_at])
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
                borrowed=head["borrowed"],
            )
            if len(lexicon) != len(rows):
                raise ValueError("a word is in it twice")
        except (lzma.LZMAError, ValueError, LookupError, TypeError, AttributeError,
                RecursionError, struct.error) as error:  # fmt: skip
            raise DataError(f"{name} is damaged ({error}): install or export it again") from error
        return cls(lexicon, rows)


def _planes(numbers: NDArray[np.generic]) -> bytes:
    """All first bytes, all second bytes ...: the higher ones hardly take room when compressed."""
    return numbers.view(np.uint8).reshape(-1, numbers.itemsize).T.tobytes()


def _from_planes(content: bytes, kind: str) -> NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    planes = np.frombuffer(content, np.uint8).reshape(size, -1)
    return np.ascontiguousarray(planes.T).view(kind)[:, 0]

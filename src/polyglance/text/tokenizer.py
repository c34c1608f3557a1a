"""The one protocol of all tokenizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from polyglance.errors import PolyglanceError

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text in tokens: their ids, their spelling, and where each lies in the text."""

    ids: list[int]
    tokens: list[str]
    spans: list[Span] | None
    """Start and end in characters of the text as given; specials are empty spans at (0, 0).
    None where the tokenizer does not know."""


@runtime_checkable
class Tokenizer(Protocol):
    """Text to numbers and back.

    With ``specials`` the ids are wrapped as the model expects them (``<s> … </s>``
    for XLM-R; nothing for words). With ``max_length`` text is cut at its end so
    that the ids, specials included, are no more than that: the closing special
    stays. An id is None where a tokenizer has no such token.
    """

    @property
    def vocab_size(self) -> int:
        """Number of ids; they run from 0."""

    @property
    def bos_id(self) -> int | None:
        """What stands before a text."""

    @property
    def eos_id(self) -> int | None:
        """What stands after a text."""

    @property
    def pad_id(self) -> int | None:
        """What fills up a batch."""

    @property
    def unk_id(self) -> int | None:
        """What stands for anything not in the vocabulary."""

    @property
    def mask_id(self) -> int | None:
        """What hides a token that is to be guessed."""

    def encode(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """The ids of a text."""

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """The ids of many texts, the same as one by one, but faster."""

    def encode_with_spans(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> Encoding:
        """The same ids with their spelling and their places in the text."""

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text again, without specials."""

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The spelling of ids in the vocabulary."""

    def save(self, folder: Path) -> None:
        """Write what `open_tokenizer` needs into a folder."""


def max_content_length(max_length: int | None, add_special_tokens: int) -> int | None:
    """How many tokens of a text fit when so many specials go around them; None for all."""
    if max_length is None:
        return None
    if max_length < add_special_tokens:
        raise PolyglanceError(
            f"a maximum length of {max_length} has no room for the {add_special_tokens} special tokens: "
            "raise it"
        )
    return max_length - add_special_tokens

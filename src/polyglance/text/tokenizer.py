"""The protocol that every tokenizer follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from polyglance.errors import PolyglanceError
from polyglance.text.segment import Span


@dataclass(frozen=True, slots=True)
class Encoding:
    """The tokens of a text: ids, spelling, and position in the text."""

    ids: list[int]
    tokens: list[str]
    spans: list[Span] | None
    """Start and end of each token in characters of the given text; special tokens are (0, 0).
    None where the tokenizer cannot tell."""


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and back.

    ``add_special_tokens`` wraps the ids as the model expects them (``<s> … </s>`` for
    XLM-R; nothing for words). ``max_length`` truncates the text so that the ids,
    special tokens included, are no more than that; the closing special token stays.
    A special token's id is None where a tokenizer has no such token.
    """

    @property
    def vocab_size(self) -> int:
        """Number of ids; they run from 0."""

    @property
    def bos_id(self) -> int | None:
        """Begin-of-sequence token, placed before a text."""

    @property
    def eos_id(self) -> int | None:
        """End-of-sequence token, placed after a text."""

    @property
    def pad_id(self) -> int | None:
        """Padding token."""

    @property
    def unk_id(self) -> int | None:
        """Token for anything outside the vocabulary."""

    @property
    def mask_id(self) -> int | None:
        """Mask token of masked language modelling."""

    def encode(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """Return the token ids of a text."""

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """Return the token ids of each text; the same as `encode`, but faster."""

    def encode_with_spans(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> Encoding:
        """Return the ids of `encode` together with their tokens and spans."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return readable text, without special tokens."""

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, as the vocabulary spells them."""

    def save(self, folder: Path) -> None:
        """Write the files that `open_tokenizer` needs into a folder."""


def max_content_length(max_length: int | None, num_special_tokens: int) -> int | None:
    """Return how many tokens of a text fit beside its special tokens; None is no limit."""
    if max_length is None:
        return None
    if max_length < num_special_tokens:
        raise PolyglanceError(
            f"a maximum length of {max_length} leaves no room for the {num_special_tokens} special "
            "tokens: raise it"
        )
    return max_length - num_special_tokens

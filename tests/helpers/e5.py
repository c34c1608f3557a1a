"""The tokenizer of e5-small: its 250,002 sub-words take a second to read."""

from __future__ import annotations

from functools import cache

from polyglance.text import Tokenizer, open_tokenizer


@cache
def e5_tokenizer() -> Tokenizer:
    """Return the one tokenizer of all tests of this process."""
    return open_tokenizer("e5-small")

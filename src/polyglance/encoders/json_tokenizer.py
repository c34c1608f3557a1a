"""A ``tokenizer.json`` in an exported model, for tokenizers other than XLM-R's, such as mBERT's."""

from __future__ import annotations

import lzma

from polyglance.encoders.vocabulary import FILTERS
from polyglance.errors import DataError
from polyglance.text.huggingface import FastTokenizer
from polyglance.utils.bounded import decompress_xz


class JsonTokenizer:
    """Tokenises text to rows of the embedding table, with the ``tokenizers`` library."""

    def __init__(self, text: str) -> None:
        """``text`` is the content of a ``tokenizer.json``."""
        import tokenizers

        self.text = text
        self._tokenizer = FastTokenizer(tokenizers.Tokenizer.from_str(text))

    def __reduce__(self) -> tuple[type[JsonTokenizer], tuple[str]]:
        return JsonTokenizer, (self.text,)

    def encode(self, text: str, max_length: int, language: str | None = None) -> list[int]:
        """Return the rows of a text's sub-words, special tokens included.

        Args:
            text: Any text.
            max_length: Maximum number of rows; longer texts are truncated.
            language: Ignored; all languages share the sub-words.
        """
        return self._tokenizer.encode(text, max_length=max_length)

    def to_bytes(self) -> bytes:
        """Return the content of ``vocabulary.xz``."""
        return lzma.compress(self.text.encode(), filters=FILTERS)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "the vocabulary") -> JsonTokenizer:
        """Parse what `to_bytes` returned; ``name`` is used in errors."""
        try:
            return cls(decompress_xz(content).decode())
        except Exception as error:  # the tokenizers library raises plain Exception
            raise DataError(f"{name} is damaged ({error}): install or export it again") from error

"""Words in: tokenizers behind one protocol, and the cutting of text into words."""

from polyglance.text.tokenizer import Encoding, Tokenizer, open_tokenizer

__all__ = ["Encoding", "Tokenizer", "open_tokenizer"]

"""Words in: tokenizers behind one protocol, and the cutting of text into words."""

from polyglance.text.opening import open_tokenizer
from polyglance.text.tokenizer import Encoding, Tokenizer

__all__ = ["Encoding", "Tokenizer", "open_tokenizer"]

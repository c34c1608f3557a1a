"""Text: tokenizers, words, dictionaries, word alignment, translation, language detection.

`open_tokenizer` opens any tokenizer; they all follow the protocol `Tokenizer`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.text.huggingface import open_tokenizer_json, open_with_transformers
from polyglance.text.sentencepiece_model import open_sentencepiece_model
from polyglance.text.tokenizer import Encoding, Tokenizer
from polyglance.text.words import WordTokenizer

__all__ = ["Encoding", "Tokenizer", "open_tokenizer"]

_OPENERS: dict[str, Callable[[Path], Tokenizer]] = {
    "words.json": WordTokenizer.open,
    "tokenizer.json": open_tokenizer_json,
    "sentencepiece.bpe.model": open_sentencepiece_model,
}


def open_tokenizer(spec: str | Path) -> Tokenizer:
    """Open the tokenizer in a file or folder, or that of some weights by their name.

    A file ``*.model`` is SentencePiece's (with XLM-R's ids), ``tokenizer.json`` is
    Hugging Face's, ``words.json`` a `WordTokenizer`'s. A folder is searched for
    these, then left to transformers. Any other name is one of `polyglance.weights`.
    """
    path = Path(spec).expanduser()
    if str(spec) in weights.ENTRIES or not path.exists():
        path = weights.folder(spec)
    if path.is_dir():
        for name, opener in _OPENERS.items():
            if (path / name).is_file():
                return opener(path / name)
        return open_with_transformers(path)
    if path.suffix == ".model":
        return open_sentencepiece_model(path)
    if path.suffix == ".json":
        return _OPENERS["words.json" if path.name == "words.json" else "tokenizer.json"](path)
    raise PolyglanceError(
        f"{path} is not a tokenizer: give a SentencePiece .model, a tokenizer.json, "
        "a words.json or a folder with one of them"
    )

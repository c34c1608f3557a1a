"""Opening whichever kind of tokenizer a path or name means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.text import huggingface, sentencepiece_file, words
from polyglance.text.tokenizer import Tokenizer


def open_tokenizer(spec: str | Path) -> Tokenizer:
    """Open a tokenizer by what the path or name is.

    A file ``*.model`` is SentencePiece's (with XLM-R's ids), ``tokenizer.json`` is
    Hugging Face's, ``words.json`` a `WordTokenizer`'s. A folder is searched for
    these, then left to transformers. Any other name is one of `polyglance.weights`.
    """
    path = Path(spec).expanduser()
    if str(spec) in weights.ENTRIES or not path.exists():
        path = weights.folder(spec)
    openers: dict[str, Callable[[Path], Tokenizer]] = {
        "words.json": words.WordTokenizer.open,
        "tokenizer.json": huggingface.open_file,
        "sentencepiece.bpe.model": sentencepiece_file.open_file,
    }
    if path.is_dir():
        for name, opener in openers.items():
            if (path / name).is_file():
                return opener(path / name)
        return huggingface.open_with_transformers(path)
    if path.suffix == ".model":
        return sentencepiece_file.open_file(path)
    if path.suffix == ".json":
        return openers["words.json" if path.name == "words.json" else "tokenizer.json"](path)
    raise PolyglanceError(
        f"{path} is no tokenizer: expected a SentencePiece .model, a tokenizer.json, "
        "a words.json or a folder with one of them"
    )

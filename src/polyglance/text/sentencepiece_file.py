"""SentencePiece model files, read with the ids that fairseq gave XLM-R.

The file is a protocol buffer (sentencepiece_model.proto): pieces with scores,
the trainer's settings and the compiled normalisation. Reading it takes neither
SentencePiece nor protobuf; `polyglance.weights.unigram` does the cutting.
"""

from __future__ import annotations

from math import isfinite
from pathlib import Path

from polyglance.errors import DataError
from polyglance.text.huggingface import FastTokenizer
from polyglance.weights.unigram import BOS, EOS, MASK, SPECIALS, UNK, xlmr_tokenizer
from polyglance.weights.wire import Value, fields

# Numbers of fields and values in sentencepiece_model.proto.
_PIECE, _TRAINER, _NORMALISER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND = 1, 2, 3
_NORMAL = 1
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARSMAP = 2


def open_file(path: Path) -> FastTokenizer:
    """Open a unigram model as XLM-R does: ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3,
    the file's pieces from its fourth on, and ``<mask>`` last."""
    try:
        pieces, charsmap = _read(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise DataError(f"{path}: expected a SentencePiece model ({error})") from error
    if [piece for piece, _, _ in pieces[:3]] != [UNK, BOS, EOS]:
        raise DataError(
            f"{path}: expected a model whose first pieces are {UNK}, {BOS}, {EOS}, as XLM-R's are; "
            "open its Hugging Face folder instead"
        )
    if any(kind != _NORMAL for _, _, kind in pieces[3:]):
        raise DataError(
            f"{path}: expected plain pieces only, as XLM-R's are, not control, byte or "
            "user-defined ones; open its Hugging Face folder instead"
        )
    vocabulary = [(name, 0.0) for name in SPECIALS]
    vocabulary += [(piece, score) for piece, score, _ in pieces[3:]]
    vocabulary.append((MASK, 0.0))
    try:
        return FastTokenizer(xlmr_tokenizer(vocabulary, charsmap))
    except Exception as error:  # the library raises plain Exception for rules that do not hold
        raise DataError(f"{path}: expected a SentencePiece model ({error})") from error


def _read(data: bytes) -> tuple[list[tuple[str, float, Value]], bytes]:
    pieces = []
    charsmap = b""
    for number, value in fields(data):
        if number == _PIECE:
            part = _message(value)
            text, score = part.get(_PIECE_TEXT), part.get(_PIECE_SCORE, 0.0)
            if not isinstance(text, bytes) or not isinstance(score, float) or not isfinite(score):
                raise ValueError("a piece has its text and its score")
            pieces.append((text.decode("utf-8"), score, part.get(_PIECE_KIND, _NORMAL)))
        elif number == _TRAINER:
            if _message(value).get(_MODEL_TYPE, _UNIGRAM) != _UNIGRAM:
                raise ValueError("only unigram models have XLM-R's rules")
        elif number == _NORMALISER:
            found = _message(value).get(_CHARSMAP, b"")
            if not isinstance(found, bytes):
                raise ValueError("the normalisation is compiled rules")
            charsmap = found
    return pieces, charsmap


def _message(value: Value) -> dict[int, Value]:
    if not isinstance(value, bytes):
        raise ValueError("a message inside the message")
    return dict(fields(value))

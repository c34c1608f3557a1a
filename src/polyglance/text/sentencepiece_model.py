"""SentencePiece model files, opened with the ids that fairseq gave XLM-R."""

from __future__ import annotations

from importlib.util import find_spec
from math import isfinite
from pathlib import Path

from polyglance.errors import DataError, MissingExtraError
from polyglance.text.huggingface import FastTokenizer
from polyglance.weights.unigram import BOS, EOS, MASK, SPECIALS, UNK, xlmr_tokenizer


def open_sentencepiece_model(path: Path) -> FastTokenizer:
    """Open a unigram model as XLM-R does.

    The ids are ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, then the file's
    pieces from its fourth on, and ``<mask>`` last.
    """
    if find_spec("sentencepiece") is None:
        raise MissingExtraError(f"opening {path}", "train")
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
        pieces = [(piece.piece, piece.score) for piece in model.pieces]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (DecodeError, ValueError) as error:  # ValueError: a piece that is not UTF-8
        raise DataError(f"{path}: expected a SentencePiece model ({error})") from error
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
        raise DataError(
            f"{path}: expected a SentencePiece model of type unigram, as XLM-R's is; "
            "open its Hugging Face folder instead"
        )
    if [text for text, _ in pieces[:3]] != [UNK, BOS, EOS]:
        raise DataError(
            f"{path}: expected a model whose first pieces are {UNK}, {BOS}, {EOS}, as XLM-R's are; "
            "open its Hugging Face folder instead"
        )
    if any(piece.type != piece.NORMAL for piece in model.pieces[3:]):
        raise DataError(
            f"{path}: expected normal pieces only, as XLM-R's are, not control, byte or "
            "user-defined ones; open its Hugging Face folder instead"
        )
    if not all(piece.HasField("piece") and isfinite(piece.score) for piece in model.pieces):
        raise DataError(
            f"{path}: expected a SentencePiece model whose pieces have a text and a finite score"
        )
    vocabulary = [(name, 0.0) for name in SPECIALS] + pieces[3:] + [(MASK, 0.0)]
    try:
        charsmap = model.normalizer_spec.precompiled_charsmap
        return FastTokenizer(xlmr_tokenizer(vocabulary, charsmap))
    except Exception as error:  # tokenizers raises plain Exception for a bad charsmap
        raise DataError(f"{path}: expected a SentencePiece model ({error})") from error

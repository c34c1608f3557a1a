"""Convert an XLM-R tokenizer to a `Vocabulary`."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from polyglance.encoders.json_tokenizer import JsonTokenizer
from polyglance.encoders.model_folder import TextUnits
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.graph import Array
from polyglance.text import Tokenizer
from polyglance.text.huggingface import FastTokenizer
from polyglance.utils.bounded import parse_json
from polyglance.weights.unigram import MASK, SPECIALS, xlmr_tokenizer


def pack_tokenizer(tokenizer: Tokenizer) -> tuple[TextUnits, bytes]:
    """Return the kind of a tokenizer's vocabulary and the content of ``vocabulary.xz``.

    A tokenizer with XLM-R's rules becomes a small `Vocabulary`; any other of the
    ``tokenizers`` library, such as mBERT's, is stored whole. Rows of the embedding table
    stay in the tokenizer's order.
    """
    if not isinstance(tokenizer, FastTokenizer):
        raise PolyglanceError(
            f"a {type(tokenizer).__name__} cannot be exported: use an encoder with a tokenizer.json"
        )
    text = tokenizer.backend.to_str()
    pieces = parse_json(text)["model"].get("vocab") or ()
    try:
        vocabulary = read_vocabulary(tokenizer, np.ones(len(pieces), bool))
    except PolyglanceError:  # of other rules than XLM-R's
        return "tokenizer", JsonTokenizer(text).to_bytes()
    return "sub-words", vocabulary.to_bytes()


def read_vocabulary(tokenizer: Tokenizer, frequent: Array) -> Vocabulary:
    """Return the vocabulary of a tokenizer with XLM-R's rules.

    The tokenizer is rebuilt and everything but the vocabulary is compared: a rule that
    differs would give other ids to the same text.

    Args:
        tokenizer: The model's tokenizer.
        frequent: (pieces,) which pieces have finer codes in the embedding table.
    """
    if not isinstance(tokenizer, FastTokenizer):
        raise PolyglanceError(f"a {type(tokenizer).__name__} cannot be exported: {_EXPECTED}")
    given: dict[str, Any] = parse_json(tokenizer.backend.to_str())
    pairs = given["model"].get("vocab")
    if given["model"].get("type") != "Unigram" or [p for p, _ in pairs[:4]] != list(SPECIALS):
        raise PolyglanceError(f"this tokenizer cannot be exported: {_EXPECTED}")
    encoded = (given["normalizer"] or {}).get("precompiled_charsmap")
    charsmap = base64.b64decode(encoded) if encoded else b""
    specials = [(name, 0.0) for name in (*SPECIALS, MASK)]
    rules = parse_json(xlmr_tokenizer(specials, charsmap or None).to_str())
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if given[part] != rules[part]:
            raise PolyglanceError(f"the tokenizer's {part} differs: {_EXPECTED}")
    if len(pairs) != len(frequent):
        raise PolyglanceError(
            f"the tokenizer has {len(pairs)} pieces and the model's table {len(frequent)}:"
            " export with the tokenizer that the model was trained with"
        )
    pieces, scores = zip(*pairs, strict=True)
    return Vocabulary(list(pieces), np.array(scores, np.float32), frequent.astype(bool), charsmap)


_EXPECTED = "expected a unigram tokenizer with XLM-R's rules, such as e5-small's"

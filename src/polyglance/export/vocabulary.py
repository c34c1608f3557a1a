"""A tokenizer of XLM-R's kind as a `Vocabulary`."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.graph import Array
from polyglance.text import Tokenizer
from polyglance.text.huggingface import FastTokenizer
from polyglance.weights.unigram import MASK, SPECIALS, xlmr_tokenizer


def read_vocabulary(tokenizer: Tokenizer, frequent: Array) -> Vocabulary:
    """The vocabulary of a tokenizer, which must be one that the folder can hold.

    It is built again from its vocabulary and compared, all but the vocabulary:
    a rule that is different would give other ids to the same text.
    """
    if not isinstance(tokenizer, FastTokenizer):
        raise PolyglanceError(f"a {type(tokenizer).__name__} cannot be exported: {_EXPECTED}")
    given: dict[str, Any] = json.loads(tokenizer.backend.to_str())
    pairs = given["model"].get("vocab")
    if given["model"].get("type") != "Unigram" or [p for p, _ in pairs[:4]] != list(SPECIALS):
        raise PolyglanceError(f"a tokenizer of another kind cannot be exported: {_EXPECTED}")
    encoded = (given["normalizer"] or {}).get("precompiled_charsmap")
    charsmap = base64.b64decode(encoded) if encoded else b""
    specials = [(name, 0.0) for name in (*SPECIALS, MASK)]
    rules = json.loads(xlmr_tokenizer(specials, charsmap or None).to_str())
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if given[part] != rules[part]:
            raise PolyglanceError(f"the {part} of the tokenizer is another: {_EXPECTED}")
    if len(pairs) != len(frequent):
        raise PolyglanceError(
            f"the tokenizer has {len(pairs)} pieces and the model's table {len(frequent)}:"
            " export with the tokenizer that the model was trained with"
        )
    pieces, scores = zip(*pairs, strict=True)
    return Vocabulary(list(pieces), np.array(scores, np.float32), frequent.astype(bool), charsmap)


_EXPECTED = "expected a unigram tokenizer with XLM-R's rules, as that of e5-small"

"""Build XLM-R's tokenizer over any unigram vocabulary, with the ``tokenizers`` library.

XLM-R (Conneau et al. 2020) splits text into the pieces of a SentencePiece unigram model,
whose ids fairseq shifted: ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, then the model's
pieces, then ``<mask>``. The ids equal those of transformers' ``XLMRobertaTokenizer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
SPECIALS = (BOS, PAD, EOS, UNK)
"""The first ids, in order; ``<mask>`` is the last."""


def xlmr_tokenizer(pieces: list[tuple[str, float]], charsmap: bytes | None) -> Tokenizer:
    """Build the tokenizer of a vocabulary in XLM-R's order: specials, pieces, ``<mask>``.

    ``charsmap`` is SentencePiece's compiled normalisation; None does not normalise.
    """
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=SPECIALS.index(UNK), byte_fallback=False))
    if charsmap:
        tokenizer.normalizer = normalizers.Precompiled(charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    # <mask> absorbs the space before it, as a word does.
    plain = [AddedToken(name, normalized=False, special=True) for name in SPECIALS]
    mask = AddedToken(MASK, lstrip=True, normalized=False, special=True)
    tokenizer.add_special_tokens([*plain, mask])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[BOS, "$A", EOS],
        pair=[BOS, "$A", EOS, EOS, "$B", EOS],
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (BOS, EOS)],
    )
    return tokenizer

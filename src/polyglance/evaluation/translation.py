"""BLEU and chrF of translations, equal to sacrebleu's, without installing it.

BLEU is that of `polyglance.evaluation.bleu` with one reference, by its tokenizers that need no
MeCab. chrF (Popović 2015) with character n-grams up to 6 and beta 2, spaces left out. Both over a
whole corpus, from 0 to 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from polyglance.errors import PolyglanceError
from polyglance.evaluation.bleu import corpus_bleu, plain_tokenizer

_CHRF_ORDER, _CHRF_BETA = 6, 2.0


@dataclass(frozen=True)
class TranslationScores:
    """How near translations are to their references."""

    bleu: float
    chrf: float
    sentences: int
    tokenizer: str
    """Of BLEU: ``13a``, ``zh`` or ``char``."""


def score_translations(
    translations: Sequence[str], references: Sequence[str], language: str
) -> TranslationScores:
    """Return BLEU and chrF of a corpus.

    Args:
        translations: By a machine.
        references: One for each.
        language: Of both; decides how BLEU splits words.
    """
    if not references or len(translations) != len(references):
        raise PolyglanceError(
            f"{len(translations):,} translations cannot be compared with {len(references):,}"
            " references: give as many, and at least one"
        )
    bleu = corpus_bleu(
        translations, [[text] for text in references], tokenizer=plain_tokenizer(language)
    )
    return TranslationScores(
        bleu.score, chrf(translations, references), len(references), bleu.tokenizer
    )


def chrf(translations: Sequence[str], references: Sequence[str]) -> float:
    """Return corpus chrF of texts."""
    own_counts, other_counts, matched = ([0] * _CHRF_ORDER for _ in range(3))
    for text, reference in zip(translations, references, strict=True):
        own_text, other_text = "".join(text.split()), "".join(reference.split())
        for order in range(1, _CHRF_ORDER + 1):
            own, other = _ngrams(own_text, order), _ngrams(other_text, order)
            # N-grams longer than the reference count nowhere.
            own_counts[order - 1] += own.total() if other else 0
            other_counts[order - 1] += other.total()
            matched[order - 1] += (own & other).total()
    orders = [n for n in range(_CHRF_ORDER) if own_counts[n] and other_counts[n]]
    if not orders:
        return 0.0
    precision = sum(matched[n] / own_counts[n] for n in orders) / len(orders)
    recall = sum(matched[n] / other_counts[n] for n in orders) / len(orders)
    weighted = _CHRF_BETA**2 * precision + recall
    return 100 * (1 + _CHRF_BETA**2) * precision * recall / weighted if weighted else 0.0


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))

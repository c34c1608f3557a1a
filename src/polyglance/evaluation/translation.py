"""BLEU and chrF of translations, equal to sacrebleu's, without installing it.

BLEU (Papineni et al. 2002) with one reference, case-sensitive, WMT's tokenizer 13a, or
sacrebleu's ``zh`` for Chinese and single characters for other languages without spaces;
exponential smoothing. chrF (Popović 2015) with character n-grams up to 6 and beta 2, spaces left
out. Both over a whole corpus, from 0 to 100.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyglance.errors import PolyglanceError
from polyglance.languages import is_spaceless, normalise_language

_ORDER, _CHRF_ORDER, _CHRF_BETA = 4, 6, 2.0
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_PUNCTUATION = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),
    # Not inside numbers: 1,000.5
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
_CHINESE = re.compile(
    # As sacrebleu: ideographs, radicals, strokes, wide forms, and all from U+2001 to U+2A6D.
    "([\u2001-\u2a6d\u2e80-\u303f\u3100-\u312f\u31a0-\u31bf\u31c0-\u31ef\u3200-\u4db5\u4e00-\u9fbb"
    "\uf900-\ufa2d\ufa30-\ufa6a\ufa70-\ufad9\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uffef])"
)


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
    name = bleu_tokenizer(language)
    split = _TOKENIZERS[name]
    return TranslationScores(
        bleu([split(text) for text in translations], [split(text) for text in references]),
        chrf(translations, references),
        len(references),
        name,
    )


def bleu_tokenizer(language: str) -> str:
    """Return the name of the tokenizer that BLEU uses for a language."""
    if normalise_language(language) == "zh":
        return "zh"
    return "char" if is_spaceless(language) else "13a"


def bleu(translations: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Return corpus BLEU of texts split into words."""
    matched, counted = [0] * _ORDER, [0] * _ORDER
    for words, reference in zip(translations, references, strict=True):
        for order in range(1, _ORDER + 1):
            own, other = _ngrams(words, order), _ngrams(reference, order)
            matched[order - 1] += (own & other).total()
            counted[order - 1] += own.total()
    length, expected = sum(map(len, translations)), sum(map(len, references))
    if not any(matched) or not all(counted):
        return 0.0
    logs, smoothing = 0.0, 1.0
    for hits, total in zip(matched, counted, strict=True):
        if not hits:
            smoothing *= 2
        logs += math.log(hits / total if hits else 1 / (smoothing * total))
    brevity = 1.0 if length >= expected else math.exp(1 - expected / length)
    return 100 * brevity * math.exp(logs / _ORDER)


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


def _ngrams(items: Sequence[str] | str, order: int) -> Counter[tuple[str, ...] | str]:
    starts = range(len(items) - order + 1)
    if isinstance(items, str):
        return Counter(items[start : start + order] for start in starts)
    return Counter(tuple(items[start : start + order]) for start in starts)


def _split_13a(text: str) -> list[str]:
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return _split_punctuation(f" {text} ")


def _split_zh(text: str) -> list[str]:
    return _split_punctuation(_CHINESE.sub(r" \1 ", text.strip()))


def _split_punctuation(text: str) -> list[str]:
    for pattern, replacement in _PUNCTUATION:
        text = pattern.sub(replacement, text)
    return text.split()


def _split_characters(text: str) -> list[str]:
    return list("".join(text.split()))


_TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "13a": _split_13a,
    "zh": _split_zh,
    "char": _split_characters,
}

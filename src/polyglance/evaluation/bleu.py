"""BLEU (Papineni et al. 2002), equal to sacrebleu's, without installing it.

Case-sensitive, n-grams up to 4, exponential smoothing, of several references the one that is
closest in length. Words are split by WMT's tokenizer 13a; Chinese by sacrebleu's ``zh``; other
languages without spaces into characters. MeCab, for Japanese and Korean answers, and ``intl`` are
sacrebleu's own, and need it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.languages import is_spaceless, normalise_language
from polyglance.version import __version__

_ORDER = 4
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
_MECAB = {"ja": "ja-mecab", "ko": "ko-mecab"}


class MissingTokenizerError(PolyglanceError):
    """A language's BLEU needs a program that is not installed."""


@dataclass(frozen=True, slots=True)
class BleuResult:
    """Corpus BLEU and the signature that makes it comparable."""

    score: float
    tokenizer: str
    signature: str


def corpus_bleu(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "en",
    tokenizer: str | None = None,
) -> BleuResult:
    """Return corpus BLEU, from 0 to 100.

    Args:
        predictions: Texts by a machine.
        references: One or more right texts for each.
        language: Selects the tokenizer: ``zh`` for Chinese, MeCab for Japanese and Korean,
            characters for other languages without spaces, WMT's 13a for the rest.
        tokenizer: Another one: 13a, zh, char, none, intl, ja-mecab or ko-mecab.
    """
    _check(predictions, references)
    name = tokenizer or answer_tokenizer(language)
    split = _tokenizer(name)
    counts = sum(
        (_Counts.of(split(text), map(split, own)) for text, own in _pairs(predictions, references)),
        _Counts(),
    )
    numbers = {len(own) for own in references}
    nrefs = str(numbers.pop()) if len(numbers) == 1 else "var"
    signature = f"nrefs:{nrefs}|case:mixed|eff:no|tok:{name}|smooth:exp|polyglance:{__version__}"
    return BleuResult(counts.score(), name, signature)


def sentence_bleu(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "en",
    tokenizer: str | None = None,
) -> float:
    """Return the mean sentence BLEU, by the longest n-grams that each prediction has.

    Corpus BLEU of answers in one or two words is zero, for lack of 4-grams. This is UC2's
    "soft mapping score" between answers.

    Args:
        predictions: Texts by a machine.
        references: One or more right texts for each.
        language: Selects the tokenizer, as in `corpus_bleu`.
        tokenizer: Another one.
    """
    _check(predictions, references)
    split = _tokenizer(tokenizer or answer_tokenizer(language))
    scores = [
        _Counts.of(split(text), map(split, own)).score(effective_order=True)
        for text, own in _pairs(predictions, references)
    ]
    return sum(scores) / len(scores)


def answer_tokenizer(language: str) -> str:
    """Return the tokenizer of answers in a language."""
    return _MECAB.get(_base(language)) or plain_tokenizer(language)


def plain_tokenizer(language: str) -> str:
    """Return the tokenizer of a language that needs no MeCab."""
    code = _base(language)
    if code in ("zh", "yue"):
        return "zh"
    return "char" if is_spaceless(code) else "13a"


def _base(language: str) -> str:
    return normalise_language(language).split("-")[0]


@dataclass(frozen=True)
class _Counts:
    """Matched and all n-grams by length, and the lengths of texts and references."""

    matched: tuple[int, ...] = (0,) * _ORDER
    counted: tuple[int, ...] = (0,) * _ORDER
    length: int = 0
    expected: int = 0

    @classmethod
    def of(cls, words: Sequence[str], references: Iterable[Sequence[str]]) -> _Counts:
        """Count one text; an n-gram may match as often as in the reference that has most."""
        own, known = _ngrams(words), Counter[tuple[str, ...]]()
        lengths = []
        for reference in references:
            known |= _ngrams(reference)
            lengths.append(len(reference))
        matched, counted = [0] * _ORDER, [0] * _ORDER
        for ngram, count in own.items():
            counted[len(ngram) - 1] += count
            matched[len(ngram) - 1] += min(count, known[ngram])
        closest = min(lengths, key=lambda length: (abs(length - len(words)), length))
        return cls(tuple(matched), tuple(counted), len(words), closest)

    def __add__(self, other: _Counts) -> _Counts:
        return _Counts(
            tuple(map(sum, zip(self.matched, other.matched, strict=True))),
            tuple(map(sum, zip(self.counted, other.counted, strict=True))),
            self.length + other.length,
            self.expected + other.expected,
        )

    def score(self, *, effective_order: bool = False) -> float:
        """Return BLEU; with ``effective_order`` by the n-grams that there are, else by all 4."""
        orders = sum(1 for count in self.counted if count)
        if not any(self.matched) or (orders < _ORDER and not effective_order):
            return 0.0
        logs, smoothing = 0.0, 1.0
        for hits, total in zip(self.matched[:orders], self.counted[:orders], strict=True):
            if not hits:
                smoothing *= 2
            logs += math.log(hits / total if hits else 1 / (smoothing * total))
        brevity = math.exp(min(0.0, 1 - self.expected / self.length))
        return 100 * brevity * math.exp(logs / orders)


def _ngrams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + order])
        for order in range(1, _ORDER + 1)
        for start in range(len(words) - order + 1)
    )


def _pairs(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> Iterable[tuple[str, Sequence[str]]]:
    return zip(predictions, references, strict=True)


def _check(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(predictions) != len(references):
        raise PolyglanceError(
            f"{len(predictions)} predictions do not match {len(references)} sets of references"
        )
    if not predictions:
        raise PolyglanceError("there are no predictions to evaluate")
    if not all(references):
        raise PolyglanceError("BLEU needs at least one reference for each prediction")


def _split_13a(text: str) -> list[str]:
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
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


Tokenizer = Callable[[str], list[str]]
_OWN: dict[str, Tokenizer] = {
    "13a": _split_13a,
    "zh": _split_zh,
    "char": _split_characters,
    "none": str.split,
}
_OF_SACREBLEU = ("intl", "ja-mecab", "ko-mecab")
"""Those of its tokenizers that work offline and that we do not have."""


def _tokenizer(name: str) -> Tokenizer:
    """Return a tokenizer, or raise an error that names what is missing."""
    if name in _OWN:
        return _OWN[name]
    if name not in _OF_SACREBLEU:
        raise PolyglanceError(
            f"BLEU has no tokenizer {name!r} that works offline; "
            f"choose one of {', '.join((*_OWN, *_OF_SACREBLEU))}"
        )
    split = _sacrebleu_tokenizer(name)
    return lambda text: split(text.rstrip()).split()


@cache
def _sacrebleu_tokenizer(name: str) -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise MissingExtraError(f"BLEU with the tokenizer {name}", "evaluate") from None
    try:
        return BLEU(tokenize=name).tokenizer
    except (RuntimeError, ImportError):
        raise MissingTokenizerError(
            f"BLEU with the tokenizer {name} needs MeCab: pip install"
            f" 'sacrebleu[{name[:2]}]', or choose the tokenizer 'char'"
        ) from None

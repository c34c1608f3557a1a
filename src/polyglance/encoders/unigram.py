"""XLM-R's tokenizer for queries: quick to open, and it gives the ids of the original.

The ``tokenizers`` library makes a trie of all 250,002 pieces, which takes most of a
second, before it cuts the first sentence. A dictionary is there at once, and does:
no piece is longer than 16 characters, and words come again. Normalisation and the
cutting into words are the library's own.
"""

from __future__ import annotations

from functools import lru_cache

from polyglance.encoders.vocabulary import Vocabulary
from polyglance.text.huggingface import whole
from polyglance.weights.unigram import BOS, EOS, MASK, SPECIALS, UNK, xlmr_tokenizer

_UNKNOWN_PENALTY = 10.0
"""By how much a character that no piece has is less likely than the unlikeliest piece."""
_WORDS_KEPT = 2**16


class UnigramTokenizer:
    """Text to places in the table of words.

    A special that somebody types, such as ``</s>``, is text like any other.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        specials = (*SPECIALS, MASK)
        rules = xlmr_tokenizer([(name, 0.0) for name in specials], vocabulary.charsmap or None)
        self._normaliser, self._words = rules.normalizer, rules.pre_tokenizer
        self._numbers = dict(zip(vocabulary.pieces, range(len(vocabulary.pieces)), strict=True))
        for name in specials:
            self._numbers.pop(name, None)
        self._scores = vocabulary.scores.tolist()
        self._places = vocabulary.order.tolist()
        self._longest = max(map(len, self._numbers), default=1)
        self._unknown = min(self._scores) - _UNKNOWN_PENALTY
        self._before, self._after, self._unk = (SPECIALS.index(name) for name in (BOS, EOS, UNK))
        self._pieces_of = lru_cache(_WORDS_KEPT)(self._likeliest_cut)

    def encode(self, text: str, longest: int, language: str | None = None) -> list[int]:
        """The places of a text's pieces between ``<s>`` and ``</s>``, cut at ``longest``.

        All languages share the pieces: ``language`` changes nothing.
        """
        text = whole(text)
        if self._normaliser is not None:
            text = self._normaliser.normalize_str(text)
        numbers: list[int] = []
        for word, _ in self._words.pre_tokenize_str(text):
            if len(numbers) > longest:
                break
            numbers += self._pieces_of(word)
        numbers = [self._before, *numbers[: longest - 2], self._after]
        return [self._places[number] for number in numbers]

    def _likeliest_cut(self, word: str) -> list[int]:
        """The pieces of the likeliest cut of a word (Viterbi 1967; Kudo 2018, section 3.2).

        Characters that no piece has are unknown; neighbours among them are one.
        """
        best = [0.0] + [-1e300] * len(word)
        back = [(0, self._unk)] * (len(word) + 1)
        for start in range(len(word)):
            alone = False
            for end in range(start + 1, min(start + self._longest, len(word)) + 1):
                number = self._numbers.get(word[start:end])
                if number is not None:
                    alone = alone or end == start + 1
                    score = best[start] + self._scores[number]
                    if score > best[end]:
                        best[end], back[end] = score, (start, number)
            if not alone and best[start] + self._unknown > best[start + 1]:
                best[start + 1] = best[start] + self._unknown
                back[start + 1] = (start, self._unk)
        numbers: list[int] = []
        end = len(word)
        while end:
            end, number = back[end]
            if not (number == self._unk and numbers and numbers[-1] == self._unk):
                numbers.append(number)
        return numbers[::-1]

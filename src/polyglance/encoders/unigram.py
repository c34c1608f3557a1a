"""XLM-R's tokenizer, fast to open, with the ids of the original.

The ``tokenizers`` library builds a trie of all 250,002 pieces, which takes most of a second,
before it tokenises the first sentence. A dict opens at once and is fast enough: no piece is
longer than 16 characters, and words recur. Normalisation and pre-tokenisation are the
library's own.
"""

from __future__ import annotations

from functools import lru_cache

from polyglance.encoders.vocabulary import Vocabulary
from polyglance.text.huggingface import replace_lone_surrogates
from polyglance.text.tokenizer import Encoding
from polyglance.weights.unigram import BOS, EOS, MASK, SPECIALS, UNK, xlmr_tokenizer

_UNKNOWN_PENALTY = 10.0
"""Log-probability of an unknown character, below that of the least likely piece."""
_CACHED_WORDS = 2**16


class UnigramTokenizer:
    """Tokenises text to rows of the embedding table.

    A special token in the text, such as ``</s>``, is tokenised like any other text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        specials = (*SPECIALS, MASK)
        rules = xlmr_tokenizer([(name, 0.0) for name in specials], vocabulary.charsmap or None)
        self._normaliser, self._pre_tokenizer = rules.normalizer, rules.pre_tokenizer
        self._piece_ids = dict(zip(vocabulary.pieces, range(len(vocabulary.pieces)), strict=True))
        for name in specials:
            self._piece_ids.pop(name, None)
        self._scores = vocabulary.scores.tolist()
        self._rows = vocabulary.order.tolist()
        self._max_piece = max(map(len, self._piece_ids), default=1)
        self._unknown_score = min(self._scores) - _UNKNOWN_PENALTY
        self._bos, self._eos, self._unk = (SPECIALS.index(name) for name in (BOS, EOS, UNK))
        self._segment_cached = lru_cache(_CACHED_WORDS)(self._segment)

    def __reduce__(self) -> tuple[type[UnigramTokenizer], tuple[Vocabulary]]:
        # A cache cannot be pickled, and the tables are rebuilt faster than they are copied.
        return UnigramTokenizer, (self._vocabulary,)

    def encode(self, text: str, max_length: int, language: str | None = None) -> list[int]:
        """Return the rows of ``<s>``, a text's pieces and ``</s>``.

        Args:
            text: Any text.
            max_length: Maximum number of rows; longer texts are truncated.
            language: Ignored; all languages share the pieces.
        """
        ids: list[int] = []
        for word in self._split(text):
            if len(ids) > max_length:
                break
            ids += self._segment_cached(word)
        ids = [self._bos, *ids[: max_length - 2], self._eos]
        return [self._rows[piece] for piece in ids]

    def encode_with_spans(self, text: str, max_length: int) -> tuple[str, Encoding]:
        """Return a text after normalisation, and the rows of `encode` with their spans in it."""
        text = self._normalise(text)
        ids, spans = [self._bos], [(0, 0)]
        for word, (_, end) in self._pre_tokenizer.pre_tokenize_str(text):
            begin = end - len(word)  # before the text where a space is only understood
            for piece, first, last in self._best_path(word):
                ids.append(piece)
                spans.append((max(0, begin + first), begin + last))
        ids = [*ids[: max_length - 1], self._eos]
        spans = [*spans[: len(ids) - 1], (0, 0)]
        pieces = self._vocabulary.pieces
        tokens = [pieces[piece] for piece in ids]
        return text, Encoding([self._rows[piece] for piece in ids], tokens, spans)

    def surprisal(self, text: str) -> float:
        """Return the negative log-likelihood of a text's pieces, in nats per byte of UTF-8.

        Per byte scripts are alike: about 2.4 for captions in any of them, and 4 for random
        letters.
        """
        nats, num_bytes = 0.0, 0
        for word in self._split(text):
            for piece in self._segment_cached(word):
                nats -= self._unknown_score if piece == self._unk else self._scores[piece]
            num_bytes += len(word[1:].encode()) + 1  # each begins with a mark for the space
        return nats / max(1, num_bytes)

    def _split(self, text: str) -> list[str]:
        """Return the words of a text, normalised."""
        words = self._pre_tokenizer.pre_tokenize_str(self._normalise(text))
        return [word for word, _ in words]

    def _normalise(self, text: str) -> str:
        text = replace_lone_surrogates(text)
        if self._normaliser is not None:
            text = self._normaliser.normalize_str(text)
        return text

    def _segment(self, word: str) -> list[int]:
        return [piece for piece, _, _ in self._best_path(word)]

    def _best_path(self, word: str) -> list[tuple[int, int, int]]:
        """Return the most likely pieces of a word (Viterbi 1967; Kudo 2018, section 3.2).

        Characters outside the vocabulary are unknown; adjacent ones become one piece. Each piece
        comes with its start and end in the word.
        """
        best = [0.0] + [-1e300] * len(word)
        back = [(0, self._unk)] * (len(word) + 1)
        for start in range(len(word)):
            has_single = False
            for end in range(start + 1, min(start + self._max_piece, len(word)) + 1):
                piece = self._piece_ids.get(word[start:end])
                if piece is not None:
                    has_single = has_single or end == start + 1
                    score = best[start] + self._scores[piece]
                    if score > best[end]:
                        best[end], back[end] = score, (start, piece)
            if not has_single and best[start] + self._unknown_score > best[start + 1]:
                best[start + 1] = best[start] + self._unknown_score
                back[start + 1] = (start, self._unk)
        pieces: list[tuple[int, int, int]] = []
        end = len(word)
        while end:
            start, piece = back[end]
            if piece == self._unk and pieces and pieces[-1][0] == self._unk:
                pieces[-1] = (piece, start, pieces[-1][2])
            else:
                pieces.append((piece, start, end))
            end = start
        return pieces[::-1]

"""Code-switching: replace words of a sentence by their translations, as M3P trains on.

Each word is replaced with probability beta by a translation into one of a set of
languages (Ni et al. 2021, section 3.1, "Multimodal Code-switched Stream"):

    switcher = CodeSwitcher({"de": german, "ja": japanese}, beta=0.5)
    switcher("A dog runs.", np.random.default_rng(1)).text    # A Hund runs.

`CodeSwitcher.prepare` looks up every word of a corpus once; drawing a code-switched
version of it is then a few array operations.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.languages import is_spaceless, normalise_language
from polyglance.text.dictionaries import Dictionary
from polyglance.text.english import strip_possessive
from polyglance.text.segment import Span, address_spans, word_spans
from polyglance.text.word_translation import look_up, match_case
from polyglance.utils.ragged import ragged_arange

MAX_WORD_PIECES = 8
"""Longest word of a language without spaces, in the pieces that `word_spans` yields."""

MAX_TRANSLATION_WORDS = 3
"""Longer dictionary entries explain a word instead of translating it."""

Integers = NDArray[np.int64]
Texts = NDArray[np.object_]
Rows = Sequence[int] | Integers


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replaced word: its position in the new text, its language, the original word."""

    start: int
    end: int
    language: str
    original: str


@dataclass(frozen=True, slots=True)
class CodeSwitchedText:
    """A text some of whose words were replaced by translations."""

    text: str
    replacements: tuple[Replacement, ...]


class CodeSwitcher:
    """Replaces words by translations into other languages.

    English words that a dictionary lacks are looked up in their base form. Words of
    languages without spaces are the longest that a dictionary has. Web and mail
    addresses are never changed.
    """

    def __init__(
        self,
        dictionaries: Mapping[str, Dictionary],
        *,
        beta: float = 0.5,
        source: str = "en",
        weights: Mapping[str, float] | None = None,
        rank_exponent: float = 2.0,
        one_per_sentence: bool = False,
        max_phrase_words: int = 1,
    ) -> None:
        """Set up the switcher.

        Args:
            dictionaries: One dictionary per target language.
            beta: Probability of replacing a word that some dictionary has.
            source: Language of the texts.
            weights: Sampling weight of each target language, among those that have the
                word; None draws evenly.
            rank_exponent: The k-th translation of a word is drawn with weight
                ``k ** -rank_exponent``: 0 is the paper's even choice, infinity always
                takes the first. `Dictionary.ranked` puts frequent translations first.
            one_per_sentence: Replace exactly one word per sentence, as M3P's published
                code does in pre-training, and ignore beta.
            max_phrase_words: Look up phrases of up to so many words as well.
        """
        if not 0 <= beta <= 1:
            raise PolyglanceError(f"beta is a probability between 0 and 1, not {beta}")
        if not rank_exponent >= 0:  # NaN is refused as well
            raise PolyglanceError(f"rank_exponent must be at least 0, not {rank_exponent}")
        if not dictionaries:
            raise PolyglanceError("code-switching needs a dictionary of at least one language")
        self.source = normalise_language(source)
        self.dictionaries = {normalise_language(name): d for name, d in dictionaries.items()}
        self.languages = tuple(self.dictionaries)
        self.beta = beta
        self.one_per_sentence = one_per_sentence
        self._rank_exponent = rank_exponent
        self._weights = [1.0 if weights is None else weights.get(n, 0.0) for n in self.languages]
        if not all(0 <= weight < np.inf for weight in self._weights) or not sum(self._weights):
            raise PolyglanceError(
                "language weights must be finite and at least 0, and one must be above 0"
            )
        self._max_phrase = max(
            max_phrase_words, MAX_WORD_PIECES if is_spaceless(self.source) else 1
        )

    def __call__(self, text: str, rng: np.random.Generator) -> CodeSwitchedText:
        """Return the text with some words replaced, and the replacements."""
        return self.prepare([text]).draw(rng)[0]

    def prepare(self, texts: Iterable[str]) -> PreparedTexts:
        """Split texts and look their words up, so that many versions can be drawn."""
        word_ids: dict[tuple[str, bool], int] = {}
        pieces: list[str] = []
        words: list[int] = []
        counts: list[int] = []
        for text in texts:
            done, num_before = 0, len(words)
            for start, end, begins_sentence in self._units(text):
                word = text[start:end]
                pieces += [text[done:start], word]
                words.append(word_ids.setdefault((word, begins_sentence), len(word_ids)))
                done = end
            pieces.append(text[done:])
            counts.append(len(words) - num_before)
        return PreparedTexts(self, pieces, counts, words, self._candidates(word_ids))

    def translations(self, word: str, language: str) -> tuple[str, ...]:
        """Return a word's translations into a language, of its base form if need be.

        Explanations are left out, and phrases come after single words.
        """
        entries = look_up(word, self.dictionaries[language], self.source)
        return tuple(sorted(filter(is_translation, entries), key=lambda text: " " in text))

    def _candidates(self, words: Iterable[tuple[str, bool]]) -> _Candidates:
        """Return the translations of each word, capitalised as its position demands."""
        texts: list[str] = []
        languages: list[int] = []
        weights: list[float] = []
        ends: list[int] = []
        for word, begins_sentence in words:
            for number, language in enumerate(self.languages):
                entries = self.translations(word, language)
                shares = np.arange(1.0, len(entries) + 1) ** -self._rank_exponent
                entries = entries[: np.count_nonzero(shares)] if self._weights[number] else ()
                texts += [
                    match_case(entry, word, begins_sentence=begins_sentence) for entry in entries
                ]
                languages += [number] * len(entries)
                weights += (self._weights[number] * shares / shares.sum())[: len(entries)].tolist()
            ends.append(len(texts))
        return _Candidates(
            np.array(texts, object), np.array(languages, np.int64),
            np.concatenate([[0.0], np.cumsum(weights)]), np.array([0, *ends], np.int64),
        )  # fmt: skip

    def _units(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Yield start and end of each word or known phrase, and if it begins a sentence."""
        addresses = address_spans(text)
        spans = [
            (start, end)
            for start, end in word_spans(text, self.source)
            if not any(start < last and first < end for first, last in addresses)
        ]
        at = done = 0
        while at < len(spans):
            length = self._unit_length(text, spans[at:])
            start, end = spans[at][0], spans[at + length - 1][1]
            if self.source == "en":
                end = start + len(strip_possessive(text[start:end]))
            before = text[done:start].rstrip(" \n\"'“‘(")
            begins_sentence = at == 0 or before.endswith((".", "!", "?", "…", ":"))
            yield start, end, begins_sentence
            done, at = end, at + length

    def _unit_length(self, text: str, spans: Sequence[Span]) -> int:
        """Return how many spans the longest word or phrase here covers that a dictionary has."""
        hyphenated = _run_length(text, spans, ("-",), len(spans))
        longest = max(hyphenated, _run_length(text, spans, ("", " "), self._max_phrase))
        for length in range(longest, 1, -1):
            phrase = text[spans[0][0] : spans[length - 1][1]]
            if any(self.translations(phrase, language) for language in self.languages):
                return length
        # A single letter is not a word of its own, as the t of t-shirt.
        return hyphenated if any(end - start == 1 for start, end in spans[:hyphenated]) else 1


def _run_length(text: str, spans: Sequence[Span], gaps: Sequence[str], max_spans: int) -> int:
    """Return how many spans, from the first on, are separated by one of these gaps."""
    count = 1
    while (
        count < min(len(spans), max_spans) and text[spans[count - 1][1] : spans[count][0]] in gaps
    ):
        count += 1
    return count


@dataclass(frozen=True)
class _Candidates:
    """The possible replacements of all words, concatenated."""

    texts: Texts
    languages: Integers
    """The language index of each candidate."""
    cumulative_weights: NDArray[np.float64]
    """The sum of the weights before each candidate."""
    offsets: Integers
    """The first candidate of each word; a word's candidates end where the next word's begin."""

    def exist(self, words: Integers) -> NDArray[np.bool_]:
        """Return whether each word has a candidate of positive weight."""
        low = self.cumulative_weights[self.offsets[words]]
        high = self.cumulative_weights[self.offsets[words + 1]]
        return np.asarray(low < high)

    def draw(self, words: Integers, rng: np.random.Generator) -> Integers:
        """Draw a candidate for each word; every word must have one."""
        first, end = self.offsets[words], self.offsets[words + 1]
        low, high = self.cumulative_weights[first], self.cumulative_weights[end]
        points = low + rng.random(len(words)) * (high - low)
        candidates = np.searchsorted(self.cumulative_weights, points, side="right") - 1
        return np.clip(candidates, first, end - 1)


class PreparedTexts:
    """Texts whose words have been looked up; each draw replaces other ones.

    Gaps and words are concatenated: gap, word, gap for a text of one word.
    """

    def __init__(
        self,
        switcher: CodeSwitcher,
        pieces: Sequence[str],
        counts: Sequence[int],
        words: Sequence[int],
        candidates: _Candidates,
    ) -> None:
        self._switcher = switcher
        self._pieces = np.array(pieces, object)
        self._words = np.array(words, np.int64)
        self._candidates = candidates
        self._num_words = np.array(counts, np.int64)
        self._first_word = np.cumsum(self._num_words) - self._num_words
        spaceless = (is_spaceless(language) for language in switcher.languages)
        self._spaceless = np.array([*spaceless, is_spaceless(switcher.source)])  # -1 is the source

    def __len__(self) -> int:
        return len(self._num_words)

    @property
    def coverage(self) -> float:
        """The share of words that some dictionary has."""
        return float(self._candidates.exist(self._words).mean()) if len(self._words) else 0.0

    def draw_texts(self, rng: np.random.Generator, rows: Rows | None = None) -> list[str]:
        """Draw a code-switched version of the texts at these rows (None: all)."""
        pieces, bounds, _ = self._draw(rng, rows)
        return ["".join(pieces[start:end]) for start, end in pairwise(bounds)]

    def draw(self, rng: np.random.Generator, rows: Rows | None = None) -> list[CodeSwitchedText]:
        """Do as `draw_texts`, and return the replacements too."""
        pieces, bounds, replaced = self._draw(rng, rows)
        results = []
        for start, end in pairwise(bounds):
            ends = list(accumulate(map(len, pieces[start:end]), initial=0))
            replacements = [
                Replacement(ends[at - start], ends[at - start + 1], *replaced[at])
                for at in range(start + 1, end, 2)
                if at in replaced
            ]
            results.append(CodeSwitchedText("".join(pieces[start:end]), tuple(replacements)))
        return results

    def _draw(
        self, rng: np.random.Generator, rows: Rows | None
    ) -> tuple[list[str], list[int], dict[int, tuple[str, str]]]:
        """Return pieces, the bounds of each text among them, and the language and original
        word of each replaced piece."""
        chosen = np.arange(len(self)) if rows is None else np.asarray(rows, np.int64)
        count = self._num_words[chosen]
        text_of = np.repeat(np.arange(len(chosen)), count)
        words = ragged_arange(self._first_word[chosen], count)
        pieces = self._pieces[ragged_arange(2 * self._first_word[chosen] + chosen, 2 * count + 1)]
        place = 2 * np.arange(len(words)) + text_of + 1

        is_drawn = self._is_drawn(self._words[words], count, rng)
        choice = self._candidates.draw(self._words[words[is_drawn]], rng)
        original = pieces[place[is_drawn]]
        pieces[place[is_drawn]] = self._candidates.texts[choice]
        language = np.full(len(words), -1)
        language[is_drawn] = self._candidates.languages[choice]
        self._insert_spaces(pieces, place, language, text_of)

        names = [self._switcher.languages[number] for number in language[is_drawn]]
        replaced = zip(place[is_drawn].tolist(), zip(names, original, strict=True), strict=True)
        bounds = np.concatenate([[0], np.cumsum(2 * count + 1)])
        return pieces.tolist(), bounds.tolist(), dict(replaced)

    def _is_drawn(
        self, words: Integers, count: Integers, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Draw which words are replaced: each with probability beta, or one per text."""
        scores = np.where(self._candidates.exist(words), rng.random(len(words)), 2.0)
        if not self._switcher.one_per_sentence:
            return np.asarray(scores < self._switcher.beta)
        starts = (np.cumsum(count) - count)[count > 0]
        lowest = np.minimum.reduceat(scores, starts) if len(starts) else scores
        return np.asarray((scores < 1) & (scores == np.repeat(lowest, count[count > 0])))

    def _insert_spaces(
        self, pieces: Texts, place: Integers, language: Integers, text_of: Integers
    ) -> None:
        """Separate adjacent words by a space where one is now of a language with spaces."""
        is_adjacent = (text_of[1:] == text_of[:-1]) & (pieces[place[:-1] + 1] == "")
        is_new = (language[1:] >= 0) | (language[:-1] >= 0)
        spaceless = self._spaceless[language]
        needs_space = is_adjacent & is_new & ~(spaceless[1:] & spaceless[:-1])
        pieces[place[:-1][needs_space] + 1] = " "


def is_translation(text: str) -> bool:
    """Return whether a dictionary entry is a word or short phrase, not an explanation or sign.

    Elided forms that need a following word, such as the French *quelqu'*, are not.
    """
    return (
        text.count(" ") < MAX_TRANSLATION_WORDS
        and not text.endswith(("'", "’"))
        and all(map(_is_word_character, text))
    )


@cache
def _is_word_character(character: str) -> bool:
    return (
        character in " -'’·"
        or unicodedata.category(character)[0] in "LMN"
        or (unicodedata.category(character) == "Cf")
    )

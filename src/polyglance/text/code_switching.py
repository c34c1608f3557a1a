"""Code-switching: words of a sentence replaced by their translations, as M3P trains on.

Each word is replaced with probability beta by a translation into one of a set of
languages (Ni et al. 2021, section 3.1, "Multimodal Code-switched Stream"):

    switcher = CodeSwitcher({"de": german, "ja": japanese}, beta=0.5)
    switcher("A dog runs.", np.random.default_rng(1)).text    # A Hund runs.

A sentence is cut once and drawn many times: `CodeSwitcher.prepare` looks up
every word of a corpus, after which a draw is a few operations on arrays.
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
from polyglance.text.segment import Replacement, address_spans, word_spans
from polyglance.text.word_translation import look_up, match_case
from polyglance.utils.ragged import ragged_arange

LONGEST_WORD = 8
"""Of a language without spaces, in the pieces that its script is cut into."""

LONGEST_TRANSLATION = 3
"""Words; what is longer explains a word instead of translating it."""

Integers = NDArray[np.int64]
Texts = NDArray[np.object_]
Rows = Sequence[int] | Integers


@dataclass(frozen=True, slots=True)
class Replacement:
    """A word that was replaced: where it lies in the new text, its language, what it was."""

    start: int
    end: int
    language: str
    original: str


@dataclass(frozen=True, slots=True)
class CodeSwitchedText:
    """A text of which some words are in other languages."""

    text: str
    replacements: tuple[Replacement, ...]


class CodeSwitcher:
    """Replaces words by translations into other languages.

    ``beta`` is how often a word is replaced that some dictionary knows; its
    language is drawn among those that know it, evenly or by ``weights``. Of
    several translations the k-th is drawn with a weight of k to the power of
    minus ``preference``: 0 is the paper's even choice, infinity always the
    first. `Dictionary.ranked` puts the common ones first. With
    ``one_a_sentence``, as M3P's published code pre-trains, one word of each
    sentence is replaced instead, whatever beta.

    English words that a dictionary lacks are looked up in their base form.
    Words of languages without spaces are the longest that a dictionary knows;
    with ``longest`` above 1, phrases of so many words are looked up in others too.
    Addresses of the web and of mail stay as they are.
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
        if not 0 <= beta <= 1:
            raise PolyglanceError(f"beta is a probability between 0 and 1, not {beta}")
        if not rank_exponent >= 0:  # NaN is refused as well
            raise PolyglanceError(
                f"the preference for first translations is at least 0, not {rank_exponent}"
            )
        if not dictionaries:
            raise PolyglanceError("code-switching needs a dictionary of one language at least")
        self.source = normalise_language(source)
        self.dictionaries = {normalise_language(name): d for name, d in dictionaries.items()}
        self.languages = tuple(self.dictionaries)
        self.beta = beta
        self.one_per_sentence = one_per_sentence
        self._preference = rank_exponent
        self._weights = [1.0 if weights is None else weights.get(n, 0.0) for n in self.languages]
        if not all(0 <= weight < np.inf for weight in self._weights) or not sum(self._weights):
            raise PolyglanceError(
                "the weights of languages are finite and at least 0, and above 0 for one of them"
            )
        self._longest = max(max_phrase_words, LONGEST_WORD if is_spaceless(self.source) else 1)

    def __call__(self, text: str, rng: np.random.Generator) -> CodeSwitchedText:
        """The text with some of its words switched, and which."""
        return self.prepare([text]).draw(rng)[0]

    def prepare(self, texts: Iterable[str]) -> PreparedTexts:
        """Cut texts and look their words up, to be drawn from as often as one likes."""
        forms: dict[tuple[str, bool], int] = {}
        pieces: list[str] = []
        numbers: list[int] = []
        counts: list[int] = []
        for text in texts:
            done, before = 0, len(numbers)
            for start, end, begins in self._units(text):
                word = text[start:end]
                pieces += [text[done:start], word]
                numbers.append(forms.setdefault((word, begins), len(forms)))
                done = end
            pieces.append(text[done:])
            counts.append(len(numbers) - before)
        return PreparedTexts(self, pieces, counts, numbers, self._choices(forms))

    def translations(self, word: str, language: str) -> tuple[str, ...]:
        """What a word is in a language, by its base form if need be.

        Explanations are left out, and phrases come after words.
        """
        found = look_up(word, self.dictionaries[language], self.source)
        return tuple(sorted(filter(is_translation, found), key=lambda text: " " in text))

    def _choices(self, forms: Iterable[tuple[str, bool]]) -> _Choices:
        """What each word may become, in the capitals of its place."""
        texts: list[str] = []
        languages: list[int] = []
        weights: list[float] = []
        ends: list[int] = []
        for word, begins in forms:
            for number, language in enumerate(self.languages):
                found = self.translations(word, language)
                shares = np.arange(1.0, len(found) + 1) ** -self._preference
                found = found[: np.count_nonzero(shares)] if self._weights[number] else ()
                texts += [match_case(translation, word, begins=begins) for translation in found]
                languages += [number] * len(found)
                weights += (self._weights[number] * shares / shares.sum())[: len(found)].tolist()
            ends.append(len(texts))
        return _Choices(
            np.array(texts, object), np.array(languages, np.int64),
            np.concatenate([[0.0], np.cumsum(weights)]), np.array([0, *ends], np.int64),
        )  # fmt: skip

    def _units(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Start and end of each word or known phrase, and whether it begins a sentence."""
        kept = address_spans(text)
        cuts = [
            (start, end)
            for start, end in word_spans(text, self.source)
            if not any(start < last and first < end for first, last in kept)
        ]
        at = done = 0
        while at < len(cuts):
            taken = self._taken(text, cuts[at:])
            start, end = cuts[at][0], cuts[at + taken - 1][1]
            if self.source == "en":
                end = start + len(strip_possessive(text[start:end]))
            before = text[done:start].rstrip(" \n\"'“‘(")
            begins = at == 0 or before.endswith((".", "!", "?", "…", ":"))
            yield start, end, begins
            done, at = end, at + taken

    def _taken(self, text: str, cuts: Sequence[Replacement]) -> int:
        """How many pieces the longest word or phrase here takes that a dictionary knows."""
        hyphened = _run(text, cuts, ("-",), len(cuts))
        together = max(hyphened, _run(text, cuts, ("", " "), self._longest))
        for taken in range(together, 1, -1):
            phrase = text[cuts[0][0] : cuts[taken - 1][1]]
            if any(self.translations(phrase, language) for language in self.languages):
                return taken
        # The t of a t-shirt is no word.
        return hyphened if any(end - start == 1 for start, end in cuts[:hyphened]) else 1


def _run(text: str, cuts: Sequence[Replacement], gaps: Sequence[str], most: int) -> int:
    """How many pieces from the first on have only such gaps between them."""
    count = 1
    while count < min(len(cuts), most) and text[cuts[count - 1][1] : cuts[count][0]] in gaps:
        count += 1
    return count


@dataclass(frozen=True)
class _Choices:
    """What words may become, word after word in flat tables."""

    texts: Texts
    languages: Integers
    """Of each choice, the number of its language."""
    total: NDArray[np.float64]
    """The sum of the weights before each choice."""
    first: Integers
    """Of each word its first choice; the next word's first is its end."""

    def known(self, words: Integers) -> NDArray[np.bool_]:
        """Whether there is anything that these words may become."""
        found: NDArray[np.bool_] = self.total[self.first[words]] < self.total[self.first[words + 1]]
        return found

    def draw(self, words: Integers, rng: np.random.Generator) -> Integers:
        """A choice for each word that is known."""
        first, end = self.first[words], self.first[words + 1]
        low, high = self.total[first], self.total[end]
        aim = low + rng.random(len(words)) * (high - low)
        found = np.searchsorted(self.total, aim, side="right") - 1
        return np.clip(found, first, end - 1)


class PreparedTexts:
    """Texts whose words have been looked up; each draw switches other ones.

    Gaps and words lie end to end: gap, word, gap for a text of one word.
    """

    def __init__(
        self,
        switcher: CodeSwitcher,
        pieces: Sequence[str],
        counts: Sequence[int],
        words: Sequence[int],
        choices: _Choices,
    ) -> None:
        self._switcher = switcher
        self._pieces = np.array(pieces, object)
        self._words = np.array(words, np.int64)
        self._choices = choices
        self._count = np.array(counts, np.int64)
        self._first_word = np.cumsum(self._count) - self._count
        unspaced = (is_spaceless(language) for language in switcher.languages)
        self._unspaced = np.array([*unspaced, is_spaceless(switcher.source)])  # -1 is the source

    def __len__(self) -> int:
        return len(self._count)

    @property
    def coverage(self) -> float:
        """The share of words that some dictionary knows."""
        return float(self._choices.known(self._words).mean()) if len(self._words) else 0.0

    def draw_texts(self, rng: np.random.Generator, rows: Rows | None = None) -> list[str]:
        """The texts of these rows (or all), drawn anew."""
        pieces, bounds, _ = self._draw(rng, rows)
        return ["".join(pieces[start:end]) for start, end in pairwise(bounds)]

    def draw(self, rng: np.random.Generator, rows: Rows | None = None) -> list[CodeSwitchedText]:
        """The same with the words that were replaced."""
        pieces, bounds, replaced = self._draw(rng, rows)
        found = []
        for start, end in pairwise(bounds):
            ends = list(accumulate(map(len, pieces[start:end]), initial=0))
            spans = [
                Replacement(ends[at - start], ends[at - start + 1], *replaced[at])
                for at in range(start + 1, end, 2)
                if at in replaced
            ]
            found.append(CodeSwitchedText("".join(pieces[start:end]), tuple(spans)))
        return found

    def _draw(
        self, rng: np.random.Generator, rows: Rows | None
    ) -> tuple[list[str], list[int], dict[int, tuple[str, str]]]:
        """The pieces of texts, where each text begins and ends, and the language and the
        original of each piece that is not as it was."""
        chosen = np.arange(len(self)) if rows is None else np.asarray(rows, np.int64)
        count = self._count[chosen]
        owner = np.repeat(np.arange(len(chosen)), count)
        words = ragged_arange(self._first_word[chosen], count)
        pieces = self._pieces[ragged_arange(2 * self._first_word[chosen] + chosen, 2 * count + 1)]
        place = 2 * np.arange(len(words)) + owner + 1

        is_drawn = self._is_drawn(self._words[words], count, rng)
        choice = self._choices.draw(self._words[words[is_drawn]], rng)
        original = pieces[place[is_drawn]]
        pieces[place[is_drawn]] = self._choices.texts[choice]
        language = np.full(len(words), -1)
        language[is_drawn] = self._choices.languages[choice]
        self._space(pieces, place, language, owner)

        names = [self._switcher.languages[number] for number in language[is_drawn]]
        replaced = zip(place[is_drawn].tolist(), zip(names, original, strict=True), strict=True)
        bounds = np.concatenate([[0], np.cumsum(2 * count + 1)])
        return pieces.tolist(), bounds.tolist(), dict(replaced)

    def _is_drawn(
        self, words: Integers, count: Integers, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Which words are replaced: each with probability beta, or one a text."""
        aim = np.where(self._choices.known(words), rng.random(len(words)), 2.0)
        if not self._switcher.one_per_sentence:
            return np.asarray(aim < self._switcher.beta)
        starts = (np.cumsum(count) - count)[count > 0]
        least = np.minimum.reduceat(aim, starts) if len(starts) else aim
        return np.asarray((aim < 1) & (aim == np.repeat(least, count[count > 0])))

    def _space(self, pieces: Texts, place: Integers, language: Integers, owner: Integers) -> None:
        """Put spaces where words meet now that one of them is of a language with spaces."""
        meets = (owner[1:] == owner[:-1]) & (pieces[place[:-1] + 1] == "")
        is_new = (language[1:] >= 0) | (language[:-1] >= 0)
        is_unspaced = self._unspaced[language]
        apart = meets & is_new & ~(is_unspaced[1:] & is_unspaced[:-1])
        pieces[place[:-1][apart] + 1] = " "


def is_translation(text: str) -> bool:
    """Whether a dictionary's entry is a word or a short phrase, and no explanation or sign.

    Nor one that needs another after it, such as the French *quelqu'*.
    """
    return (
        text.count(" ") < LONGEST_TRANSLATION
        and not text.endswith(("'", "’"))
        and all(map(_is_spelling, text))
    )


@cache
def _is_spelling(character: str) -> bool:
    return (
        character in " -'’·"
        or unicodedata.category(character)[0] in "LMN"
        or (unicodedata.category(character) == "Cf")
    )

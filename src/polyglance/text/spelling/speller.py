"""Correct typing mistakes in queries, offline, from frequency lists.

Only words that the language's list and dictionary lack are corrected, by one edit: a letter left
out, added, replaced, or two neighbours swapped (Damerau 1964). Of all words of the list that are
one edit away the most probable is taken (a noisy channel: Kernighan, Church and Gale 1990). Words
typed without their accents, however many, get them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from polyglance.languages import normalise_language
from polyglance.text.scripts import marked_words, strip_marks
from polyglance.text.segment import UNSPACED, normalise_word, word_spans
from polyglance.text.spelling.guess import guess_language, rank_languages
from polyglance.text.spelling.word_lists import WordLists, shipped_word_lists

MIN_LENGTH = 5
"""Letters of a word in which any edit is tried; in shorter ones, only swapped neighbours."""
_MIN_SWAPPED = 3
"""Letters of the shortest word in which neighbours are swapped."""
_FIRST_LETTER_BITS = 3.0
"""What a mistake in the first letter costs: they are rare."""
_SWAP_BITS = -2.0
"""What a swap of neighbours costs, beside other edits: fast typists make many."""
MAX_BITS = 19.5
"""Rarer words are known and not suggested: some are typing mistakes of the lists' sources."""
_SUSPICIOUS_BITS = 11.0
"""How much more probable a word must be to replace a rare one of the list."""
_ALONE_BITS = 18.0
"""A word by itself is no mistake if it is more frequent than this in any language."""
_UNKNOWN_BITS = 28.0
"""What a word that no list has costs, when languages are compared."""
_UNLISTED_BITS = 20.0
"""The same in a language without a list, where most words are unknown."""
_EDIT_BITS = 10.0
"""What an edit costs, when languages are compared."""
_NUM_LANGUAGES = 4
"""Languages that are compared where the first is in doubt."""
_MIN_PART = 4
"""Letters of the shortest part of a compound."""
_COMPOUNDING = frozenset({"de", "nl", "sv", "da", "nb", "fi", "hu", "is"})
"""Languages in which words are joined to new ones, which no list has all of."""
_LINKS = ("", "s", "es", "n", "en", "e")
"""What joins the parts of a compound."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A query as it should probably read."""

    text: str
    language: str | None
    """The language by which it was corrected; None if it could not be guessed."""
    changes: tuple[tuple[str, str], ...] = ()
    """Words as typed and as corrected."""


class Speller:
    """Corrects queries in the languages of some word lists. Threads may share it."""

    def __init__(self, lists: WordLists) -> None:
        self._lists = lists
        self._alphabets: dict[str, str] = {}
        self._marked_words: dict[str, dict[str, str]] = {}

    def correct(self, text: str, language: str | None = None) -> Correction:
        """Correct unknown words.

        Args:
            text: A query.
            language: Its language. By default it is guessed: where typing mistakes leave few
                words to guess from, the language that explains the corrected text best.

        Returns:
            The corrected query; unchanged in a language without a list.
        """
        if language is not None:
            return self._correct(text, normalise_language(language))[0]
        codes = rank_languages(text, self._lists, _NUM_LANGUAGES)
        if not codes:
            return Correction(text, None)
        first, bits, unknown = self._correct(text, codes[0])
        if not first.changes and unknown * 2 < len(text):
            return first
        others = [self._correct(text, code)[:2] for code in {*codes[1:], "en"} - {codes[0]}]
        best = max([(first, bits), *others], key=lambda pair: (pair[1], pair[0].text))[0]
        if len(best.changes) == 1 and len(text.split()) == 1:
            # Too little to guess a language from: a word of any is no mistake.
            code = self._language_of(best.changes[0][0], codes)
            return best if code is None else Correction(text, code)
        return best

    def _language_of(self, typed: str, likely: Sequence[str]) -> str | None:
        """Return the language in which a word is most frequent; None where it is rare in all.

        Args:
            typed: The word.
            likely: Languages whose dictionaries count, too. They are no exact sets: of all
                languages together, they would have some typing mistakes.
        """
        found = dict[str, float]()
        for code in self._lists.languages:
            word = normalise_word(typed, code)
            own = self._lists.find(word, code)
            if own is None and code in likely and word in self._lists.known(code):
                found[code] = -_UNKNOWN_BITS
            elif own is not None and own > -_ALONE_BITS:
                found[code] = own
        return max(found, key=lambda code: (found[code], code), default=None)

    def _correct(self, text: str, code: str) -> tuple[Correction, float, int]:
        """Correct in a language; also return log2 of the text's probability, and the number of
        letters in words that were unknown."""
        if code in UNSPACED:
            return Correction(text, code), 0.0, 0
        if not (words := self._lists.words(code)):
            own_words = [normalise_word(word, code) for word in text.split()]
            known = [self._lists.frequent.get(word, {}).get(code) for word in own_words]
            total = sum(-_UNLISTED_BITS if one is None else one for one in known)
            return Correction(text, code), total, sum(map(len, own_words))
        parts, changes = list[str](), list[tuple[str, str]]()
        end, total, unknown = 0, 0.0, 0
        for start, stop in word_spans(text, code):
            typed = text[start:stop]
            word = normalise_word(typed, code)
            own = words.get(word)
            before = -_UNKNOWN_BITS if own is None else own
            total += before
            if own is None and self._is_known(word, code):
                continue
            if own is not None and (own > -MAX_BITS or word in self._lists.known(code)):
                continue
            unknown += len(word) if own is None else 0
            marked = self._marked(code).get(strip_marks(word)) or self._marked(code).get(word)
            found = (marked, words[marked]) if marked else self._best(word, code)
            # A rare word of the list may be a mistake of its sources, if another is near.
            if found is not None and (own is None or found[1] > own + _SUSPICIOUS_BITS):
                best, bits = found
                parts += [text[end:start], fixed := _with_case(best, typed)]
                changes.append((typed, fixed))
                end, total = stop, total - before + bits - _EDIT_BITS
        corrected = "".join([*parts, text[end:]])
        return Correction(corrected, code, tuple(changes)), total, unknown

    def knows_rare_words(self, language: str | None) -> bool:
        """Return whether a language has a dictionary beside its list, so that few words that it
        lacks are spelled right."""
        return language is not None and bool(self._lists.known(normalise_language(language)))

    def known_share(self, text: str, language: str | None = None) -> float | None:
        """Return the share of a text's letters in known words; None without a list or words."""
        code = normalise_language(language) if language else guess_language(text, self._lists)
        if code is None or code in UNSPACED or not (words := self._lists.words(code)):
            return None
        known = total = 0
        for start, stop in word_spans(text, code):
            word = normalise_word(text[start:stop], code)
            total += len(word)
            known += len(word) if word in words or self._is_known(word, code) else 0
        return known / total if total else None

    def _is_known(self, word: str, language: str) -> bool:
        """Return whether a word is best left alone though the language's list lacks it."""
        if len(word) < _MIN_SWAPPED or not word.isalpha() or word in self._lists.known(language):
            return True
        if language != "en" and len(word) >= MIN_LENGTH and word in self._lists.words("en"):
            return True
        return language in _COMPOUNDING and self._is_compound(word, language)

    def _is_compound(self, word: str, language: str) -> bool:
        words = self._lists.words(language)
        for at in range(_MIN_PART, len(word) - _MIN_PART + 1):
            if word[at:] not in words:
                continue
            head = word[:at]
            for link in _LINKS:
                stem = head.removesuffix(link)
                if head.endswith(link) and len(stem) >= _MIN_PART and stem in words:
                    return True
        return False

    def _best(self, word: str, language: str) -> tuple[str, float] | None:
        """Return the most probable word one edit away, with log2 of its probability."""
        words, best, best_bits = self._lists.words(language), None, -MAX_BITS
        for candidate, cost in _edits(word, self._alphabet(language)):
            bits = words.get(candidate)
            if bits is not None and bits > -MAX_BITS and bits - cost > best_bits:
                best, best_bits = candidate, bits - cost
        return None if best is None else (best, best_bits)

    def _marked(self, language: str) -> dict[str, str]:
        """Return words with accents by how they are typed without."""
        if language not in self._marked_words:
            self._marked_words[language] = marked_words(self._lists.words(language), language)
        return self._marked_words[language]

    def _alphabet(self, language: str) -> str:
        """Return the letters of a language, rare foreign ones left out."""
        if language not in self._alphabets:
            counts = Counter(c for word in self._lists.words(language) for c in word if c.isalpha())
            floor = sum(counts.values()) / 20_000
            letters = "".join(c for c, count in counts.items() if count > floor)
            self._alphabets[language] = letters
        return self._alphabets[language]


@cache
def shipped_speller() -> Speller:
    """Return the speller of the lists that come with Polyglance."""
    return Speller(shipped_word_lists())


def _edits(word: str, alphabet: str) -> Iterator[tuple[str, float]]:
    """Yield the texts one edit away, with the cost of the edit in bits."""
    for at in range(len(word) - 1):
        if word[at] != word[at + 1]:
            yield word[:at] + word[at + 1] + word[at] + word[at + 2 :], _SWAP_BITS
    if len(word) < MIN_LENGTH:
        return
    for at in range(len(word) + 1):
        head, tail, cost = word[:at], word[at:], 0.0 if at else _FIRST_LETTER_BITS
        if tail:
            yield head + tail[1:], cost
        for letter in alphabet:
            yield head + letter + tail, cost
            if tail:
                yield head + letter + tail[1:], cost


def _with_case(word: str, typed: str) -> str:
    """Return a word with the capitals of the typed one."""
    if len(typed) > 1 and typed.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if typed[0].isupper() else word

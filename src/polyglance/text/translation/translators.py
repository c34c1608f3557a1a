"""Translating sentences: what a translator is, and those that are at hand."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from polyglance.errors import PolyglanceError
from polyglance.languages import get_language, is_language_code, normalise_language
from polyglance.text.dictionaries import Dictionary
from polyglance.text.word_translation import translate_words
from polyglance.utils.fingerprint import digest, digest_files

_WAY_OUT = "install the Debian package of the pair, for example apertium-eng-spa"

_MODES = Path("/usr/share/apertium/modes")


class Translator(Protocol):
    """Translates from one language to another."""

    source: str
    target: str

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Each text in the target language."""
        ...


class CacheableTranslator(Translator, Protocol):
    """A translator whose work can be kept, since it says what it is."""

    batch_size: int
    """How many texts it takes best at once."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides on its translations, beside the two languages."""


class Apertium:
    """Rule-based translation by Apertium as Debian installs it: about 1,000 captions a second."""

    name = "apertium"
    batch_size = 1000

    def __init__(self, source: str = "en", target: str = "es") -> None:
        self.source, self.target = normalise_language(source), normalise_language(target)
        if shutil.which("apertium") is None:
            raise PolyglanceError(f"apertium is not installed: {_WAY_OUT}")
        listed = subprocess.run(["apertium", "-l"], capture_output=True, text=True, check=False)
        pairs = {_languages(pair): pair for pair in reversed(listed.stdout.split())}
        pair = pairs.get((self.source, self.target))
        if pair is None:
            names = [get_language(code).english_name for code in (self.source, self.target)]
            raise PolyglanceError(f"apertium has no {names[0]} to {names[1]}: {_WAY_OUT}")
        self._pair = pair

    @cached_property
    def fingerprint(self) -> str:
        """Of the program's version, and of the rules and dictionaries of the pair."""
        version = subprocess.run(["apertium", "-V"], capture_output=True, text=True, check=False)
        mode = _MODES / f"{self._pair}.mode"
        rules = mode.read_text(encoding="utf-8") if mode.is_file() else ""
        files = [Path(name) for name in re.findall(r"'(/[^']+)'", rules)]
        known = digest_files(path for path in files if path.is_file())
        return digest("apertium", version.stdout, self._pair, rules, known)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Each text in the target language; words that Apertium lacks stay as they are."""
        lines = "".join(" ".join(text.split()) + "\n" for text in texts)
        done = subprocess.run(
            ["apertium", "-u", self._pair],
            input=lines, capture_output=True, text=True, check=False,
        )  # fmt: skip
        found = done.stdout.split("\n")[: len(texts)]
        if done.returncode or len(found) < len(texts):
            raise PolyglanceError(
                f"apertium {self._pair} ended early: {done.stderr.strip() or 'no reason given'}"
            )
        return [" ".join(line.split()) for line in found]


class WordByWord:
    """A dictionary as a translator: each word as its first translation, in the same order."""

    name = "words"
    batch_size = 1000

    def __init__(
        self,
        dictionary: Dictionary,
        source: str,
        target: str,
        *,
        max_phrase_words: int = 1,
        keep_unknown: bool = False,
    ) -> None:
        """``longest`` and ``keep_unknown`` are those of `gloss`."""
        self.dictionary, self.max_phrase_words, self.keep_unknown = (
            dictionary,
            max_phrase_words,
            keep_unknown,
        )
        self.source, self.target = normalise_language(source), normalise_language(target)

    @cached_property
    def fingerprint(self) -> str:
        """Of the dictionary's words and translations, and how they are put to use."""
        pairs = (f"{word}\t{translation}" for word, translation in self.dictionary.pairs())
        return digest("words by base forms", self.max_phrase_words, self.keep_unknown, *pairs)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Each text word by word; an empty one where the dictionary has nothing of it."""
        glosses = [
            translate_words(
                text, self.dictionary, self.source,
                target=self.target, max_phrase_words=self.max_phrase_words, keep_unknown=self.keep_unknown,
            )
            for text in texts
        ]  # fmt: skip
        # Where all words are left out, a full stop may stay.
        return [found if any(map(str.isalnum, found)) else "" for found in glosses]


def _languages(pair: str) -> tuple[str, ...]:
    """The languages of a pair as Apertium names it; a regional variant is one of its own."""
    return tuple(
        normalise_language(code) if is_language_code(code) else code for code in pair.split("-")
    )

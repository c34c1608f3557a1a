"""The translator protocol, and translators without a model: Apertium and word by word."""

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

_HINT = "install the Debian package of the pair, for example apertium-eng-spa"

_MODES_FOLDER = Path("/usr/share/apertium/modes")


class Translator(Protocol):
    """Translates from one language to another."""

    source: str
    target: str

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate each text into the target language."""
        ...


class CacheableTranslator(Translator, Protocol):
    """A translator whose output can be cached, since it has a fingerprint."""

    batch_size: int
    """Texts per call at which it is fastest."""

    @property
    def name(self) -> str:
        """Readable name."""

    @property
    def fingerprint(self) -> str:
        """Hash of everything that decides on its output, except the two languages."""


class Apertium:
    """Rule-based translation by Apertium as Debian installs it: about 1,000 captions a second."""

    name = "apertium"
    batch_size = 1000

    def __init__(self, source: str = "en", target: str = "es") -> None:
        self.source, self.target = normalise_language(source), normalise_language(target)
        if shutil.which("apertium") is None:
            raise PolyglanceError(f"apertium is not installed: {_HINT}")
        listed = subprocess.run(["apertium", "-l"], capture_output=True, text=True, check=False)
        pairs = {_languages(pair): pair for pair in reversed(listed.stdout.split())}
        pair = pairs.get((self.source, self.target))
        if pair is None:
            names = [get_language(code).english_name for code in (self.source, self.target)]
            raise PolyglanceError(f"apertium has no {names[0]} to {names[1]}: {_HINT}")
        self._pair = pair

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the program's version and of the pair's rules and dictionaries."""
        version = subprocess.run(["apertium", "-V"], capture_output=True, text=True, check=False)
        mode = _MODES_FOLDER / f"{self._pair}.mode"
        rules = mode.read_text(encoding="utf-8") if mode.is_file() else ""
        files = [Path(name) for name in re.findall(r"'(/[^']+)'", rules)]
        files_digest = digest_files(path for path in files if path.is_file())
        return digest("apertium", version.stdout, self._pair, rules, files_digest)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate each text; words that Apertium lacks stay as they are."""
        lines = "".join(" ".join(text.split()) + "\n" for text in texts)
        process = subprocess.run(
            ["apertium", "-u", self._pair],
            input=lines, capture_output=True, text=True, check=False,
        )  # fmt: skip
        lines_out = process.stdout.split("\n")[: len(texts)]
        if process.returncode or len(lines_out) < len(texts):
            raise PolyglanceError(
                f"apertium {self._pair} ended early: {process.stderr.strip() or 'no reason given'}"
            )
        return [" ".join(line.split()) for line in lines_out]


class WordByWord:
    """Translates word by word with a dictionary, by `translate_words`."""

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
        """Set up; ``max_phrase_words`` and ``keep_unknown`` are those of `translate_words`."""
        self.dictionary, self.max_phrase_words, self.keep_unknown = (
            dictionary,
            max_phrase_words,
            keep_unknown,
        )
        self.source, self.target = normalise_language(source), normalise_language(target)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the dictionary and the options."""
        pairs = (f"{word}\t{translation}" for word, translation in self.dictionary.pairs())
        return digest("words by base forms", self.max_phrase_words, self.keep_unknown, *pairs)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate each text; one without any known word becomes empty."""
        translations = [
            translate_words(
                text, self.dictionary, self.source,
                target=self.target, max_phrase_words=self.max_phrase_words,
                keep_unknown=self.keep_unknown,
            )
            for text in texts
        ]  # fmt: skip
        # Where all words were dropped, punctuation may be left.
        return [text if any(map(str.isalnum, text)) else "" for text in translations]


def _languages(pair: str) -> tuple[str, ...]:
    """Return the languages of an Apertium pair; a regional variant counts as a language."""
    return tuple(
        normalise_language(code) if is_language_code(code) else code for code in pair.split("-")
    )

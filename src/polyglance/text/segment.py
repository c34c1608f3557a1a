"""Word segmentation of text in any script.

Scripts with spaces are split at spaces and punctuation. Others are split by character
class: Chinese into characters, Japanese into runs of kanji, hiragana and katakana, Thai
and Lao into clusters of a consonant with its vowels and tones. Dictionary-based
segmenters (jieba for Chinese, MeCab with UniDic for Japanese) are the extra ``segment``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

from polyglance.errors import MissingExtraError, PolyglanceError

Span = tuple[int, int]
"""Start and end of a word or token in a text, in characters."""

UNSPACED = frozenset({"zh", "yue", "wuu", "ja", "th", "lo"})
"""Languages whose words are joined without spaces; their scripts are split here."""

_ELIDING = frozenset({"fr", "it", "ca", "oc"})
"""Languages in which an apostrophe ends a word: l'homme, dell'arte."""

_DOTTED_I = frozenset({"tr", "az"})
"""Languages in which I is the capital of ı, and İ that of i."""

_APOSTROPHES = frozenset("'’ʼ＇")
_SPELLINGS = (("’", "'"), ("ʼ", "'"), ("\u0e4d\u0e32", "\u0e33"), ("\u0ecd\u0eb2", "\u0eb3"))
"""One apostrophe, and the Thai and Lao vowel am as one character, which NFKC decomposes."""
_ZERO_WIDTH_SPACE = "\u200b"
_JOINERS = frozenset("\u200c\u200d")
"""Zero-width (non-)joiners are part of a word's spelling in Persian and Indic scripts."""


_ADDRESS = re.compile(
    r"(?:\b(?:https?|ftp)://|\bwww\.)[^\s\u0e00-\u0eff\u3000-\u9fff\uff00-\uffef]+"
    r"|(?<![\w.+-])[a-z0-9_.+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)+"
    r"|(?<![\w.-])(?:[a-z0-9-]+\.)+(?:com|edu|gov|info|net|org)\b(?:/\S*)?",
    re.IGNORECASE | re.ASCII,
)
"""URLs, up to a space or a character of a script without spaces; mail addresses; bare domains."""


def word_spans(text: str, language: str, *, use_segmenter: bool = False) -> list[Span]:
    """Return start and end of each word; punctuation and symbols belong to none.

    Args:
        text: The text.
        language: Its language, by whose rules it is split.
        use_segmenter: Split Chinese or Japanese by a dictionary-based segmenter.
    """
    if use_segmenter:
        return list(_segmenter_spans(text, language))
    return list(_script_spans(text, language))


def address_spans(text: str) -> list[Span]:
    """Return start and end of each web and mail address."""
    return [match.span() for match in _ADDRESS.finditer(text)]


@lru_cache(maxsize=1 << 16)  # a corpus repeats its words
def normalise_word(word: str, language: str, *, lower: bool = True) -> str:
    """Return a word in NFKC without invisible characters, in lower case if ``lower``."""
    word = unicodedata.normalize("NFKC", word)
    if lower:
        if language in _DOTTED_I:
            word = word.replace("İ", "i").replace("I", "ı")
        # again NFKC, since a capital may have no composed small letter
        word = unicodedata.normalize("NFKC", word.lower())
    for odd, usual in _SPELLINGS:
        word = word.replace(odd, usual)
    return "".join(c for c in word if c in _JOINERS or unicodedata.category(c) != "Cf")


def _script_spans(text: str, language: str) -> Iterator[Span]:
    start = 0
    previous = ""  # character class of the current word, "" for none
    for at, character in enumerate(text):
        kind = _kind(character)
        if previous and kind == "apostrophe":
            # within a word if a letter follows; ends a French word
            if previous == "letter" and at + 1 < len(text) and _kind(text[at + 1]) == "letter":
                if language in _ELIDING:
                    yield start, at + 1
                    previous = ""
                continue
        elif previous and (kind == "mark" or _continues(previous, kind, language)):
            previous = previous if kind == "mark" else kind
            continue
        if previous:
            yield start, at
        start, previous = at, "" if kind in ("other", "mark", "apostrophe") else kind
    if previous:
        yield start, len(text)


def _continues(previous: str, kind: str, language: str) -> bool:
    """Return whether a character of this class continues the word before it."""
    if kind == "han":
        return previous == "han" and language == "ja"
    if kind == "southeast":
        return previous == "southeast lead"  # a vowel written before its consonant
    if kind == "southeast tail":
        return previous.startswith("southeast")
    return kind == previous and kind in ("letter", "hiragana", "katakana")


@cache
def _kind(character: str) -> str:
    """Return the character class by which words are split."""
    if character in _APOSTROPHES:
        return "apostrophe"
    if character == _ZERO_WIDTH_SPACE:
        return "other"
    category = unicodedata.category(character)
    if category[0] == "M" or category == "Cf" or character in "ーｰ":
        return "mark"
    code = ord(character)
    if character in "々〇" or unicodedata.name(character, "").startswith("CJK "):
        return "han" if category[0] in "LN" else "other"
    if 0x3041 <= code <= 0x309F:
        return "hiragana" if category[0] == "L" else "other"
    if 0x30A1 <= code <= 0x30FF or 0x31F0 <= code <= 0x31FF or 0xFF66 <= code <= 0xFF9F:
        return "katakana" if category[0] == "L" else "other"
    if 0x0E00 <= code <= 0x0EFF and category[0] == "L":  # Thai and Lao, alike in layout
        return _southeast_kind(code & ~0x80)
    return "letter" if category[0] in "LN" else "other"


def _southeast_kind(thai: int) -> str:
    if 0x0E40 <= thai <= 0x0E44:  # vowels written before the consonant
        return "southeast lead"
    if thai in (0x0E30, 0x0E32, 0x0E33, 0x0E45, 0x0E46):  # vowels after it, repetition
        return "southeast tail"
    return "southeast"


def _segmenter_spans(text: str, language: str) -> Iterator[Span]:
    segmenter = _SEGMENTERS.get(language)
    if segmenter is None:
        raise PolyglanceError(
            f"there is no word segmenter for {language!r}, only for "
            f"{' and '.join(_SEGMENTERS)}: split by script instead"
        )
    at = 0
    for word in segmenter()(text):
        start = text.index(word, at)
        at = start + len(word)
        if any(_kind(character) != "other" for character in word):
            yield start, at


@cache
def _jieba() -> Callable[[str], list[str]]:
    if find_spec("jieba") is None:
        raise MissingExtraError("segmenting Chinese into words", "segment")
    import logging
    import warnings

    with warnings.catch_warnings():  # jieba uses deprecated syntax
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.WARNING)
    split: Callable[[str], list[str]] = jieba.lcut
    return split


@cache
def _mecab() -> Callable[[str], list[str]]:
    if find_spec("fugashi") is None or find_spec("unidic_lite") is None:
        raise MissingExtraError("segmenting Japanese into words", "segment")
    import fugashi

    tagger: Any = fugashi.Tagger()
    return lambda text: [word.surface for word in tagger(text)]


_SEGMENTERS: dict[str, Callable[[], Callable[[str], list[str]]]] = {"zh": _jieba, "ja": _mecab}

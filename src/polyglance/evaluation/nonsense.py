"""Queries that nobody means: random letters and words, runs over a keyboard, shuffled letters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyglance.text.spelling import shipped_word_lists

LETTERS = {
    "Latin": "abcdefghijklmnopqrstuvwxyz",
    "Cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "Greek": "αβγδεζηθικλμνξοπρστυφχψω",
    "Hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "Devanagari": "अआइईउऊकखगघचछजझटठडढतथदधनपफबभमयरलवशसह",
    "kana": "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれ",
    "Hangul": "".join(map(chr, range(0xAC00, 0xD7A4, 29))),
    "Han": "".join(map(chr, range(0x4E00, 0x9FA6, 31))),
    "digits": "0123456789",
}
"""Letters of each script."""
_SYLLABIC = frozenset({"Hangul", "Han"})
"""Scripts whose words are short."""
ROWS = (
    "qwertyuiop", "asdfghjkl", "zxcvbnm", "qwertzuiop", "yxcvbnm", "azertyuiop", "qsdfghjklm",
    "йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю", "ضصثقفغعهخحج", "شسيبلاتنمك",
)  # fmt: skip
"""Rows of keyboards."""
_WORD_LANGUAGES = ("en", "de", "fr", "cs", "pt", "ar")
_MIN_LETTERS, _FREQUENT_BITS, _RARE_BITS = 3, 12.0, 18.0
"""Random words are longer, and neither the most frequent nor rare."""


def nonsense_queries(
    count: int, texts: Sequence[str], generator: np.random.Generator
) -> list[tuple[str, str]]:
    """Make queries without meaning.

    Args:
        count: How many.
        texts: Texts in which words are separated by spaces, whose letters are shuffled.
        generator: Source of randomness.

    Returns:
        The queries, each with its kind: the name of a script, ``keyboard`` or ``shuffled``.
    """
    scripts = [*["Latin"] * 6, *LETTERS]
    made = []
    for number in range(count):
        if number % 5 == 3:
            made.append((_keyboard_run(generator), "keyboard"))
        elif number % 5 == 4 and texts:
            made.append(
                (_shuffled(texts[int(generator.integers(len(texts)))], generator), "shuffled")
            )
        else:
            script = scripts[generator.integers(len(scripts))]
            words = generator.choice([1, 1, 1, 2, 3, 4])
            text = " ".join(_random_word(script, generator) for _ in range(words))
            made.append((text, script))
    return made


def random_words(count: int, generator: np.random.Generator) -> list[tuple[str, str]]:
    """Make queries of one to five words that have nothing to do with each other.

    Args:
        count: How many.
        generator: Source of randomness.

    Returns:
        The queries, each with its language.
    """
    lists = shipped_word_lists()
    common = {
        code: sorted(
            word
            for word, bits in lists.words(code).items()
            if len(word) > _MIN_LETTERS and -_RARE_BITS < bits < -_FREQUENT_BITS
        )
        for code in _WORD_LANGUAGES
    }
    made = []
    for number in range(count):
        code = _WORD_LANGUAGES[number % len(_WORD_LANGUAGES)]
        chosen = generator.integers(len(common[code]), size=generator.choice([1, 2, 3, 5]))
        made.append((" ".join(common[code][at] for at in chosen), code))
    return made


def _random_word(script: str, generator: np.random.Generator) -> str:
    low, high = (2, 6) if script in _SYLLABIC else (4, 11)
    letters = LETTERS[script]
    return "".join(
        letters[at] for at in generator.integers(len(letters), size=generator.integers(low, high))
    )


def _keyboard_run(generator: np.random.Generator) -> str:
    row = ROWS[generator.integers(len(ROWS))]
    start = generator.integers(0, len(row) - 4)
    text = row[start : start + generator.integers(4, 11)]
    if generator.random() < 0.4:
        text += ROWS[generator.integers(len(ROWS))][: generator.integers(3, 9)]
    return text[::-1] if generator.random() < 0.2 else text


def _shuffled(text: str, generator: np.random.Generator) -> str:
    words = text.split()[: generator.choice([1, 2, 4, 8])]
    return " ".join("".join(generator.permutation(list(word))) for word in words)

"""Texts in many languages and scripts, and with odd characters, to compare tokenizers on."""

from __future__ import annotations

import numpy as np

from helpers.sentences import SENTENCES
from polyglance.demo.queries import QUERIES
from polyglance.vision.labels import LABEL_LANGUAGES, label_names

_SCRIPTS = (
    (0x21, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x531, 0x58A),
    (0x591, 0x5F5), (0x600, 0x700), (0x900, 0x980), (0x981, 0xA00), (0xB82, 0xC00), (0xE01, 0xE5C),
    (0x10A0, 0x1100), (0x1100, 0x1200), (0x1200, 0x137D), (0x1780, 0x17EA), (0x1E00, 0x2000),
    (0x2000, 0x2100), (0x2100, 0x2500), (0x2600, 0x2800), (0x3000, 0x3100), (0x3200, 0x3400),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xF900, 0xFB50), (0xFB50, 0xFE00), (0xFE30, 0x10000),
    (0x1D400, 0x1D800), (0x1F1E6, 0x1F200), (0x1F300, 0x1F700), (0x20000, 0x20100),
)  # fmt: skip
"""Ranges of code points: scripts, combining marks, compatibility characters and emoji."""
_ODD = (
    "", " ", "  two  spaces ", "\ttab\nline\r\n", "a\u200bb", "no\u00a0break", "ﬁne ﬂow",
    "１２３ＡＢＣ", "e\u0301te\u0301", "ｶﾞｷﾞ", "㍿ ㎏", "👨‍👩‍👧‍👦 👍🏽 🇩🇪", "▁under▁",
    "नमस्ते क्षत्रिय", "ក្រុង",
    "\u202eright to left", "\ufeffmark", "...!?…", "x" * 300, "don't stop—now", "ΐ Ὦ ǅ", "\x00\x07",
)  # fmt: skip


def many_texts(*, random: int = 500, seed: int = 0) -> list[str]:
    """Return sentences in ten languages, names of classes in more, and random strings."""
    texts = [text for one in SENTENCES.values() for text in one]
    texts += [query.text for query in QUERIES]
    for language in LABEL_LANGUAGES:
        texts += [", ".join(names) for names in label_names(language)[::15]]
    generator = np.random.default_rng(seed)
    for _ in range(random):
        words = []
        for _ in range(int(generator.integers(1, 7))):
            low, high = _SCRIPTS[int(generator.integers(len(_SCRIPTS)))]
            codes = generator.integers(low, high, int(generator.integers(1, 9)))
            words.append("".join(chr(code) for code in codes))
        texts.append("".join(generator.choice([" ", "", "  ", "-"]) + word for word in words))
    return [*texts, *_ODD]

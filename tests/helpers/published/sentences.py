"""Made-up sentences and features for tiny published datasets."""

from __future__ import annotations

import numpy as np

_WORDS = {
    "en": "red green blue dog cat ball runs jumps sleeps fast",
    "de": "rot grün blau Hund Katze Ball läuft springt schläft schnell",
    "fr": "rouge vert bleu chien chat balle court saute dort vite",
    "cs": "červený zelený modrý pes kočka míč běží skáče spí rychle",
    "zh": "红 绿 蓝 狗 猫 球 跑 跳 睡 快",
    "ru": "красный зелёный синий пёс кот мяч бежит прыгает спит быстро",
    "es": "rojo verde azul perro gato pelota corre salta duerme rápido",
    "sw": "nyekundu kijani bluu mbwa paka mpira anakimbia anaruka analala haraka",
    "vi": "đỏ lục lam chó mèo bóng chạy nhảy ngủ nhanh",
}
WORDS = {language: tuple(words.split()) for language, words in _WORDS.items()}
"""The same ten words in nine languages."""


def sentence(language: str, number: int) -> str:
    """Return a sentence of three words; equal numbers give translations of each other."""
    words = WORDS[language]
    return " ".join(
        words[place] for place in (number % 3, 3 + number // 3 % 3, 6 + number // 9 % 4)
    )


def all_sentences() -> list[str]:
    """Return sentences that have all words, to train a tokenizer on."""
    return [sentence(language, number) for language in WORDS for number in range(36)]


def rows(name: str, count: int, width: int) -> np.ndarray:
    """Return features that depend on a name alone, ``(count, width)``."""
    seed = [ord(character) for character in name]
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)

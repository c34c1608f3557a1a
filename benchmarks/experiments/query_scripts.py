"""One word in several scripts: what `polyglance.text.scripts` and the speller's accents are worth.

Names of COCO's classes in the usual script of a language, and in another that people type: kana
for kanji, traditional for simplified Chinese, Cyrillic for Latin Serbian, Latin for Cyrillic
Uzbek, Arabic with vowel signs, Greek, Czech, German and Vietnamese without accents. Reported is the
mean average precision over pictures with COCO's labels that the model was not trained on: of the
usual script, of the other as it is, and of the other as search converts it.

Called by `query_robustness`, whose results it is a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from polyglance.encoders import Encoder
from polyglance.encoders.protocol import Vectors
from polyglance.evaluation.calibration_data import LabelledPicture
from polyglance.evaluation.word_search import average_precision
from polyglance.search.query_syntax import parse_query
from polyglance.text.scripts import strip_marks
from polyglance.text.scripts.cyrillic import cyrillic_letters
from polyglance.text.scripts.han import traditional_characters
from polyglance.text.scripts.kana import readings
from polyglance.vision.labels import label_languages, label_names, object_names

SERBIAN = {
    "person": "ljudi", "dog": "pas", "cat": "mačka", "horse": "konj", "bicycle": "bicikl",
    "motorcycle": "motocikl", "car": "automobil", "bus": "autobus", "train": "voz",
    "truck": "kamion", "boat": "čamac", "airplane": "avion", "bird": "ptica", "cow": "krava",
    "sheep": "ovca", "elephant": "slon", "bear": "medved", "giraffe": "žirafa",
    "umbrella": "kišobran", "cake": "torta", "banana": "banane", "apple": "jabuka",
    "bed": "krevet", "chair": "stolica", "clock": "sat", "book": "knjiga", "tv": "televizor",
    "refrigerator": "frižider", "vase": "vaza", "skis": "skije", "bench": "klupa",
}  # fmt: skip
UZBEK = {
    "dog": "it", "cat": "mushuk", "horse": "ot", "bicycle": "velosiped", "car": "mashina",
    "bus": "avtobus", "train": "poyezd", "truck": "yuk mashinasi", "boat": "qayiq",
    "airplane": "samolyot", "bird": "qush", "cow": "sigir", "sheep": "qoʻy", "elephant": "fil",
    "bear": "ayiq", "umbrella": "soyabon", "book": "kitob", "clock": "soat", "chair": "stul",
}  # fmt: skip
VOWELLED = {
    "dog": "كَلْب", "cat": "قِطَّة", "horse": "حِصَان", "car": "سَيَّارَة", "boat": "قَارِب",
    "airplane": "طَائِرَة", "train": "قِطَار", "bicycle": "دَرَّاجَة", "bird": "طَائِر",
    "elephant": "فِيل", "cow": "بَقَرَة", "bear": "دُبّ", "chair": "كُرْسِيّ", "clock": "سَاعَة",
}  # fmt: skip
_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})

Pair = tuple[str, str, str]
"""A class, its name in the usual script, and in the other."""


def script_pairs() -> dict[str, tuple[str, list[Pair]]]:
    """Return by name the language and the words of each comparison."""
    names = read_names()
    kana = {word: reading for reading, word in readings().items()}
    table = traditional_characters()
    vowels = [
        (label, "".join(c for c in word if not "\u064b" <= c <= "\u0652"), word)
        for label, word in VOWELLED.items()
    ]
    return {
        "hiragana": ("ja", _pairs(names["ja"], lambda word: kana.get(word, word))),
        "katakana": ("ja", _pairs(names["ja"], lambda word: _katakana(kana.get(word, word)))),
        "traditional Chinese": (
            "zh",
            _pairs(names["zh"], lambda word: word.translate(table)),
        ),
        "Cyrillic Serbian": ("sr", _pairs(SERBIAN, lambda word: cyrillic_letters(word, "sr"))),
        "Latin Uzbek": (
            "uz",
            [(label, cyrillic_letters(word, "uz"), word) for label, word in UZBEK.items()],
        ),
        "Arabic with vowel signs": ("ar", vowels),
        "Greek without accents": ("el", _pairs(names["el"], strip_marks)),
        "Czech without accents": ("cs", _pairs(names["cs"], strip_marks)),
        "German ae oe ue ss": ("de", _pairs(names["de"], _spell_out)),
        "Vietnamese without accents": ("vi", _pairs(names["vi"], strip_marks)),
    }


def read_names() -> dict[str, dict[str, str]]:
    """Return the first name of each class, by language and COCO's name."""
    labels = [name for name in object_names() if name is not None]
    return {
        code: {
            label: names[0] for label, names in zip(labels, label_names(code, "coco"), strict=True)
        }
        for code in label_languages("coco")
    }


def measure_scripts(
    encoder: Encoder,
    pictures: Sequence[LabelledPicture],
    vectors: Vectors,
    *,
    max_classes: int = 30,
    min_pictures: int = 20,
) -> dict[str, dict[str, float]]:
    """Return the mean average precision of words in both scripts, by comparison."""
    report = {}
    for name, (code, pairs) in script_pairs().items():
        own = [
            (np.array([label in picture.labels for picture in pictures]), usual, other)
            for label, usual, other in pairs
        ]
        chosen = [one for one in own if one[0].sum() >= min_pictures][:max_classes]
        versions = {
            "usual": [usual for _, usual, _ in chosen],
            "other": [other for _, _, other in chosen],
            "converted": [search_text(encoder, other, code) for _, _, other in chosen],
        }
        relevant = np.array([has for has, _, _ in chosen])
        report[name] = {"words": float(len(chosen))}
        for version, texts in versions.items():
            scores = encoder.encode_texts(texts) @ vectors.T
            report[name][version] = round(float(average_precision(scores, relevant).mean()), 4)
        print(name, report[name], flush=True)
    return report


def search_text(encoder: Encoder, text: str, language: str) -> str:
    """Return what search encodes for a query."""
    surprisal = getattr(encoder, "surprisal", None)
    return parse_query(text, language, surprisal=surprisal).text


def _pairs(words: Mapping[str, str], convert: Callable[[str], str]) -> list[Pair]:
    return list(_different((label, word, convert(word)) for label, word in words.items()))


def _different(pairs: Iterator[Pair]) -> Iterator[Pair]:
    return (pair for pair in pairs if pair[1].casefold() != pair[2].casefold())


def _katakana(text: str) -> str:
    return "".join(chr(ord(c) + 0x60) if "\u3041" <= c <= "\u3096" else c for c in text)


def _spell_out(word: str) -> str:
    return word.translate(_SPELLED_OUT)

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

from helpers.sentences import SENTENCES
from polyglance.data.toy import LANGUAGES, ToyDataset
from polyglance.errors import PolyglanceError
from polyglance.records import read_manifest
from polyglance.text.detection import LanguageDetector, detect_language
from polyglance.text.lexicon import Lexicon, texts_by_language

SEVEN = ("en", "de", "fr", "cs", "pt", "zh", "ar")


def test_known_words_score_by_frequency() -> None:
    detector = LanguageDetector(Lexicon({"en": {"dog": 3, "in": 1}, "de": {"in": 1, "hund": 1}}))
    scores = detector.scores("In in")
    assert scores["en"] == pytest.approx(2 * log(0.95 / 4))
    assert scores["de"] == pytest.approx(2 * log(0.95 / 2))
    assert detector("in") == "de"
    assert detector("Dog in") == "en"


def test_unknown_words_score_by_spelling() -> None:
    texts = {"de": ["schwarzer Hund", "schwimmen"], "fr": ["chien noir", "beaucoup d'oiseaux"]}
    lexicon = Lexicon.from_texts(texts)
    assert detect_language("schwer", lexicon) == "de"
    assert detect_language("beau", lexicon) == "fr"


def test_held_out_sentences_of_ten_languages() -> None:
    """Half of the test sentences, forty words a language, are enough for the other half."""
    lexicon = Lexicon.from_texts({code: texts[:5] for code, texts in SENTENCES.items()})
    held_out = [(code, text) for code, texts in SENTENCES.items() for text in texts[5:]]
    right = sum(detect_language(text, lexicon) == code for code, text in held_out)
    assert right / len(held_out) >= 0.9


def test_toy_dataset_languages_are_identified() -> None:
    pictures = list(ToyDataset(seed=3).pictures(60, "train"))
    texts = {
        code: [caption.text for picture in pictures for caption in picture.captions[code]]
        for code in LANGUAGES
    }
    lexicon = Lexicon.from_texts({code: own[:30] for code, own in texts.items()})
    for code, own in texts.items():
        assert all(detect_language(text, lexicon) == code for text in own[30:])


def test_text_without_words_gets_the_first_language() -> None:
    lexicon = Lexicon.from_texts(SENTENCES)
    assert detect_language("", lexicon) == detect_language("?!", lexicon) == lexicon.languages[0]
    with pytest.raises(PolyglanceError, match="needs a lexicon with words"):
        detect_language("dog", Lexicon({}))


@pytest.mark.real_data
def test_captions_of_seven_languages(real_data: Path) -> None:
    """Measured: all 200 captions a language right; of two words out of them 97 to 100 %."""
    folder = real_data / "flickr8k"
    known = texts_by_language(read_manifest(folder / "val.jsonl"), SEVEN)
    detector = LanguageDetector(
        Lexicon.from_texts({code: texts[:1000] for code, texts in known.items()})
    )
    test_texts = texts_by_language(read_manifest(folder / "test.jsonl"), SEVEN)
    for code, texts in test_texts.items():
        whole = [detector(text) == code for text in texts[:200]]
        assert sum(whole) / len(whole) >= 0.995, code
        short = [text[1:4] if code == "zh" else " ".join(text.split()[1:3]) for text in texts[:200]]
        assert sum(detector(text) == code for text in short) / len(short) >= 0.95, code

"""Translated queries with the shipped model and with a model of words."""

from __future__ import annotations

import numpy as np
import pytest

import polyglance
from helpers.small_mmp import cosines
from helpers.small_smalr import export, word_model
from polyglance.demo.photographs import FOLDER
from polyglance.encoders import Encoder
from polyglance.encoders.translated_queries import (
    average_scores,
    consistency_scores,
    scores_by_language,
    translate_queries,
)
from polyglance.errors import PolyglanceError
from polyglance.models.consistency import LearnedConsistency, learn_consistency
from polyglance.text.dictionaries import Dictionary
from polyglance.text.lexicon import Lexicon
from polyglance.text.translation.translators import WordByWord

# Basque, in which the shipped model has no training captions.
QUERIES = {
    "erle": ("bee", "Biene"),
    "tximeleta": ("butterfly", "Schmetterling"),
    "karramarro": ("crab", "Krabbe"),
    "sukalde": ("kitchen", "Küche"),
    "zubi": ("bridge", "Brücke"),
    "hondartza": ("beach", "Strand"),
    "behi": ("cow", "Kuh"),
    "ahate": ("duck", "Ente"),
    "hontza": ("owl", "Eule"),
    "zuhaitz": ("tree", "Baum"),
    "tximista": ("lightning", "Blitz"),
    "igerileku": ("pool", "Schwimmbad"),
    "kohete": ("rocket", "Rakete"),
    "zaldi": ("horse", "Pferd"),
    "ardi": ("sheep", "Schaf"),
}
TRANSLATORS = [
    WordByWord(Dictionary((word, t[n]) for word, t in QUERIES.items()), "eu", target)
    for n, target in enumerate(("en", "de"))
]
OWNERS = np.arange(len(QUERIES))


@pytest.fixture(scope="module")
def shipped() -> Encoder:
    return polyglance.load(threads=1)


@pytest.fixture(scope="module")
def pictures(shipped: Encoder) -> np.ndarray:
    files = [english for english, _ in QUERIES.values()]
    more = ["boats", "sushi", "iceberg"]
    return shipped.encode_pictures([FOLDER / f"{name}.webp" for name in files + more])


def ranks(scores: np.ndarray) -> np.ndarray:
    """The number of pictures ranked before the right one."""
    return (scores > scores[OWNERS, OWNERS]).sum(0)


def test_word_by_word_translation_improves_the_shipped_model(
    shipped: Encoder, pictures: np.ndarray
) -> None:
    queries = translate_queries(list(QUERIES), "eu", TRANSLATORS)
    assert queries["de"] == [german for _, german in QUERIES.values()]
    together = consistency_scores(shipped, queries, pictures)
    cosine = [pictures @ shipped.encode_texts(texts).T for texts in queries.values()]
    np.testing.assert_allclose(together, np.mean(cosine, axis=0), atol=1e-5)
    assert ranks(cosine[0]).mean() > 4
    assert ranks(together).mean() < 1.5


def test_a_learned_combination_is_used(shipped: Encoder, pictures: np.ndarray) -> None:
    queries = translate_queries(list(QUERIES), "eu", TRANSLATORS)
    scores = scores_by_language(shipped, queries, pictures)
    learned = learn_consistency(scores, OWNERS)
    together = consistency_scores(shipped, queries, pictures, combine=learned.combine)
    np.testing.assert_allclose(together, learned.combine(scores))
    trust = (learned.output.weight @ learned.languages.weight)[0].tolist()
    influence = [weight * np.std(own) for weight, own in zip(trust, scores, strict=True)]
    assert influence[0] < min(influence[1:])  # Basque, of which the model knows least
    assert ranks(together).mean() <= ranks(average_scores(scores)).mean()


LEXICON = Lexicon({"en": {"die": 3, "fish": 2, "dog": 2}, "de": {"die": 90, "hund": 4, "fisch": 1}})


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = tmp_path_factory.mktemp("words")
    return polyglance.load(export(word_model(folder / "run", lexicon=LEXICON), folder / "model"))


def test_a_model_of_words_receives_the_language(encoder: Encoder) -> None:
    """Of "die" it would take the German one, and of "qux" it knows no word in any language."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), dtype=np.uint8)
    pictures = encoder.encode_pictures(list(pixels))
    german = WordByWord(Dictionary([("fish", "Fisch"), ("dog", "Wauwau")]), "en", "de")
    queries = translate_queries(["die", "fish", "dog", "qux"], "en", [german])
    assert queries["de"] == ["", "Fisch", "Wauwau", ""]
    scores = scores_by_language(encoder, queries, pictures)
    english = encoder.encode_texts(["die", "fish", "dog"], language="en")
    fisch = encoder.encode_texts(["Fisch"], language="de")
    assert cosines(english[:1], encoder.encode_texts(["die"]))[0] < 0.99
    expected = np.full((2, 5, 4), np.nan)
    expected[0, :, :3] = pictures @ english.T
    expected[1, :, 1:2] = pictures @ fisch.T
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    together = consistency_scores(encoder, queries, pictures)
    np.testing.assert_allclose(together[:, [0, 2]], expected[0][:, [0, 2]], atol=1e-5)
    np.testing.assert_allclose(together[:, 1], expected[:, :, 1].mean(0), atol=1e-5)
    learned = LearnedConsistency(2)
    for combined in (
        together,
        consistency_scores(encoder, queries, pictures, combine=learned.combine),
    ):
        assert np.unique(combined[:, 3]).size == 1  # unknown in every language


def test_captions_of_a_dataset_need_no_translator(encoder: Encoder) -> None:
    queries = {"en": ["a dog", ""], "de": ["ein Hund", "der Fisch"]}
    pictures = np.eye(3, encoder.width, dtype=np.float32)
    combined = consistency_scores(encoder, queries, pictures)
    dog, hund = (
        encoder.encode_texts([text], language=code)[0]
        for code, text in (("en", "dog"), ("de", "Hund"))
    )
    np.testing.assert_allclose(combined[:, 0], (dog + hund)[:3] / 2, atol=1e-5)
    fisch = encoder.encode_texts(["Fisch"], language="de")[0]
    np.testing.assert_allclose(combined[:, 1], fisch[:3], atol=1e-5)


def test_invalid_queries_are_refused(encoder: Encoder) -> None:
    pictures = np.eye(3, encoder.width, dtype=np.float32)
    with pytest.raises(PolyglanceError, match="a translator from eu cannot translate texts in en"):
        translate_queries(["a dog"], "en", TRANSLATORS)
    with pytest.raises(PolyglanceError, match="two translators to de"):
        translate_queries(["erle"], "eu", [TRANSLATORS[1], TRANSLATORS[1]])
    with pytest.raises(PolyglanceError, match="as many queries"):
        consistency_scores(encoder, {"en": ["dog"], "de": []}, pictures)
    with pytest.raises(PolyglanceError, match="the model has no words of French"):
        consistency_scores(encoder, {"en": ["dog"], "fr": ["chien"]}, pictures)

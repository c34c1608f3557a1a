"""A model of words: languages given and detected, and no torch."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from helpers.sentences import SENTENCES
from helpers.small_mmp import cosines
from helpers.small_smalr import LANGUAGES, export, torch_words, word_model
from polyglance.demo.show import run_demo as run_demo
from polyglance.encoders import Encoder, load
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.errors import PolyglanceError
from polyglance.models.smalr_folder import SMALRFolder
from polyglance.search.gallery import Gallery
from polyglance.text.lexicon import Lexicon


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SMALRFolder:
    return word_model(tmp_path_factory.mktemp("run") / "words")


@pytest.fixture(scope="module")
def words_folder(model: SMALRFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(model, tmp_path_factory.mktemp("exported") / "model")


@pytest.fixture(scope="module")
def words_encoder(words_folder: Path) -> Encoder:
    """An encoder of words."""
    return load(words_folder, threads=1)


def in_torch(model: SMALRFolder, texts: list[str], language: str) -> np.ndarray:
    return torch_words(model, model.lexicon.encode_batch(texts, language))


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_vectors_agree_with_torch(
    words_encoder: Encoder, model: SMALRFolder, language: str
) -> None:
    """Arabic runs from right to left, Chinese and Japanese have no spaces; all lose words."""
    texts = SENTENCES[language]
    expected = in_torch(model, texts, language)
    tokenizer = model.lexicon.tokenizer(language)
    lost = [len(tokenizer.words(text)) - len(tokenizer.encode(text)) for text in texts]
    assert sum(lost) > 2
    given = words_encoder.encode_texts(texts, language=language)
    assert given.dtype == np.float32
    assert given.shape == (10, 16)
    assert cosines(given, expected).min() > 0.9999
    detected = words_encoder.encode_texts(texts)
    assert cosines(detected, expected).min() > 0.9999
    assert cosines(expected[:-1], expected[1:]).max() < 0.99


def test_languages_can_be_mixed_in_a_batch(words_encoder: Encoder, model: SMALRFolder) -> None:
    texts = [SENTENCES[code][number] for number in range(10) for code in LANGUAGES]
    expected = [in_torch(model, [text], LANGUAGES[n % 5]) for n, text in enumerate(texts)]
    assert cosines(words_encoder.encode_texts(texts), np.concatenate(expected)).min() > 0.9999


def test_each_language_has_its_own_words(tmp_path: Path) -> None:
    """The same spelling is a different word in each language."""
    shared = Lexicon({"en": {"die": 3, "fish": 2}, "de": {"die": 90, "katze": 4}})
    model = word_model(tmp_path / "run", lexicon=shared)
    words_encoder = load(export(model, tmp_path / "model"))
    english, german = (words_encoder.encode_texts(["die"], language=code) for code in ("en", "de"))
    assert cosines(english, german)[0] < 0.99
    assert cosines(english, in_torch(model, ["die"], "en"))[0] > 0.9999
    np.testing.assert_array_equal(words_encoder.encode_texts(["die"]), german)  # where it is common
    np.testing.assert_array_equal(
        words_encoder.encode_texts(["die Katze"]),
        words_encoder.encode_texts(["die Katze"], language="de"),
    )


def test_detection_falls_back_to_a_language_with_a_known_word(tmp_path: Path) -> None:
    """By letters the text is German; only English has a known word."""
    words = Lexicon({"en": {"zyx": 1, "a": 900}, "de": {"straße": 9, "straßen": 9, "graß": 5}})
    model = word_model(tmp_path / "run", lexicon=words)
    encoder = load(export(model, tmp_path / "model"))
    assert isinstance(encoder, OnnxEncoder)
    text = "zyx graßen straßens großen straß"
    detector = encoder._tokenizer._detector  # type: ignore[union-attr]
    assert detector(text) == "de"
    np.testing.assert_array_equal(
        encoder.encode_texts([text]), encoder.encode_texts(["zyx"], language="en")
    )


def test_unknown_words_are_left_out(words_encoder: Encoder, model: SMALRFolder) -> None:
    plain = words_encoder.encode_texts(["A black dog", "a BLACK dog!"], language="en")
    odd = words_encoder.encode_texts(["A blorp black … dog zzyzx"], language="en")
    np.testing.assert_allclose(plain[1:], plain[:1])
    np.testing.assert_array_equal(odd, plain[:1])


@pytest.mark.parametrize("language", [None, "zh"])
def test_texts_without_known_words_share_one_vector(
    words_encoder: Encoder, model: SMALRFolder, language: str | None
) -> None:
    texts = ["", " \n", "?!", "zzyzx qwrt", "🐕", "\ud800"]
    vectors = words_encoder.encode_texts([*texts, "一只狗"], language=language)
    assert cosines(vectors[:6], np.repeat(torch_words(model, [[]]), 6, 0)).min() > 0.9999
    assert cosines(vectors[5:6], vectors[6:])[0] < 0.99
    assert words_encoder.encode_texts([], language=language).shape == (0, 16)


def test_a_text_vector_does_not_depend_on_its_batch(words_encoder: Encoder) -> None:
    texts = [text for texts in SENTENCES.values() for text in texts]  # several batches
    together = words_encoder.encode_texts(texts)
    alone = np.concatenate([words_encoder.encode_texts([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_a_long_text_is_truncated(words_encoder: Encoder, model: SMALRFolder) -> None:
    text = " ".join(SENTENCES["en"])
    numbers = model.lexicon.encode(text, "en")
    assert len(numbers) > 20
    vectors = words_encoder.encode_texts([text], language="en")
    assert cosines(vectors, torch_words(model, [numbers[:20]]))[0] > 0.9999


@pytest.mark.parametrize("code", ["de-AT", "deu", "German", "DE"])
def test_language_codes_are_normalised(words_encoder: Encoder, code: str) -> None:
    expected = words_encoder.encode_texts(SENTENCES["de"], language="de")
    np.testing.assert_array_equal(
        words_encoder.encode_texts(SENTENCES["de"], language=code), expected
    )


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("cs", r"no words of Czech \(cs\), only of en, de, ar, zh, ja: search in one of these"),
        ("Klingon!", "a language is a code such as 'de' or 'yue', not 'Klingon!'"),
        (["en"], r"not \['en'\]"),
    ],
)
def test_an_unknown_language_is_refused(
    words_encoder: Encoder, language: str, message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        words_encoder.encode_texts(["a dog"], language=language)


def test_a_model_of_sub_words_ignores_the_language(encoder: Encoder) -> None:
    expected = encoder.encode_texts(["a dog", "ein Hund"])
    for language in ("en", "cs", "Klingon!"):
        vectors = encoder.encode_texts(["a dog", "ein Hund"], language=language)
        np.testing.assert_array_equal(vectors, expected)


def test_the_detector_is_built_when_first_needed(words_folder: Path) -> None:
    encoder = load(words_folder)
    assert isinstance(encoder, OnnxEncoder)
    encoder.encode_texts(["a dog"], language="en")
    assert "_detector" not in vars(encoder._tokenizer)
    encoder.encode_texts(["a dog"])
    assert "_detector" in vars(encoder._tokenizer)


def test_gallery_and_demo_work_with_a_model_of_words(
    words_encoder: Encoder, tmp_path: Path
) -> None:
    colours = ("red", "blue", "green")
    (tmp_path / "photos").mkdir()
    paths = [tmp_path / "photos" / f"{colour}.png" for colour in colours]
    for path, colour in zip(paths, colours, strict=True):
        Image.new("RGB", (30, 20), colour).save(path)
    gallery = Gallery.encode(paths, words_encoder, quiet=True)
    [query] = words_encoder.encode_texts(["ein schwarzer Hund"])
    assert len(gallery.search(query, 2)) == 2
    console = Console(file=io.StringIO(), width=100)
    words = ["a black dog", "一只狗", "quelque chose"]
    answers = run_demo(
        lambda: words_encoder, tmp_path / "out", console, folder=tmp_path / "photos", texts=words
    )
    assert [answer.query for answer in answers] == words
    assert (tmp_path / "out" / "sheet.html").is_file()


def test_a_model_of_words_works_without_torch(words_folder: Path, tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), "red").save(tmp_path / "red.png")
    script = """
import sys
heavy = ("torch", "onnx", "transformers", "safetensors", "sentencepiece", "jieba", "fugashi")
sys.modules.update(dict.fromkeys(heavy))  # none of them can be imported
import polyglance
encoder = polyglance.load(sys.argv[1])
texts = encoder.encode_texts(["a black dog", "كلب أسود", "一只黑狗", "zzyzx", ""])
assert encoder.encode_texts(["黒い犬"], language="ja").shape == (1, 16)
pictures = encoder.encode_pictures([sys.argv[2]])
assert texts.shape == (5, 16) and pictures.shape == (1, 16)
"""
    command = [sys.executable, "-c", script, words_folder, tmp_path / "red.png"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

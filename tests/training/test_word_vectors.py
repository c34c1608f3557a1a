from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.e5 import e5_tokenizer
from helpers.fasttext import write_bin
from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.records import Record, write_manifest
from polyglance.text.lexicon import Lexicon
from polyglance.text.vector_space import WordSpace, principal_components
from polyglance.text.word_vectors import write_vec
from polyglance.training.skipgram import SkipGramSettings
from polyglance.training.word_vectors import encode_words, make_word_space, vectors_for

TEXTS = {
    "en": ["a dog and a cat", "a red ball", "two women", "the guitar", "the dog runs"],
    "de": ["ein Hund und eine Katze", "ein roter Ball", "zwei Frauen", "die Gitarre", "ball"],
}


@pytest.fixture
def lexicon() -> Lexicon:
    return Lexicon.from_texts(TEXTS)


def test_skipgram_learns_languages_separately(lexicon: Lexicon) -> None:
    settings = SkipGramSettings(epochs=2)
    found = vectors_for(lexicon, "skipgram", texts=TEXTS, width=12, settings=settings)
    assert found.shape == (len(lexicon), 12)
    assert found.dtype == np.float32
    assert not found[:2].any()
    assert (np.abs(found[2:]).sum(1) > 0).all()
    english = Lexicon.from_texts({"en": TEXTS["en"]})
    alone = vectors_for(english, texts=TEXTS, width=12, settings=settings)
    assert (found[: len(english)] == alone).all()
    with pytest.raises(PolyglanceError, match="learns from texts"):
        vectors_for(lexicon, "skipgram")


def test_vector_files_by_language(lexicon: Lexicon, tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    write_vec(tmp_path / "cc.en.vec", ["dog", "Dog", "RED", "Two"], rows)
    write_vec(tmp_path / "cc.de.vec", ["Hund", "Ball", "ball"], rows[:3])
    found = vectors_for(lexicon, str(tmp_path / "cc.{language}.vec"), width=3)

    def vector(word: str, language: str) -> list[float]:
        number = lexicon.word_id(word, language)
        assert number is not None
        return list(found[number])

    assert vector("dog", "en") == [0, 1, 2]
    assert vector("red", "en") == [6, 7, 8]
    assert vector("two", "en") == [9, 10, 11]
    assert vector("hund", "de") == [0, 1, 2]
    assert vector("ball", "de") == [6, 7, 8]
    assert vector("cat", "en") == [0, 0, 0]
    with pytest.raises(PolyglanceError, match="less than 300"):
        vectors_for(lexicon, str(tmp_path / "cc.{language}.vec"))
    write_vec(tmp_path / "cc.de.vec", ["Hund"], np.ones((1, 2), np.float32))
    with pytest.raises(PolyglanceError, match="widths 2 and 3"):
        vectors_for(lexicon, str(tmp_path / "cc.{language}.vec"), width=2)


def test_fasttext_models_cover_every_word_and_are_reduced(lexicon: Lexicon, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(1 + 100, 6)).astype(np.float32)
    for code in ("en", "de"):
        write_bin(tmp_path / f"{code}.bin", ["dog"], rows, buckets=100, min_n=2)
    pattern = str(tmp_path / "{language}.bin")
    whole = vectors_for(lexicon, pattern, width=6)
    assert (np.abs(whole[2:]).sum(1) > 0).all()
    joint = vectors_for(lexicon, pattern, width=2)
    np.testing.assert_allclose(joint[2:], principal_components(whole[2:], 2), atol=1e-6)
    apart = vectors_for(lexicon, pattern, width=2, reduction="by language")
    german = lexicon.language_ids == 1
    np.testing.assert_allclose(apart[german], principal_components(whole[german], 2), atol=1e-6)
    assert not apart[:2].any()


def test_e5_word_vectors_are_means_and_align_languages(lexicon: Lexicon) -> None:
    encoder, tokenizer = load_encoder(weights.folder("e5-small")), e5_tokenizer()
    words = ["dog", "grandmother", "狗"]
    found = encode_words(encoder, tokenizer, words, batch=2)
    for word, vector in zip(words, found, strict=True):
        ids = tokenizer.encode(f"query: {word}")
        with torch.inference_mode():
            rows = encoder(torch.tensor(ids), Packing.of([len(ids)]))
        np.testing.assert_allclose(vector, rows.mean(0), atol=1e-4)
    vectors = vectors_for(lexicon, "e5-small")
    assert vectors.shape == (len(lexicon), 300)
    assert not vectors[:2].any()
    space = WordSpace(lexicon, vectors)
    for english, german in (("dog", "hund"), ("cat", "katze"), ("guitar", "gitarre")):
        assert space.neighbours(english, "en", 1, languages=["de"])[0].word == german


def test_make_word_space_from_manifests(tmp_path: Path) -> None:
    for name, code, text in (("a", "en", "a red dog"), ("b", "de", "Ein Hund"), ("c", "en", "dog")):
        write_manifest(tmp_path / f"{name}.jsonl", [Record(captions={code: (text,)})])
        write_vec(tmp_path / f"{code}.vec", ["dog", "Hund"], np.ones((2, 2), np.float32))
    manifests = [tmp_path / f"{name}.jsonl" for name in "abc"]
    files = str(tmp_path / "{language}.vec")
    space = make_word_space(manifests, files, width=2)
    assert space.lexicon.words[2:] == ("dog", "a", "red", "ein", "hund")
    assert space.vectors[:, 0].tolist() == [0, 0, 1, 0, 0, 0, 1]
    common = make_word_space(manifests, files, width=2, min_count=2, languages=["en"])
    assert common.lexicon.words[2:] == ("dog",)
    with pytest.raises(PolyglanceError, match=r"c\.jsonl: no captions with words"):
        make_word_space(manifests, languages=["sw"])

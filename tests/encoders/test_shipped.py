"""The model that comes with Polyglance: its size, the time to open it, and its quality."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest

import polyglance
from helpers.e5 import e5_tokenizer
from helpers.sentences import SENTENCES
from helpers.small_mmp import cosines, torch_pictures, torch_texts
from polyglance.demo.photographs import photographs
from polyglance.encoders import Encoder
from polyglance.encoders.model_folder import (
    FILES,
    READER,
    READER_CONFIG,
    VOCABULARY,
    ModelFolder,
)
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.export.to_torch import load_torch
from polyglance.vision.pictures import read_square

LIMIT = 32_000_000
"""Maximum bytes of the model's folder without its reader."""
READER_LIMIT = 16_000_000

# Translations of SENTENCES.
ITALIAN = [
    "Un cane nero corre lungo la spiaggia.",
    "Due bambini costruiscono un castello di sabbia.",
    "L'anziana vende mele al mercato.",
    "Un uomo con la giacca rossa scala una montagna innevata.",
    "Il treno per Vienna parte alle 7:45 del mattino.",
    "Tre gatti dormono sul divano blu.",
    "Lei suona la chitarra davanti a una grande folla.",
    "Piove da due giorni senza sosta.",
    "Il ragazzo beve un bicchiere di latte freddo.",
    "Nel porto ci sono barche con le vele bianche.",
]
PORTUGUESE = [
    "Um cachorro preto corre pela praia.",
    "Duas crianças constroem um castelo de areia.",
    "A velha vende maçãs no mercado.",
    "Um homem de jaqueta vermelha escala uma montanha nevada.",
    "O trem para Viena parte às 7h45 da manhã.",
    "Três gatos dormem no sofá azul.",
    "Ela toca violão diante de uma grande multidão.",
    "Chove há dois dias sem parar.",
    "O menino bebe um copo de leite frio.",
    "No porto há barcos com velas brancas.",
]
OTHERS = {
    "ko": ["검은 개가 해변을 달리고 있다.", "고양이 세 마리가 파란 소파에서 자고 있다."],
    "pl": ["Czarny pies biegnie wzdłuż plaży.", "Trzy koty śpią na niebieskiej kanapie."],
    "id": ["Seekor anjing hitam berlari di pantai.", "Tiga kucing tidur di sofa biru."],
}
TRANSLATIONS = SENTENCES | {"it": ITALIAN, "pt": PORTUGUESE}
TRAINED = ("ar", "cs", "de", "en", "fr", "it", "pt", "zh")
"""Languages of its training captions that are tried here."""
OTHERS_TRAINED = ("es", "fa", "nl", "pl", "ru", "uk", "vi")


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return polyglance.load(threads=1)


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return ModelFolder.open()


def test_the_folder_is_small(folder: ModelFolder) -> None:
    assert {path.name for path in folder.path.iterdir()} >= {*FILES, "model.json"}
    sizes = {path.name: path.stat().st_size for path in folder.path.rglob("*") if path.is_file()}
    reader = sizes.pop(READER) + sizes.pop(READER_CONFIG)
    assert sum(sizes.values()) <= LIMIT
    assert reader <= READER_LIMIT
    for name in FILES:
        folder.read_file(name)  # verifies its checksum
    vocabulary = Vocabulary.from_bytes(folder.read_file(VOCABULARY))
    assert len(vocabulary.pieces) == 250_002


def test_the_description_has_languages_and_figures(folder: ModelFolder) -> None:
    description = folder.description
    assert description.name == "polyglance-small"
    assert description.languages == tuple(sorted((*TRAINED, *OTHERS_TRAINED)))
    assert description.figures["test"]["average"]["mR"] >= 57
    assert description.figures["test"]["en"]["text_to_image_R@1"] >= 36


def test_vectors_agree_with_torch(folder: ModelFolder, encoder: Encoder) -> None:
    model, settings = load_torch(folder.path), folder.description.pictures
    by_language = {language: texts[::4] for language, texts in TRANSLATIONS.items()} | OTHERS
    texts = [text for texts in by_language.values() for text in texts]
    assert len(by_language) == 15
    assert len(texts) >= 40
    ids = e5_tokenizer().encode_batch(texts, max_length=folder.description.max_length)
    assert cosines(encoder.encode_texts(texts), torch_texts(model, ids)).min() >= 0.999
    paths = [photograph.path for photograph in photographs()[::24]]
    assert len(paths) >= 4
    pixels = np.stack([read_square(path, settings.size).pixels for path in paths])
    expected = torch_pictures(model, pixels, settings)
    assert cosines(encoder.encode_pictures(paths), expected).min() >= 0.999


def test_translations_have_similar_vectors(encoder: Encoder) -> None:
    vectors = {language: encoder.encode_texts(TRANSLATIONS[language]) for language in TRAINED}
    right, margins = [], []
    for one, other in permutations(TRAINED, 2):
        scores = vectors[one] @ vectors[other].T
        others = scores[~np.eye(10, dtype=bool)].reshape(10, 9)
        right.append(np.mean(scores.diagonal() > others.max(1)))
        margins.append(scores.diagonal().mean() - others.mean())
    assert np.mean(right) > 0.97
    assert min(margins) > 0.6


def test_the_first_embedding_takes_under_two_seconds_without_torch() -> None:
    """In CPU time of a fresh process on one thread, whatever else the machine does."""
    script = """
import time, sys
heavy = ("torch", "onnx", "transformers", "safetensors", "sentencepiece")
sys.modules.update(dict.fromkeys(heavy))  # none of them can be imported
import polyglance
vector = polyglance.load(threads=1).encode_texts(["a dog in the snow"])
print(time.process_time())
assert vector.shape == (1, 384)
"""

    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert float(done.stdout) < 2

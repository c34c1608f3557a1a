"""Learning, from the first step to the last: a model that knows nothing, and the toy dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from helpers.toy_mmp import ToyModel, make_toy_model, train_toy_model
from polyglance.data.toy import Picture, ToyDataset
from polyglance.data.toy.items import Pixels
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.records import Record


@dataclass(frozen=True)
class Mislabelled:
    """A picture with the captions of another."""

    seen: Picture
    described: Picture

    def pixels(self, size: int) -> Pixels:
        return self.seen.pixels(size)

    def record(self) -> Record:
        return self.described.record()


def found_in_ten(toy: ToyModel, gallery: Sequence[Picture]) -> float:
    """Text-to-image R@10, the mean of two languages."""
    pictures = toy.encode_pictures(gallery)
    recalls = []
    for language in ("en", "de"):
        texts = toy.encode_texts([picture.captions[language][0].text for picture in gallery])
        result = evaluate_retrieval(pictures, texts, np.arange(len(gallery)))
        recalls.append(result.text_to_image.recalls[10])
    return float(np.mean(recalls))


def test_toy_model_learns_captions_and_not_shuffled_ones() -> None:
    dataset = ToyDataset(seed=0, languages=("en", "de"))
    pictures = list(dataset.pictures(400, "train"))
    gallery = list(dataset.pictures(100, "test"))  # combinations that training never showed
    others = pictures[7:] + pictures[:7]
    mislabelled = [
        Mislabelled(seen, described) for seen, described in zip(pictures, others, strict=True)
    ]
    recalls = []
    for training in (pictures, mislabelled):
        toy = make_toy_model(pictures)
        train_toy_model(toy, training, steps=60, batch=32, quiet=True)
        recalls.append(found_in_ten(toy, gallery))
    right, wrong = recalls
    assert right > 28  # by chance: 10
    assert wrong < 20


def test_vectors_have_unit_length_and_encoding_keeps_the_model() -> None:
    pictures = list(ToyDataset(seed=1).pictures(20))
    toy = make_toy_model(pictures)
    toy.model.train()
    before = {name: value.clone() for name, value in toy.model.state_dict().items()}
    vectors = toy.encode_pictures(pictures)
    texts = toy.encode_texts([pictures[0].captions["ja"][0].text, "?"])
    for table in (vectors, texts):
        assert np.linalg.norm(table, axis=1) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(vectors, toy.encode_pictures(pictures))
    for name, value in toy.model.state_dict().items():
        assert torch.equal(value, before[name]), name

"""A model that reads pairs learns to score them as a dual encoder does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.nn.packed_pairs import PackedRows, Regions, Text
from polyglance.recipes.cross_encoder.distillation import DistillationTask, TeacherVectors
from polyglance.records import Record
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

PICTURES, SENTENCES, WIDTH = 30, 40, 6


class Letters:
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) - ord("a") for letter in text] for text in texts]


def likeness() -> TeacherVectors:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(PICTURES + SENTENCES, WIDTH, generator=generator)
    vectors = nn.functional.normalize(vectors, dim=1)
    return TeacherVectors(vectors[:PICTURES].half(), vectors[PICTURES:].half())


def regions() -> RegionTable:
    """One region a picture, which is its vector."""
    return RegionTable(
        likeness().pictures,
        torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(PICTURES, 1),
        torch.zeros(PICTURES, dtype=torch.int64),
        np.ones(PICTURES, np.int64),
    )


def sentences() -> CaptionTable:
    """Each a letter of its own, in two languages."""
    records = [
        Record(captions={("en", "de")[number % 2]: (chr(ord("a") + number),)})
        for number in range(SENTENCES)
    ]
    return CaptionTable.build(records, Letters())


class Bilinear(nn.Module):
    """Scores a letter beside a vector."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.letters = nn.Embedding(SENTENCES, WIDTH)
        self.bias = nn.Parameter(torch.zeros(()))
        self.told: list[list[int]] = []

    def embed_regions(self, regions: Regions) -> PackedRows:
        return PackedRows(regions.features, regions.packing)

    def score(self, text: Text, seen: PackedRows) -> Tensor:
        if text.languages is not None:
            self.told.append(text.languages.tolist())
        return (self.letters(text.ids) * seen.rows).sum(1) + self.bias


def task(model: Bilinear, **changes: object) -> DistillationTask:
    settings: dict[str, object] = {"batch": 200, "nearest": 5} | changes
    return DistillationTask(model, regions(), sentences(), likeness(), **settings)  # type: ignore[arg-type]


def test_half_of_the_pairs_are_near_and_the_rest_any() -> None:
    drawn = task(Bilinear(), batch=20_000)
    pictures, texts = drawn.draw(np.random.default_rng(0))
    cosines = (likeness().pictures.float() @ likeness().texts.float().T).numpy()
    five = np.sort(cosines, axis=1)[:, -5]
    near = cosines[pictures, texts] >= five[pictures]
    assert near.mean() == pytest.approx(0.5 + 0.5 * 5 / SENTENCES, abs=0.01)
    counts = np.bincount(texts[~near], minlength=SENTENCES)
    assert counts.min() > 0.5 * counts.mean()


def test_the_nearer_a_sentence_the_oftener_it_is_drawn() -> None:
    drawn = task(Bilinear(), batch=40_000, near_share=1.0, nearest=15)
    pictures, texts = drawn.draw(np.random.default_rng(0))
    cosines = (likeness().pictures.float() @ likeness().texts.float().T).numpy()
    ranks = (cosines[pictures] > cosines[pictures, texts][:, None]).sum(1)
    for fourfold in ((0, 3), (3, 15)):  # the first three of fifteen, and the next twelve
        assert np.mean((ranks >= fourfold[0]) & (ranks < fourfold[1])) == pytest.approx(
            0.5, abs=0.02
        )


def test_targets_are_cosines_from_a_near_one_s_in_deviations_of_all() -> None:
    made = task(Bilinear())
    pictures = np.repeat(np.arange(PICTURES), SENTENCES)
    texts = np.tile(np.arange(SENTENCES), PICTURES)
    cosines = (likeness().pictures.float() @ likeness().texts.float().T).numpy()
    nearest = np.sort(cosines, axis=1)[:, ::-1][:, :5]
    often = np.diff(np.log(np.arange(1, 7))) / np.log(6)
    expected = (cosines - (nearest * often).sum(1).mean()) / cosines.std()
    found = made.targets(pictures, texts).numpy().reshape(PICTURES, SENTENCES)
    assert found == pytest.approx(expected, abs=0.03)


def test_a_model_comes_to_agree(tmp_path: Path) -> None:
    model = Bilinear()
    made = task(model, languages=np.array([7, 3]))
    loop = LoopConfig(steps=300, learning_rate=0.05, save_every=0)
    before = float(made.losses(np.random.default_rng(5))["imitation"].detach())
    train_loop(model, Mixture({"imitation": made}), loop, tmp_path, quiet=True)
    after = float(made.losses(np.random.default_rng(5))["imitation"].detach())
    assert before > 0.5
    assert after < 0.02
    assert {number for told in model.told for number in told} == {3, 7}


def test_what_the_dual_encoder_has_not_seen_is_refused() -> None:
    few = TeacherVectors(likeness().pictures[:3], likeness().texts)
    with pytest.raises(PolyglanceError, match="has seen 3 pictures and 40 sentences"):
        DistillationTask(Bilinear(), regions(), sentences(), few, batch=2)

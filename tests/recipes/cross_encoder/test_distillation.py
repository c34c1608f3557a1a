"""A cross-encoder learns to score pairs as a dual encoder does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.steps import losses_of
from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.nn.packed_pairs import PackedRows, Regions, Text
from polyglance.recipes.cross_encoder.distillation import DistillationTask, TeacherVectors
from polyglance.records import Record
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

IMAGES, SENTENCES, WIDTH = 30, 40, 6


class Letters:
    """A letter is a token."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) - ord("a") for letter in text] for text in texts]


def teacher_vectors() -> TeacherVectors:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(IMAGES + SENTENCES, WIDTH, generator=generator)
    vectors = nn.functional.normalize(vectors, dim=1)
    return TeacherVectors(vectors[:IMAGES].half(), vectors[IMAGES:].half())


def teacher_cosines() -> np.ndarray:
    teacher = teacher_vectors()
    return (teacher.images.float() @ teacher.texts.float().T).numpy()


def regions() -> RegionTable:
    """Build images of one region, the teacher's vector."""
    return RegionTable(
        teacher_vectors().images,
        torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(IMAGES, 1),
        torch.zeros(IMAGES, dtype=torch.int64),
        np.ones(IMAGES, np.int64),
    )


def sentences() -> CaptionTable:
    """Build sentences of one letter each, in two languages."""
    records = [
        Record(captions={("en", "de")[number % 2]: (chr(ord("a") + number),)})
        for number in range(SENTENCES)
    ]
    return CaptionTable.build(records, Letters())


class Bilinear(nn.Module):
    """Scores a letter against a vector."""

    def __init__(self, language_ids: dict[str, int] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.letters = nn.Embedding(SENTENCES, WIDTH)
        self.bias = nn.Parameter(torch.zeros(()))
        self.ids_by_language = language_ids
        self.received: list[int] = []

    def language_ids(self, names: Sequence[str]) -> np.ndarray | None:
        if self.ids_by_language is None:
            return None
        return np.array([self.ids_by_language[name] for name in names])

    def embed_regions(self, regions: Regions) -> PackedRows:
        return PackedRows(regions.features, regions.packing)

    def score(self, text: Text, images: PackedRows) -> Tensor:
        if text.languages is not None:
            self.received += text.languages.tolist()
        return (self.letters(text.ids) * images.rows).sum(1) + self.bias


def build_task(model: Any, **changes: Any) -> DistillationTask:
    settings = {"batch": 200, "nearest": 5} | changes
    return DistillationTask(model, regions(), sentences(), teacher_vectors(), **settings)


def test_half_of_the_pairs_are_similar_and_the_others_random() -> None:
    task = build_task(Bilinear(), batch=20_000)
    images, texts = task.sample_pairs(np.random.default_rng(0))
    cosines = teacher_cosines()
    fifth = np.sort(cosines, axis=1)[:, -5]
    near = cosines[images, texts] >= fifth[images]
    assert near.mean() == pytest.approx(0.5 + 0.5 * 5 / SENTENCES, abs=0.01)
    counts = np.bincount(texts[~near], minlength=SENTENCES)
    assert counts.min() > 0.5 * counts.mean()


def test_nearer_sentences_are_sampled_more_often() -> None:
    task = build_task(Bilinear(), batch=40_000, near_share=1.0, nearest=15)
    images, texts = task.sample_pairs(np.random.default_rng(0))
    cosines = teacher_cosines()
    ranks = (cosines[images] > cosines[images, texts][:, None]).sum(1)
    for first, last in ((0, 3), (3, 15)):  # four times as wide, equally often
        assert np.mean((ranks >= first) & (ranks < last)) == pytest.approx(0.5, abs=0.02)


def test_targets_are_cosines_minus_the_near_mean_in_standard_deviations() -> None:
    task = build_task(Bilinear())
    images = torch.arange(IMAGES).repeat_interleave(SENTENCES)
    texts = torch.arange(SENTENCES).repeat(IMAGES)
    cosines = teacher_cosines()
    nearest = np.sort(cosines, axis=1)[:, ::-1][:, :5]
    frequencies = np.diff(np.log(np.arange(1, 7))) / np.log(6)
    expected = (cosines - (nearest * frequencies).sum(1).mean()) / cosines.std()
    targets = task.targets(images, texts).numpy().reshape(IMAGES, SENTENCES)
    assert targets == pytest.approx(expected, abs=0.03)


def test_student_learns_the_teacher_s_scores(tmp_path: Path) -> None:
    model = Bilinear({"en": 7, "de": 3})
    task = build_task(model)
    loop = LoopConfig(steps=300, learning_rate=0.05, save_every=0)
    before = float(losses_of(task, np.random.default_rng(5))["distillation"].detach())
    train_loop(model, Mixture({"distillation": task}), loop, tmp_path, quiet=True)
    after = float(losses_of(task, np.random.default_rng(5))["distillation"].detach())
    assert before > 0.5
    assert after < 0.02
    assert set(model.received) == {3, 7}


def test_teacher_needs_a_vector_of_every_image_and_sentence() -> None:
    few = TeacherVectors(teacher_vectors().images[:3], teacher_vectors().texts)
    with pytest.raises(PolyglanceError, match="has vectors of 3 images and 40 sentences"):
        DistillationTask(Bilinear(), regions(), sentences(), few, batch=2)  # type: ignore[arg-type]

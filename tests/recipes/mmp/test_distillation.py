"""Distillation of a compressed toy model from the original."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.steps import losses_of
from helpers.toy_mmp import ToyModel, make_toy_model
from polyglance.batches.inputs import Indices, PixelBatch, PixelTable
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import ToyDataset
from polyglance.models.mmp import MMP
from polyglance.nn.compression import compress
from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.recipes.mmp.compression import mean_view_vectors
from polyglance.recipes.mmp.tasks import EmbeddingDistillationTask
from polyglance.training.mixture import item_draws

PICTURES = list(ToyDataset(seed=3).pictures(40))


@dataclass(frozen=True)
class Distillation:
    """A teacher, a student that starts as its copy, and what they learn from."""

    teacher: ToyModel
    student: MMP
    sentences: CaptionTable
    pictures: PixelTable

    @property
    def backbone(self) -> nn.Module:
        backbone = self.student.image_backbone
        assert isinstance(backbone, nn.Module)
        return backbone

    def task(self, student: MMP | None = None, batch: int = 40) -> EmbeddingDistillationTask:
        pairs = [(self.pictures.with_network(self.backbone), self.pictures)]
        return EmbeddingDistillationTask(
            student or self.student, self.teacher.model, [self.sentences], pairs, batch=batch
        )


@cache
def make_teacher() -> ToyModel:
    teacher = make_toy_model(PICTURES)
    for parameter in teacher.model.eval().parameters():
        if parameter.dim() > 1:  # large enough for vectors to differ
            nn.init.normal_(parameter, std=1.5 / parameter[0].numel() ** 0.5)
    nn.init.normal_(teacher.model.encoder.words.weight)  # type: ignore[arg-type]
    return teacher


@pytest.fixture
def setup() -> Distillation:
    teacher = make_teacher()
    records = (picture.record() for picture in PICTURES)
    pixels = teacher.table(PICTURES).pixels
    half = torch.full((3,), 127.5)
    return Distillation(
        teacher,
        copy.deepcopy(teacher.model),
        CaptionTable.build(records, teacher.tokenizer),
        PixelTable(pixels, teacher.backbone, half, half, min_crop_area=0.3),
    )


def as_floats(losses: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(loss.detach()) for name, loss in losses.items()}


def test_loss_of_an_exact_copy_is_zero(setup: Distillation) -> None:
    """Both get the same crops and mirroring, or their vectors would differ."""
    losses = losses_of(setup.task(), np.random.default_rng(0))
    assert as_floats(losses) == pytest.approx({"sentences": 0, "images": 0}, abs=1e-6)
    items = np.arange(40)
    drawn = [setup.pictures.rows(items, ItemDraws.of(seed, 40)) for seed in (0, 1)]
    with torch.no_grad():
        first, second = (setup.student.encode_visual(*rows) for rows in drawn)
    assert (1 - (first * second).sum(1)).mean() > 1e-3  # other crops give other vectors


def test_student_and_teacher_get_the_same_crops(setup: Distillation) -> None:
    class Recorded(PixelTable):
        def select(self, items: Indices, draws: ItemDraws | None) -> PixelBatch:
            batch = super().select(items, draws)
            assert batch.crops is not None
            calls.append((items.tolist(), batch.crops.flatten().tolist()))
            return batch

    calls: list[tuple[list[int], list[float]]] = []
    table = copy.copy(setup.pictures)
    table.__class__ = Recorded
    task = EmbeddingDistillationTask(
        setup.student, setup.teacher.model, [setup.sentences], [(table, table)], batch=12
    )
    generator = np.random.default_rng(0)
    for _ in range(3):
        losses_of(task, generator)
    for step in (0, 2, 4):
        assert calls[step] == calls[step + 1]
        assert len(set(calls[step][0])) == 12
    assert len({tuple(crops) for _, crops in calls}) == 3
    assert len({tuple(items) for items, _ in calls}) == 3


def test_loss_is_one_minus_the_mean_cosine(setup: Distillation) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in setup.student.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    found = as_floats(losses_of(setup.task(), np.random.default_rng(5)))
    generator = np.random.default_rng(5)
    rows = generator.choice(len(setup.sentences), 40, replace=False)
    item_draws(generator, 40)
    items, draws = generator.choice(40, 40, replace=False), item_draws(generator, 40)

    def vectors(model: MMP, backbone: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
        texts = []
        for row in rows:
            ids, lengths = setup.sentences.gather(np.array([row]))
            texts += list(model.encode_text(torch.from_numpy(ids).long(), Packing.of(lengths)))
        features = setup.pictures.with_network(backbone).rows(items, draws)
        return texts, list(model.encode_visual(*features))

    with torch.no_grad():
        students = vectors(setup.student, setup.backbone)
        teachers = vectors(setup.teacher.model, setup.teacher.backbone)
    for name, encoded, target in zip(("sentences", "images"), students, teachers, strict=True):
        assert found[name] == pytest.approx(1 - mean_cosine(encoded, target), abs=1e-6)
        assert found[name] > 1e-3


def mean_cosine(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    total = 0.0
    for one, other in zip(first, second, strict=True):
        dot = sum(float(a) * float(b) for a, b in zip(one, other, strict=True))
        lengths = (sum(float(a) ** 2 for a in v) ** 0.5 for v in (one, other))
        total += dot / (next(lengths) * next(lengths))
    return total / len(first)


def test_only_the_student_is_trained(setup: Distillation) -> None:
    small = compressed(setup)
    losses = losses_of(setup.task(small), np.random.default_rng(0))
    (losses["sentences"] + losses["images"]).backward()
    assert all(parameter.grad is None for parameter in setup.teacher.model.parameters())
    assert not any(p.requires_grad for p in setup.teacher.model.parameters())
    for name in ("encoder.words.codebooks", "encoder.words.rotation", "visual_input.bias"):
        gradient = small.get_parameter(name).grad
        assert gradient is not None
        assert gradient.any(), name


def compressed(setup: Distillation) -> MMP:
    frequency = torch.arange(setup.student.config.encoder.vocab_size, 0, -1)
    compress(setup.student, frequency, parts=4, finer_parts=4, frequent=8)
    return setup.student.requires_grad_(True)


def test_compressed_student_approaches_the_teacher(setup: Distillation) -> None:
    """Measured on other crops than in training."""
    student = compressed(setup)

    def distances() -> dict[str, float]:
        with torch.no_grad():
            return as_floats(losses_of(setup.task(), np.random.default_rng(99)))

    before, generator = distances(), np.random.default_rng(0)
    task, optimiser = setup.task(batch=32), torch.optim.Adam(student.parameters(), lr=5e-4)
    for _ in range(25):
        losses = losses_of(task, generator)
        optimiser.zero_grad()
        (losses["sentences"] + losses["images"]).backward()
        optimiser.step()
    after = distances()
    assert before["sentences"] > 0.1
    assert after["sentences"] < 0.7 * before["sentences"]
    assert before["images"] > 0.02
    assert after["images"] < 0.4 * before["images"]


def test_mean_vector_of_views_is_that_of_each_view_by_itself(setup: Distillation) -> None:
    model, table = setup.teacher.model, setup.pictures
    side = table.pixels.shape[1]
    found = mean_view_vectors(model, table, (side, 2 * side))
    for number in (0, 7, 39):
        picture = table.pixels[number].float().permute(2, 0, 1)[None]
        views = []
        for size in (side, 2 * side):
            larger = F.interpolate(picture, (size, size), mode="bicubic", antialias=True)
            for view in (larger, larger.flip(3)):
                with torch.no_grad():
                    cells = table.network((view - 127.5) / 127.5).flatten(2)[0].T
                    rows = torch.cat([cells.mean(0, keepdim=True), cells])
                    views.append(model.encode_visual(rows, Packing.of([len(rows)]))[0])
        mean = torch.stack(views).sum(0)
        assert torch.allclose(found[number], mean / mean.norm(), atol=1e-5)
    one_view = mean_view_vectors(model, table, (side,))
    assert (1 - (found * one_view).sum(1)).mean() > 1e-4  # sizes differ


def test_vectors_given_are_the_targets_of_their_images(setup: Distillation) -> None:
    targets = F.normalize(torch.randn(40, setup.student.config.width), dim=1)
    pairs = [(setup.pictures.with_network(setup.backbone), targets)]
    task = EmbeddingDistillationTask(
        setup.student, setup.teacher.model, [setup.sentences], pairs, batch=10
    )
    found = as_floats(losses_of(task, np.random.default_rng(3)))["images"]
    generator = np.random.default_rng(3)
    generator.choice(len(setup.sentences), 10, replace=False)
    item_draws(generator, 10)
    items, draws = generator.choice(40, 10, replace=False), item_draws(generator, 10)
    with torch.no_grad():
        rows = setup.pictures.with_network(setup.backbone).rows(items, draws)
        vectors = setup.student.encode_visual(*rows)
    expected = 1 - mean_cosine(list(vectors), list(targets[torch.from_numpy(items)]))
    assert found == pytest.approx(expected, abs=1e-6)

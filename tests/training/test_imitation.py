"""A pupil and its teacher: the toy world's model, whole and compressed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyglance.data.captions import CaptionTable
from polyglance.data.toy import ToyWorld
from polyglance.models.mmp import MMP
from polyglance.nn.compression import compress
from polyglance.nn.packing import Packing
from polyglance.training.imitation import Imitation
from polyglance.training.visuals import Indices, PixelTable
from toy_model import ToyModel, make_toy_model

PICTURES = list(ToyWorld(seed=3).pictures(40))


@dataclass(frozen=True)
class School:
    """A teacher, a pupil that began as its copy, and what they learn from."""

    teacher: ToyModel
    pupil: MMP
    sentences: CaptionTable
    pictures: PixelTable

    @property
    def eyes(self) -> nn.Module:
        eyes = self.pupil.eyes
        assert isinstance(eyes, nn.Module)
        return eyes

    def imitation(self, pupil: MMP | None = None, batch: int = 40) -> Imitation:
        pairs = [(self.pictures.seen_by(self.eyes), self.pictures)]
        return Imitation(
            pupil or self.pupil, self.teacher.model, [self.sentences], pairs, batch=batch
        )


@cache
def made_teacher() -> ToyModel:
    teacher = make_toy_model(PICTURES)
    for parameter in teacher.model.eval().parameters():
        if parameter.dim() > 1:  # so large that vectors differ, as those of a trained model do
            nn.init.normal_(parameter, std=1.5 / parameter[0].numel() ** 0.5)
    nn.init.normal_(teacher.model.encoder.words.weight)  # type: ignore[arg-type]
    return teacher


@pytest.fixture
def school() -> School:
    teacher = made_teacher()
    records = (picture.record() for picture in PICTURES)
    pixels = teacher.table(PICTURES).pixels
    half = torch.full((3,), 127.5)
    return School(
        teacher,
        copy.deepcopy(teacher.model),
        CaptionTable.build(records, teacher.tokenizer),
        PixelTable(pixels, teacher.eyes, half, half, smallest_crop=0.3),
    )


def figures(losses: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(loss.detach()) for name, loss in losses.items()}


def test_a_perfect_pupil_has_nothing_to_learn(school: School) -> None:
    """Pictures are cropped and mirrored for both alike, or their vectors would differ."""
    losses = school.imitation().losses(np.random.default_rng(0))
    assert figures(losses) == pytest.approx({"sentences": 0, "pictures": 0}, abs=1e-6)
    items = np.arange(40)
    drawn = [school.pictures.rows(items, np.random.default_rng(seed)) for seed in (0, 1)]
    with torch.no_grad():
        first, second = (school.pupil.encode_visual(*rows) for rows in drawn)
    assert (1 - (first * second).sum(1)).mean() > 1e-3  # other crops do count


def test_pictures_of_both_are_the_same_and_new_at_every_step(school: School) -> None:
    class Watched(PixelTable):
        def rows(
            self, items: Indices, generator: np.random.Generator | None
        ) -> tuple[Tensor, Packing]:
            assert generator is not None
            seen.append((items.tolist(), float(copy.deepcopy(generator).random())))
            return super().rows(items, generator)

    seen: list[tuple[list[int], float]] = []
    table = copy.copy(school.pictures)
    table.__class__ = Watched
    task = Imitation(
        school.pupil, school.teacher.model, [school.sentences], [(table, table)], batch=12
    )
    generator = np.random.default_rng(0)
    for _ in range(3):
        task.losses(generator)
    for step in (0, 2, 4):
        assert seen[step] == seen[step + 1]
        assert len(set(seen[step][0])) == 12
    assert len({crop for _, crop in seen}) == 3
    assert len({tuple(items) for items, _ in seen}) == 3


def test_the_loss_is_one_less_the_mean_cosine(school: School) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in school.pupil.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    found = figures(school.imitation().losses(np.random.default_rng(5)))
    generator = np.random.default_rng(5)
    rows = generator.choice(len(school.sentences), 40, replace=False)
    items, seed = generator.choice(40, 40, replace=False), int(generator.integers(2**63))

    def vectors(model: MMP, eyes: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
        texts = []
        for row in rows:
            ids, lengths = school.sentences.gather(np.array([row]))
            texts += list(model.encode_text(torch.from_numpy(ids).long(), Packing.of(lengths)))
        features = school.pictures.seen_by(eyes).rows(items, np.random.default_rng(seed))
        return texts, list(model.encode_visual(*features))

    with torch.no_grad():
        pupils = vectors(school.pupil, school.eyes)
        teachers = vectors(school.teacher.model, school.teacher.eyes)
    for name, ours, wanted in zip(("sentences", "pictures"), pupils, teachers, strict=True):
        assert found[name] == pytest.approx(1 - mean_cosine(ours, wanted), abs=1e-6)
        assert found[name] > 1e-3


def mean_cosine(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    total = 0.0
    for one, other in zip(first, second, strict=True):
        dot = sum(float(a) * float(b) for a, b in zip(one, other, strict=True))
        lengths = (sum(float(a) ** 2 for a in v) ** 0.5 for v in (one, other))
        total += dot / (next(lengths) * next(lengths))
    return total / len(first)


def test_only_the_pupil_learns(school: School) -> None:
    small = compressed(school)
    losses = school.imitation(small).losses(np.random.default_rng(0))
    (losses["sentences"] + losses["pictures"]).backward()
    assert all(parameter.grad is None for parameter in school.teacher.model.parameters())
    assert not any(p.requires_grad for p in school.teacher.model.parameters())
    for name in ("encoder.words.codebooks", "encoder.words.rotation", "visual_input.bias"):
        gradient = small.get_parameter(name).grad
        assert gradient is not None
        assert gradient.any(), name


def compressed(school: School) -> MMP:
    frequency = torch.arange(school.pupil.config.encoder.vocabulary, 0, -1)
    compress(school.pupil, frequency, parts=4, finer_parts=4, frequent=8)
    return school.pupil.requires_grad_(True)


def test_a_compressed_pupil_comes_nearer(school: School) -> None:
    """On crops that it was not taught with; a pupil that learns nothing stays where it was."""
    pupil = compressed(school)

    def distances() -> dict[str, float]:
        with torch.no_grad():
            return figures(school.imitation().losses(np.random.default_rng(99)))

    before, generator = distances(), np.random.default_rng(0)
    task, optimiser = school.imitation(batch=32), torch.optim.Adam(pupil.parameters(), lr=5e-4)
    for _ in range(25):
        losses = task.losses(generator)
        optimiser.zero_grad()
        (losses["sentences"] + losses["pictures"]).backward()
        optimiser.step()
    after = distances()
    assert before["sentences"] > 0.1
    assert after["sentences"] < 0.7 * before["sentences"]
    assert before["pictures"] > 0.02
    assert after["pictures"] < 0.4 * before["pictures"]

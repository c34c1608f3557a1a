"""Tasks on a toy corpus of 64 things, each with two traits, in two made-up languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from helpers.steps import losses_of
from polyglance.batches.batch import Batch
from polyglance.batches.inputs import FeatureTable, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Text
from polyglance.recipes.mmp import tasks
from polyglance.recipes.mmp.tasks import MMPTask, ParallelTextTask
from polyglance.records import Record
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, MultiTask, Task, TurnTask

THINGS = [(colour, shape) for colour in range(8) for shape in range(8)]
BEGIN, END, MASK = 1, 2, 3


class Numbers:
    """A text is its ids."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[BEGIN, *map(int, text.split()), END] for text in texts]


def table() -> CaptionTable:
    """Language xx names colour then shape; yy has other words and the other order."""
    records = [
        Record(captions={"xx": (f"{10 + c} {20 + s}",), "yy": (f"{50 + s} {40 + c}",)})
        for c, s in THINGS
    ]
    return CaptionTable.build(records, Numbers())


def visuals() -> FeatureTable:
    """Two rows a thing: its colour, its shape."""
    rows = torch.eye(16)[torch.tensor([[c, 8 + s] for c, s in THINGS]).flatten()]
    return FeatureTable(rows, np.full(64, 2))


def make_model() -> MMP:
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocab_size=60,
        hidden_size=32,
        num_layers=1,
        num_heads=2,
        intermediate_size=64,
        max_position_embeddings=12,
        dropout=0.0,
    )
    return MMP(
        MMPConfig(
            encoder=encoder, text_layer=None, frozen_layers=0, visual_width=16, width=32,
            pooling_layers=1, dropout=0.0,
        )
    )  # fmt: skip


def learn(
    model: MMP, task: Task, folder: Path, steps: int = 60, learning_rate: float = 3e-3
) -> None:
    config = LoopConfig(steps=steps, learning_rate=learning_rate, warmup=steps // 12, grad_clip=1.0)
    train_loop(model, Mixture({"task": task}), config, folder, quiet=True)


@torch.no_grad()
def found(model: MMP, queries: str, among: str | None = None) -> float:
    """The share of captions whose nearest picture (or caption in another language) is right."""
    captions, device = table(), torch.device("cpu")

    def texts(language: str) -> torch.Tensor:
        sentences = pack_captions(captions, captions.rows_in_language(language), device)
        return model.encode_text(sentences.ids, sentences.packing)

    targets = texts(among) if among else model.encode_visual(*visuals().rows(np.arange(64), None))
    nearest = (texts(queries) @ targets.T).argmax(1)
    return float((nearest == torch.arange(64)).float().mean())


SYMMETRIC = MMPObjective(negatives="symmetric", intra=False)


@pytest.mark.parametrize(
    ("objective", "captions_per_image", "steps", "learning_rate"),
    [
        (MMPObjective(intra=False), 1, 60, 3e-3),
        (SYMMETRIC, 1, 60, 3e-3),
        (MMPObjective(loss="triplet", intra=False), 1, 60, 3e-3),
        (MMPObjective(mask_id=MASK, cross=True), 2, 30, 1e-2),
    ],
    ids=["joint", "symmetric", "triplet", "all of equations 4 to 6"],
)
def test_every_objective_learns_both_languages(
    objective: MMPObjective,
    captions_per_image: int,
    steps: int,
    learning_rate: float,
    tmp_path: Path,
) -> None:
    model = make_model()
    assert max(found(model, "xx"), found(model, "yy")) < 0.15
    task = MMPTask(
        model, visuals(), table(), objective, batch=32, captions_per_image=captions_per_image
    )
    learn(model, task, tmp_path, steps, learning_rate)
    assert min(found(model, "xx"), found(model, "yy")) > 0.6


def test_shuffled_captions_do_not_generalise(tmp_path: Path) -> None:
    model = make_model()
    shuffled = np.random.default_rng(0).permutation(64)
    features = visuals().features.view(64, 2, 16)[torch.from_numpy(shuffled)].flatten(0, 1)
    task = MMPTask(model, FeatureTable(features, np.full(64, 2)), table(), SYMMETRIC, batch=32)
    learn(model, task, tmp_path)
    assert max(found(model, "xx"), found(model, "yy")) < 0.15


def test_parallel_text_aligns_languages_without_images(tmp_path: Path) -> None:
    model = make_model()
    assert found(model, "xx", among="yy") < 0.15
    learn(model, ParallelTextTask(model, table(), batch=32), tmp_path, 30, 1e-2)
    assert found(model, "xx", among="yy") > 0.75


def test_only_weighted_languages_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(captions={"xx": ("10",)}), Record(captions={"yy": ("11",)}), Record()]
    captions = CaptionTable.build(records, Numbers())
    drawn = record_rows(monkeypatch)
    features = FeatureTable(torch.zeros(3, 16), np.ones(3, np.int64))
    task = MMPTask(make_model(), features, captions, SYMMETRIC, batch=9, weights={"yy": 1.0})
    losses_of(task, np.random.default_rng(0))
    assert [captions.record_ids[rows].tolist() for rows in drawn] == [[1]]


def test_two_captions_are_in_two_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    captions, model, drawn = table(), make_model(), record_rows(monkeypatch)
    task = MMPTask(model, visuals(), captions, SYMMETRIC, batch=64, captions_per_image=2)
    losses_of(task, np.random.default_rng(0))
    first, second = drawn
    assert captions.record_ids[first].tolist() == captions.record_ids[second].tolist()
    assert (captions.language_ids[first] != captions.language_ids[second]).all()
    assert len(set(captions.record_ids[first])) == 64
    drawn.clear()
    losses_of(ParallelTextTask(model, captions, batch=64), np.random.default_rng(0))
    left, right = np.split(drawn[0], 2)
    assert captions.record_ids[left].tolist() == captions.record_ids[right].tolist()
    assert (captions.language_ids[left] != captions.language_ids[right]).all()


def record_rows(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.int64]]:
    """Return a list to which tasks append the rows of captions that they pack."""
    drawn: list[NDArray[np.int64]] = []

    def record(captions: CaptionTable, rows: NDArray[np.int64]) -> Text:
        drawn.append(rows)
        return pack_captions(captions, rows)

    monkeypatch.setattr(tasks, "pack_captions", record)
    return drawn


def test_unusable_data_is_rejected() -> None:
    model, captions = make_model(), table()
    with pytest.raises(PolyglanceError, match="set captions_per_image to 2 or cross to false"):
        MMPTask(model, visuals(), captions, replace(SYMMETRIC, cross=True), batch=4)
    with pytest.raises(PolyglanceError, match="choose languages that the corpus has"):
        MMPTask(model, visuals(), captions, SYMMETRIC, batch=4, weights={"zz": 1.0})
    nothing = CaptionTable.build([Record()], Numbers())
    with pytest.raises(PolyglanceError, match="no image has a caption"):
        MMPTask(model, visuals(), nothing, SYMMETRIC, batch=4)
    alone = CaptionTable.build([Record(captions={"xx": ("10", "11")})], Numbers())
    with pytest.raises(PolyglanceError, match="two languages or more"):
        ParallelTextTask(model, alone, batch=4)


def test_multi_task_weights_and_names_losses() -> None:
    @dataclass(frozen=True)
    class Draw(Batch):
        value: float

        def counts(self) -> dict[str, int]:
            return {"inter": 7}

    class Fixed:
        def __init__(self, value: float) -> None:
            self.value = value

        def sample(self, generator: np.random.Generator) -> Draw:
            return Draw(generator.random())

        def losses(self, batch: Draw) -> dict[str, torch.Tensor]:
            return {"inter": torch.tensor(self.value), "draw": torch.tensor(batch.value)}

    task = MultiTask([("a", Fixed(2.0), 1.0), ("b", Fixed(4.0), 0.5)])
    batch = task.sample(np.random.default_rng(0))
    losses = task.losses(batch)
    assert batch.counts() == {"a.inter": 7, "b.inter": 7}
    again = np.random.default_rng(0)
    expected = {"a.inter": 2, "a.draw": again.random(), "b.inter": 2, "b.draw": again.random() / 2}
    assert {key: float(loss) for key, loss in losses.items()} == pytest.approx(expected)


def test_turns_draw_one_task_a_step_with_its_weight() -> None:
    class Fixed:
        def __init__(self, value: float) -> None:
            self.value = value

        def sample(self, generator: np.random.Generator) -> Batch:
            return Batch()

        def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
            return {"loss": torch.tensor(self.value)}

    task = TurnTask([("a", Fixed(2.0), 1.0), ("b", Fixed(4.0), 0.25), ("c", Fixed(1.0), 3.0)])
    generator = np.random.default_rng(0)
    drawn = [task.losses(task.sample(generator)) for _ in range(3000)]
    counts = Counter(key for losses in drawn for key in losses)
    assert all(len(losses) == 1 for losses in drawn)
    assert {key: float(loss) for losses in drawn for key, loss in losses.items()} == {
        "a.loss": 2.0, "b.loss": 1.0, "c.loss": 3.0
    }  # fmt: skip
    assert all(count == pytest.approx(1000, abs=130) for count in counts.values())  # 5 deviations

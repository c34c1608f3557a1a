"""What each objective of UC2 teaches, on the toy world: margins that a broken one misses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.toy_regions import first_region_records, first_regions
from polyglance.evaluation.pair_scores import PairScores
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.models.uc2 import UC2
from polyglance.recipes.uc2.tasks import (
    ITMTask,
    MLMTask,
    MRTMTask,
    RetrievalTask,
    VTLMTask,
)
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, Task, seed_step
from toy_uc2 import LANGUAGES, World, make_world


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def learn(model: UC2, tasks: Mixture, folder: Path, steps: int, rate: float = 6e-3) -> None:
    config = LoopConfig(
        steps=steps, learning_rate=rate, schedule="cosine", warmup=steps // 10, grad_clip=1.0,
        save_every=0,
    )  # fmt: skip
    train_loop(model, tasks, config, folder, quiet=True)


@torch.no_grad()
def mean_loss(task: Task, steps: int = 8) -> float:
    losses = [next(iter(task.losses(seed_step(9, step, 0)).values())) for step in range(steps)]
    return float(torch.stack(losses).mean())


def found(world: World, model: UC2, language: str) -> float:
    """The mean recall of all pairs scored in one language; by chance 9."""
    captions = world.table(first_region_records(world.gallery, language))
    scores = PairScores(model, first_regions(world.gallery), captions)
    rows = np.arange(len(captions))
    return summarise(ranks_from_scores(scores.table(rows), captions.record_ids)).mean_recall


@pytest.mark.parametrize("objective", ["matching", "ranking"])
def test_pictures_are_found_in_all_languages_trained_on(
    world: World, tmp_path: Path, objective: str
) -> None:
    model, corpus = world.model(layers=2), world.things(*LANGUAGES)
    before = [found(world, model, language) for language in LANGUAGES]
    task: Task = ITMTask(model, corpus, batch=72)
    if objective == "ranking":
        task = RetrievalTask(model, corpus, batch=24)
    learn(model, Mixture({objective: task}), tmp_path, steps=100)
    after = [found(world, model, language) for language in LANGUAGES]
    assert max(before) < 20
    assert min(after) > 30


def test_hidden_words_are_told_from_the_picture_and_hidden_regions_from_the_words(
    world: World, tmp_path: Path
) -> None:
    model, corpus = world.model(), world.things(*LANGUAGES)
    masking = replace(world.masking, rate=0.3)
    words = MLMTask(model, corpus, masking, batch=32)
    regions = MRTMTask(model, corpus, world.label_words, batch=32, rate=1.0, form="reference")
    learn(model, Mixture({"mlm": words, "mrtm": regions}), tmp_path, steps=220, rate=1e-2)
    # A word that is guessed without the picture costs ln 8 for a colour and ln 6 for a shape. A
    # region without the words costs more than ln 48 in either language; with them, which of
    # the sub-words of its name was drawn, ln 2 or a little more.
    assert mean_loss(words) < 0.8
    assert mean_loss(regions) < 1.6


def test_words_hidden_in_both_languages_are_told_from_the_picture_alone(
    world: World, tmp_path: Path
) -> None:
    records = first_region_records(world.pictures, *LANGUAGES)
    table, regions = world.table(records), first_regions(world.pictures)
    pairs = world.pairs(records, table)
    masking = replace(world.masking, rate=0.3)
    losses = {}
    for name, seen in (("vtlm", regions), ("tlm", None)):
        model = world.model()
        task = VTLMTask(model, seen, pairs, masking, batch=32)
        learn(model, Mixture({"vtlm": task}), tmp_path / name, steps=90, rate=1e-2)
        losses[name] = mean_loss(task)
    # A colour that is guessed costs ln 8 in one language, and nothing else gives it away.
    assert losses["vtlm"] < 1.2
    assert losses["tlm"] > 2.0

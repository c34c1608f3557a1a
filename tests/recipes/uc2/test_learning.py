"""What each objective of UC2 learns on the toy dataset, with margins that a broken one misses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.steps import losses_at
from helpers.toy_regions import first_region_records, first_regions
from helpers.toy_uc2 import LANGUAGES, ToyUC2, make_toy_uc2
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
from polyglance.training.mixture import Mixture, Task


@pytest.fixture(scope="module")
def toy() -> ToyUC2:
    return make_toy_uc2()


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
    losses = [next(iter(losses_at(task, 9, step).values())) for step in range(steps)]
    return float(torch.stack(losses).mean())


def mean_recall(toy: ToyUC2, model: UC2, language: str) -> float:
    """Return the mean recall of all pairs in one language; by chance 9."""
    captions = toy.table(first_region_records(toy.test_pictures, language))
    scores = PairScores(model, first_regions(toy.test_pictures), captions)
    rows = np.arange(len(captions))
    return summarise(ranks_from_scores(scores.table(rows), captions.record_ids)).mean_recall


@pytest.mark.parametrize("objective", ["itm", "retrieval"])
def test_images_are_retrieved_in_all_training_languages(
    toy: ToyUC2, tmp_path: Path, objective: str
) -> None:
    model, corpus = toy.model(layers=2), toy.single_region_corpus(*LANGUAGES)
    before = [mean_recall(toy, model, language) for language in LANGUAGES]
    task: Task = ITMTask(model, corpus, batch=72)
    if objective == "retrieval":
        task = RetrievalTask(model, corpus, batch=24)
    learn(model, Mixture({objective: task}), tmp_path, steps=100)
    after = [mean_recall(toy, model, language) for language in LANGUAGES]
    assert max(before) < 20
    assert min(after) > 30


def test_mlm_uses_the_image_and_mrtm_the_words(toy: ToyUC2, tmp_path: Path) -> None:
    model, corpus = toy.model(), toy.single_region_corpus(*LANGUAGES)
    masking = replace(toy.masking, rate=0.3)
    words = MLMTask(model, corpus, masking, batch=32)
    regions = MRTMTask(model, corpus, toy.label_tokens, batch=32, rate=1.0, variant="reference")
    learn(model, Mixture({"mlm": words, "mrtm": regions}), tmp_path, steps=220, rate=1e-2)
    # Without the image, a masked word costs ln 8 for a colour and ln 6 for a shape. Without the
    # words, a region costs more than ln 48; with them, ln 2 or a little more, since any sub-word
    # of its name may be the target.
    assert mean_loss(words) < 0.8
    assert mean_loss(regions) < 1.6


def test_vtlm_uses_the_image_for_words_masked_in_both_languages(
    toy: ToyUC2, tmp_path: Path
) -> None:
    records = first_region_records(toy.train_pictures, *LANGUAGES)
    table, regions = toy.table(records), first_regions(toy.train_pictures)
    pairs = toy.aligned_captions(records, table)
    masking = replace(toy.masking, rate=0.3)
    losses = {}
    for name, images in (("vtlm", regions), ("tlm", None)):
        model = toy.model()
        task = VTLMTask(model, images, pairs, masking, batch=32)
        learn(model, Mixture({"vtlm": task}), tmp_path / name, steps=60, rate=1.5e-2)
        losses[name] = mean_loss(task)
    # Guessing a colour costs ln 8 in one language, and only the image shows it.
    assert losses["vtlm"] < 1.2
    assert losses["tlm"] > 2.0

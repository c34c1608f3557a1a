"""Choose how CLC-C is trained by cross-validation over the validation images.

The paper trains CLC-C on the validation set for 30 iterations and names no optimiser. With Adam
at 1e-2 weights that begin at 1 / |L| may all become negative within these, so that every ReLU
is cut off and all pairs score 0. Therefore several optimisers are tried on one half of the
images, compared by mR on the other half, and the other way round. The best is trained again on
all of them; if it then ranks these worse than the plain average does, the next best is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.models.consistency import (
    ConsistencyTraining,
    LearnedConsistency,
    Optimiser,
    as_average,
    train_consistency,
)
from polyglance.objectives.top_triplets import PAPER_RULE

ScoreTable = tuple[Tensor, Tensor]
"""Scores ``(languages, images, captions)``, and the image of each caption."""

_OPTIMISERS: tuple[tuple[Optimiser, float], ...] = (
    ("adam", 1e-2),
    ("adam", 1e-3),
    ("sgd", 1e-1),
    ("sgd", 1e-2),
)
_MORE_NEGATIVES = 300
_FOLDS = 2


@dataclass(frozen=True, eq=False)
class ConsistencyChoice:
    """A trained CLC-C, and how its training was chosen."""

    module: LearnedConsistency
    training: ConsistencyTraining
    recalls: dict[str, float]
    """mR on held-out validation images of everything that was tried."""
    dead_units: int
    """Hidden units that are zero for every validation pair."""


def consistency_choices(
    training: ConsistencyTraining | None = None,
) -> tuple[list[ConsistencyTraining], list[ConsistencyTraining]]:
    """Return ways of training CLC-C: the paper's, which differ in the optimiser, and others.

    The paper learns from the ten most violated constraints of each pair, among the few hundred
    candidates of a batch. In a validation set there are thousands, and the ten hardest may score
    higher than most right ones. The others therefore have more constraints, and one of them is
    the plain average.

    Args:
        training: What all of them have in common; None for the paper's 30 iterations.
    """
    common = training or ConsistencyTraining()
    paper = [replace(common, optimiser=name, learning_rate=rate) for name, rate in _OPTIMISERS]
    rule = replace(PAPER_RULE, negatives=_MORE_NEGATIVES)
    others = [replace(training, rule=rule) for training in paper[:2]]
    return paper, [*others, as_average(paper[0])]


def choose_consistency(
    tables: Sequence[ScoreTable], choices: Sequence[ConsistencyTraining], *, seed: int = 0
) -> ConsistencyChoice:
    """Train CLC-C in the way that is best on held-out images.

    Args:
        tables: Validation scores for the queries of one language or of several; all have the
            same images.
        choices: Ways to train it.
        seed: Of the halves of the images, and of initial weights.

    Returns:
        The network, trained on all images.
    """
    halves = _halves(tables, seed)
    recalls = {}
    for training in choices:
        found = []
        for learned_from, held_out in halves:
            module = train_consistency(learned_from, training, seed=seed)
            found.append(_mean_recalls(module, held_out))
        recalls[describe(training)] = fmean(found)
    average = _mean_recalls(train_consistency(tables, as_average(choices[0])), tables)
    trained: list[tuple[float, ConsistencyTraining, LearnedConsistency]] = []
    for training in sorted(choices, key=lambda training: -recalls[describe(training)]):
        module = train_consistency(tables, training, seed=seed)
        trained.append((_mean_recalls(module, tables), training, module))
        if trained[-1][0] >= average:
            break
    # What is best on halves may still fail on all images: then the best of what was trained.
    _, best, module = trained[-1] if trained[-1][0] >= average else max(trained, key=_first)
    dead_units = module.dead_units(scores for scores, _ in tables)
    if dead_units.all():
        raise PolyglanceError(
            "every hidden unit of CLC-C is zero for all pairs, so that all score alike: train with"
            " clc_initialisation=random"
        )
    return ConsistencyChoice(module, best, recalls, int(dead_units.sum()))


def _first(row: tuple[float, ConsistencyTraining, LearnedConsistency]) -> float:
    return row[0]


def _mean_recalls(module: LearnedConsistency, tables: Sequence[ScoreTable]) -> float:
    return fmean(mean_recall(module, table) for table in tables)


def describe(training: ConsistencyTraining) -> str:
    """Name a way of training in a report."""
    if training.iterations == 0:
        return "average"
    return f"{training.optimiser} {training.learning_rate:g}, {training.rule.negatives} negatives"


@torch.no_grad()
def mean_recall(module: LearnedConsistency, table: ScoreTable) -> float:
    """Return mR of a network on a table of scores."""
    blocks = [module(part).cpu() for part in torch.split(table[0], 128, dim=1)]
    ranks = ranks_from_scores(torch.cat(blocks).numpy(), table[1].cpu().numpy())
    return float(summarise(ranks).mean_recall)


def _halves(
    tables: Sequence[ScoreTable], seed: int
) -> list[tuple[list[ScoreTable], list[ScoreTable]]]:
    """Return pairs of (tables to learn from, tables to measure), each of half of the images."""
    images = tables[0][0].shape[1]
    if images < _FOLDS:
        raise PolyglanceError(
            f"CLC-C is chosen on halves of the validation images, of which there are {images}:"
            f" give {_FOLDS} or more"
        )
    order = np.random.default_rng(seed).permutation(images)
    folds = [np.sort(order[fold::_FOLDS]) for fold in range(_FOLDS)]
    parts = [[_of_images(table, fold) for table in tables] for fold in folds]
    return [(parts[0], parts[1]), (parts[1], parts[0])]


def _of_images(table: ScoreTable, images: np.ndarray) -> ScoreTable:
    scores, image_ids = table
    rows = torch.from_numpy(images).to(scores.device)
    new_ids = torch.full((scores.shape[1],), -1, dtype=torch.int64, device=scores.device)
    new_ids[rows] = torch.arange(len(rows), device=scores.device)
    kept = new_ids[image_ids] >= 0
    return scores[:, rows][..., kept], new_ids[image_ids[kept]]

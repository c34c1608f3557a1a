from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.steps import losses_at
from polyglance.batches.batch import Batch
from polyglance.objectives.top_triplets import TripletRule
from polyglance.training.mixture import step_generator, step_of
from polyglance.training.triplet_curriculum import TripletCurriculum


class Noting:
    """A task that notes the rule it is given."""

    def __init__(self) -> None:
        self.rules: list[TripletRule] = []
        self.rule = TripletRule()

    def set_rule(self, rule: TripletRule) -> None:
        self.rule = rule

    def sample(self, generator: np.random.Generator) -> Batch:
        return Batch()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        self.rules.append(self.rule)
        return {"loss": torch.zeros(())}


def noted(steps: int, candidates: int, easy: int) -> list[TripletRule]:
    task = Noting()
    rule = TripletRule(margin=0.3, negatives=10)
    curriculum = TripletCurriculum(task, task.set_rule, rule, candidates=candidates, steps=easy)
    for step in range(steps):
        losses_at(curriculum, 5, step)
    return task.rules


def test_negatives_fall_geometrically() -> None:
    rules = noted(6, candidates=160, easy=4)
    assert [rule.negatives for rule in rules] == [160, 80, 40, 20, 10, 10]
    assert {rule.margin for rule in rules} == {0.3}


def test_curriculum_of_no_steps_uses_the_final_rule() -> None:
    assert [rule.negatives for rule in noted(2, candidates=160, easy=0)] == [10, 10]


def test_small_batches_keep_the_rule_s_negatives() -> None:
    assert {rule.negatives for rule in noted(5, candidates=4, easy=3)} == {10}


def test_step_comes_from_the_generator() -> None:
    assert [step_of(step_generator(3, step)) for step in (0, 7, 123_456)] == [0, 7, 123_456]
    with pytest.raises(ValueError, match="make it with step_generator"):
        step_of(np.random.default_rng([3, 7]))

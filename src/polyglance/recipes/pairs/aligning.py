"""A stage before all others of M3P or UC2: pictures and sentences read apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.config import check
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.models.m3p import M3P
from polyglance.models.uc2 import UC2
from polyglance.recipes.measuring import by_language, checkpoint_score
from polyglance.recipes.pairs.measuring import language_numbers
from polyglance.recipes.pairs.region_splits import Split
from polyglance.recipes.stages import run_stage, stage_loop
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import Mixture
from polyglance.training.pair_alignment import PairAlignment, embed_apart


@dataclass(frozen=True)
class Alignment:
    """Which captions and pictures belong together, told without reading them together.

    See `polyglance.training.pair_alignment`.
    """

    batch: int = 512
    """Pictures a step, each with a caption."""
    temperature: float = 0.05
    steps: int = 1000
    learning_rate: float = 1e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 2, "2 or more", "batch")
        check(self, lambda value: value >= 1, "1 or more", "steps")
        check(self, lambda value: value > 0, "a number above 0", "temperature", "learning_rate")

    def run(
        self,
        model: M3P | UC2,
        train: Split,
        validation: Split | None,
        after: LoopConfig,
        folder: Path,
        groups: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Train the stage; returns what to report, with what it finds by cosines in the end."""
        task = PairAlignment(
            model,
            train.regions,
            train.captions,
            batch=self.batch,
            temperature=self.temperature,
            languages=language_numbers(model, train.captions),
        )
        done = run_stage(
            model, Mixture({"alignment": task}), stage_loop(after, self), folder, groups=groups
        )
        if validation is not None:
            done["validation"] = found_apart(model, validation)
        return done


def found_apart(model: M3P | UC2, split: Split) -> dict[str, float]:
    """mR by cosines among all pictures by one caption a language, and the mean of them."""
    model.eval()
    asked = {}
    for language, rows in by_language(split.captions):
        owners, first = np.unique(split.captions.owners[rows], return_index=True)
        asked[language] = owners, rows[first]
    pictures, sentences = embed_apart(
        model,
        split.regions,
        split.captions,
        np.concatenate([rows for _, rows in asked.values()]),
        language_numbers(model, split.captions),
    )
    scores = np.split(
        (pictures @ sentences.T).cpu().numpy(),
        np.cumsum([len(owners) for owners, _ in asked.values()])[:-1],
        axis=1,
    )
    found = zip(asked.items(), scores, strict=True)
    return checkpoint_score(
        {code: summarise(ranks_from_scores(table, owners)) for (code, (owners, _)), table in found}
    )

"""What M3P learns in one step (section 3.2).

`MultilingualText` is xMLM. `DescribedRegions` is the rest, MC-MLM, MC-MRM and
MC-VLM, in one packed pass: some pairs have words hidden, some regions, and of some
it is asked whether they belong together. With matching alone and three negatives
it is the fine-tuning for retrieval (section 4.2). `polyglance.training.pairing.Together`
adds both up with the same weight, as the paper does; the published code takes
them by turns, as a `Mixture` would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.config import check
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P
from polyglance.nn.joint import Regions
from polyglance.nn.sending import sent
from polyglance.objectives.masked_language import (
    WordMasking,
    inner_words,
    mask_words,
    masked_language,
)
from polyglance.objectives.masked_regions import (
    hide_regions,
    region_classification,
    region_regression,
)
from polyglance.objectives.matching import matching
from polyglance.training.caption_sources import CaptionSource, read_captions
from polyglance.training.distribution import own_share
from polyglance.training.mismatches import draw_pairs
from polyglance.training.mixture import step_of
from polyglance.training.region_table import RegionTable

Indices = NDArray[np.int64]
PairTask = Literal["words", "regions", "matching"]


class MultilingualText:
    """xMLM: words of sentences in many languages, told from their neighbours.

    The n-th language is drawn with a share of ``p_n ** smoothing``, where ``p_n`` is
    its part of the corpus (0.3 in the paper, so that small languages count).
    """

    def __init__(
        self,
        model: M3P,
        corpus: CaptionTable,
        masking: WordMasking,
        *,
        batch: int,
        smoothing: float = 0.3,
    ) -> None:
        if not len(corpus):
            raise PolyglanceError("the corpus of texts has no sentence to learn from")
        self.model, self.corpus, self.masking, self.batch = model, corpus, masking, batch
        self.languages = model.config.language_numbers(corpus.names)
        self._rows = np.argsort(corpus.languages, kind="stable")
        self._count = np.bincount(corpus.languages, minlength=len(corpus.names))
        self._start = np.cumsum(self._count) - self._count
        self.shares = language_shares(self._count, smoothing)

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw sentences, a language and then one of it, and tell their hidden words."""
        text = read_captions(self.corpus, self.draw(generator), self.languages)
        masked = mask_words(text.ids, text.packing, self.masking)
        device = next(self.model.parameters()).device
        rows = self.model(replace(text, ids=masked.ids).to(device), None).text
        return {"words": _words_loss(self.model, rows, masked.places, masked.targets)}

    def draw(self, generator: np.random.Generator) -> Indices:
        """The rows of a batch of sentences."""
        languages = generator.choice(len(self.shares), self.batch, p=self.shares)
        within = generator.integers(self._count[languages])
        return np.asarray(self._rows[self._start[languages] + within])


def language_shares(counts: Indices, smoothing: float = 0.3) -> NDArray[np.float64]:
    """``p ** smoothing`` for each language, in sum 1; languages without sentences have none."""
    parts = counts / counts.sum()
    smoothed = np.where(counts > 0, parts**smoothing, 0.0)
    return np.asarray(smoothed / smoothed.sum())


@dataclass(frozen=True)
class PairObjective:
    """What is learned of pairs. The defaults are the paper's pre-training."""

    masking: WordMasking
    tasks: tuple[PairTask, ...] = ("words", "regions", "matching")
    """MC-MLM, MC-MRM and MC-VLM; ``matching`` alone is the fine-tuning for retrieval."""
    negatives: int = 1
    """Pairs that do not belong together for each that does; the paper fine-tunes with 3."""
    region_rate: float = 0.15
    regions_zeroed: float = 0.9

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "negatives")
        shares = ("region_rate", "regions_zeroed")
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", *shares)
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise PolyglanceError(f"tasks are one or more, each once, not {list(self.tasks)}")


class DescribedRegions:
    """Pictures as regions, with captions: what a pair has to teach."""

    def __init__(
        self,
        model: M3P,
        regions: RegionTable,
        captions: CaptionSource,
        objective: PairObjective,
        *,
        batch: int,
        neighbours: Indices | None = None,
        easy_steps: int = 0,
    ) -> None:
        """Each task of a step has ``batch`` pairs of its own, matching its negatives besides.

        ``neighbours`` names pictures that are hard to tell from each picture, a
        row of numbers for each: negatives are then drawn from these, in the first
        ``easy_steps`` a share of them that grows from none to all.
        """
        self.easy_steps = easy_steps
        self.model, self.regions, self.captions = model, regions, captions
        self.objective, self.neighbours = objective, neighbours
        self.languages = model.config.language_numbers(captions.table.names)
        self.items = own_share(captions.items)
        if len(self.items) < 2:
            raise PolyglanceError(
                "two pictures with captions at least are needed to train on: choose languages"
                " that the corpus has"
            )
        self.batch = min(batch, len(self.items))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pairs for each task and read them all at once."""
        step = self._draw(generator)
        table, device = self.captions.table, self.regions.features.device
        text = read_captions(table, step.captions, self.languages)
        regions, labels = self.regions.take(step.pictures, generator)
        if self.objective.tasks == ("matching",):  # nothing is hidden, and one vector a pair read
            scores = self.model.score(text.to(device), self.model.embed_regions(regions))
            return {"matching": matching(scores, torch.from_numpy(step.matched))}
        # Which rows of words and regions belong to which task, known before anything is moved.
        words_of = torch.repeat_interleave(torch.from_numpy(step.tasks), text.packing.lengths)
        regions_of = torch.from_numpy(np.repeat(step.tasks, self.regions.lengths[step.pictures]))
        hidden_words = inner_words(text.packing) & (words_of == _WORDS)
        words = mask_words(text.ids, text.packing, self.objective.masking, maskable=hidden_words)
        hidden = hide_regions(
            regions.features,
            rate=self.objective.region_rate,
            hidden=self.objective.regions_zeroed,
            maskable=regions_of == _REGIONS,
            wholes=self.regions.wholes(step.pictures),
        )
        read = self.model(
            replace(text, ids=words.ids).to(device),
            Regions(hidden.features, regions.boxes, regions.packing),
        )
        losses: dict[str, Tensor] = {}
        if "words" in self.objective.tasks:
            losses["words"] = _words_loss(self.model, read.text, words.places, words.targets)
        if "regions" in self.objective.tasks:
            places = sent(hidden.places, device)
            rows = read.regions[places]
            targets = self.model.as_seen(hidden.targets)
            losses["features"] = region_regression(self.model.region_features(rows), targets)
            logits = self.model.region_logits(rows)
            losses["labels"] = region_classification(logits, labels[places])
        if "matching" in self.objective.tasks:
            asked = sent(torch.from_numpy(np.flatnonzero(step.tasks == _MATCHING)), device)
            logits = self.model.matching(read.first[asked])
            losses["matching"] = matching(logits, torch.from_numpy(step.matched))
        return losses

    def _draw(self, generator: np.random.Generator) -> _Step:
        """Pairs for all tasks, one after another."""
        pictures, captions, tasks = [], [], []
        matched = np.zeros(0, bool)
        for task in self.objective.tasks:
            items = generator.choice(self.items, self.batch, replace=False)
            if task == "matching":
                pairs = draw_pairs(
                    items,
                    self.items,
                    self.captions,
                    generator,
                    negatives=self.objective.negatives,
                    neighbours=self.neighbours,
                    near=step_of(generator) / self.easy_steps if self.easy_steps else 1.0,
                )
                pictures.append(pairs.pictures)
                captions.append(pairs.captions)
                matched = pairs.matched
            else:
                pictures.append(items)
                captions.append(self.captions.sample(items, generator))
            tasks.append(np.full(len(pictures[-1]), _NUMBER[task], np.int64))
        return _Step(
            np.concatenate(pictures), np.concatenate(captions), np.concatenate(tasks), matched
        )


_WORDS, _REGIONS, _MATCHING = range(3)
_NUMBER: dict[PairTask, int] = {"words": _WORDS, "regions": _REGIONS, "matching": _MATCHING}


@dataclass(frozen=True, eq=False)
class _Step:
    pictures: Indices
    captions: Indices
    tasks: Indices
    """The number of the task that each pair is for."""
    matched: NDArray[np.bool_]
    """Whether the pairs of matching belong together."""


def _words_loss(model: M3P, rows: Tensor, places: Tensor, targets: Tensor) -> Tensor:
    """Logits are computed for hidden words alone: the vocabulary is wide."""
    places, targets = (sent(part, rows.device) for part in (places, targets))
    return masked_language(model.word_logits(rows[places]), targets)

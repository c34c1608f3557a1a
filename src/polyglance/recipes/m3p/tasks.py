"""M3P's tasks (section 3.2).

`XMLMTask` is xMLM, on text alone. `MCTTask` is multimodal code-switched training: MC-MLM,
MC-MRM and MC-VLM in one packed pass. With MC-VLM alone and three negatives it is fine-tuning
for retrieval (section 4.2). `polyglance.training.mixture.MultiTask` sums both, as in the
paper; the published code alternates between them, as a `Mixture` would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionTable
from polyglance.config import validate_fields
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import to_device
from polyglance.objectives.masked_language import (
    TokenMasking,
    mask_tokens,
    maskable_tokens,
    mlm_loss,
)
from polyglance.objectives.masked_regions import (
    mask_regions,
    region_classification,
    region_regression,
)
from polyglance.objectives.matching import itm_loss
from polyglance.recipes.cross_encoder.captions import CaptionSource
from polyglance.recipes.cross_encoder.hard_negatives import sample_pairs
from polyglance.training.distributed import shard_for_rank
from polyglance.training.mixture import step_of

Indices = NDArray[np.int64]
MCTaskName = Literal["mc_mlm", "mc_mrm", "mc_vlm"]
TASK_NAMES: tuple[MCTaskName, ...] = ("mc_mlm", "mc_mrm", "mc_vlm")


class XMLMTask:
    """xMLM: predict masked words of sentences in many languages.

    The n-th language is sampled with probability proportional to ``p_n ** language_alpha``,
    where ``p_n`` is its share of the corpus (0.3 in the paper, which favours small languages).
    """

    def __init__(
        self,
        model: M3P,
        corpus: CaptionTable,
        masking: TokenMasking,
        *,
        batch: int,
        language_alpha: float = 0.3,
    ) -> None:
        if not len(corpus):
            raise PolyglanceError("the corpus of texts has no sentences: name others in texts")
        self.model, self.corpus, self.masking, self.batch = model, corpus, masking, batch
        self.language_ids = model.language_ids(corpus.language_codes)
        self._rows = np.argsort(corpus.language_ids, kind="stable")
        self._count = np.bincount(corpus.language_ids, minlength=len(corpus.language_codes))
        self._start = np.cumsum(self._count) - self._count
        self.probabilities = language_probabilities(self._count, language_alpha)

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Sample sentences and predict their masked words."""
        rows = self.sample(generator)
        text = pack_captions(self.corpus, rows, language_ids=self.language_ids)
        masked = mask_tokens(text.ids, text.packing, self.masking)
        device = next(self.model.parameters()).device
        hidden = self.model(replace(text, ids=masked.ids).to(device), None).text
        return {"xmlm": _word_loss(self.model, hidden, masked.positions, masked.targets)}

    def sample(self, generator: np.random.Generator) -> Indices:
        """Sample a language, then a sentence in it, for each row of a batch."""
        languages = generator.choice(len(self.probabilities), self.batch, p=self.probabilities)
        within = generator.integers(self._count[languages])
        return np.asarray(self._rows[self._start[languages] + within])


def language_probabilities(counts: Indices, language_alpha: float = 0.3) -> NDArray[np.float64]:
    """Return ``p ** language_alpha``, normalised; languages without sentences have 0."""
    shares = counts / counts.sum()
    weights = np.where(counts > 0, shares**language_alpha, 0.0)
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True)
class MCTObjective:
    """What `MCTTask` learns. The defaults are the paper's pre-training."""

    masking: TokenMasking
    tasks: tuple[MCTaskName, ...] = TASK_NAMES
    """``mc_vlm`` alone is fine-tuning for retrieval."""
    negatives: int = 1
    """Pairs that do not match, for each that does; the paper fine-tunes with 3."""
    region_rate: float = 0.15
    """The share of regions to predict."""
    regions_zeroed: float = 0.9
    """The share of these that are masked."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "negatives")
        shares = ("region_rate", "regions_zeroed")
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", *shares)
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise PolyglanceError(f"tasks must be one or more, each once, not {list(self.tasks)}")


class MCTTask:
    """MC-MLM, MC-MRM and MC-VLM on pairs of images and (code-switched) captions."""

    def __init__(
        self,
        model: M3P,
        regions: RegionTable,
        captions: CaptionSource,
        objective: MCTObjective,
        *,
        batch: int,
        hard_negatives: Indices | None = None,
        warmup_steps: int = 0,
    ) -> None:
        """Prepare the tasks.

        Args:
            model: M3P.
            regions: of the training images.
            captions: of the same images.
            objective: which tasks, and their rates.
            batch: pairs of each task a step; MC-VLM has its negatives besides.
            hard_negatives: ``(images, k)``, for each image others that are hard to tell apart,
                which negatives are then sampled from.
            warmup_steps: over so many steps the share of hard negatives grows from 0 to 1.
        """
        self.model, self.regions, self.captions = model, regions, captions
        self.objective, self.hard_negatives = objective, hard_negatives
        self.warmup_steps = warmup_steps
        self.language_ids = model.language_ids(captions.table.language_codes)
        self.images = shard_for_rank(captions.images)
        if len(self.images) < 2:
            raise PolyglanceError(
                "training needs at least two images with captions: choose languages that the"
                " corpus has"
            )
        self.batch = min(batch, len(self.images))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Sample pairs for each task and encode them all at once."""
        batch = self._sample(generator)
        device = self.regions.features.device
        text = pack_captions(self.captions.table, batch.captions, language_ids=self.language_ids)
        regions, labels = self.regions.take(batch.images, generator)
        if self.objective.tasks == ("mc_vlm",):  # nothing is masked: one vector a pair suffices
            scores = self.model.score(text.to(device), self.model.embed_regions(regions))
            return {"mc_vlm": itm_loss(scores, torch.from_numpy(batch.matched))}
        # Which sub-words and regions belong to which task, before anything is moved.
        word_task = torch.repeat_interleave(torch.from_numpy(batch.task), text.packing.lengths)
        region_task = torch.from_numpy(np.repeat(batch.task, self.regions.lengths[batch.images]))
        words = mask_tokens(
            text.ids,
            text.packing,
            self.objective.masking,
            maskable=maskable_tokens(text.packing) & (word_task == _MC_MLM),
        )
        masked = mask_regions(
            regions.features,
            rate=self.objective.region_rate,
            hidden=self.objective.regions_zeroed,
            maskable=region_task == _MC_MRM,
            global_rows=self.regions.global_rows(batch.images),
        )
        output = self.model(
            replace(text, ids=words.ids).to(device),
            Regions(masked.features, regions.boxes, regions.packing),
        )
        losses: dict[str, Tensor] = {}
        if "mc_mlm" in self.objective.tasks:
            losses["mc_mlm"] = _word_loss(self.model, output.text, words.positions, words.targets)
        if "mc_mrm" in self.objective.tasks:
            positions = to_device(masked.positions, device)
            rows = output.regions[positions]
            losses["mc_mrm_features"] = region_regression(
                self.model.predict_features(rows), masked.targets
            )
            logits = self.model.label_logits(rows)
            losses["mc_mrm_labels"] = region_classification(logits, labels[positions])
        if "mc_vlm" in self.objective.tasks:
            pairs = to_device(torch.from_numpy(np.flatnonzero(batch.task == _MC_VLM)), device)
            logits = self.model.match_logits(output.pooled[pairs])
            losses["mc_vlm"] = itm_loss(logits, torch.from_numpy(batch.matched))
        return losses

    def _sample(self, generator: np.random.Generator) -> _Batch:
        """Sample pairs for all tasks, one task after another."""
        images, captions, tasks = [], [], []
        matched = np.zeros(0, bool)
        for name in self.objective.tasks:
            sampled = generator.choice(self.images, self.batch, replace=False)
            if name == "mc_vlm":
                step = step_of(generator)
                pairs = sample_pairs(
                    sampled,
                    self.images,
                    self.captions,
                    generator,
                    negatives=self.objective.negatives,
                    hard_negatives=self.hard_negatives,
                    hard_share=step / self.warmup_steps if self.warmup_steps else 1.0,
                )
                images.append(pairs.images)
                captions.append(pairs.captions)
                matched = pairs.matched
            else:
                images.append(sampled)
                captions.append(self.captions.sample(sampled, generator))
            tasks.append(np.full(len(images[-1]), TASK_NAMES.index(name), np.int64))
        return _Batch(
            np.concatenate(images), np.concatenate(captions), np.concatenate(tasks), matched
        )


_MC_MLM, _MC_MRM, _MC_VLM = range(3)


@dataclass(frozen=True, eq=False)
class _Batch:
    """The pairs of a step."""

    images: Indices
    captions: Indices
    task: Indices
    """The index in `TASK_NAMES` of the task that each pair is for."""
    matched: NDArray[np.bool_]
    """Whether the pairs of MC-VLM match."""


def _word_loss(model: M3P, hidden: Tensor, positions: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of masked words; logits are computed for these alone."""
    positions, targets = (to_device(part, hidden.device) for part in (positions, targets))
    return mlm_loss(model.word_logits(hidden[positions]), targets)

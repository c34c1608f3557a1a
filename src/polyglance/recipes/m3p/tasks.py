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

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import pack_captions
from polyglance.batches.order import GroupedOrder
from polyglance.batches.regions import RegionBatch, RegionSource
from polyglance.config import validate_fields
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P
from polyglance.nn.packed_pairs import Text
from polyglance.objectives.masked_language import (
    MaskedTokens,
    TokenMasking,
    mask_tokens,
    maskable_tokens,
)
from polyglance.objectives.masked_regions import (
    NO_LABEL,
    RegionMask,
    choose_regions,
    mask_features,
    region_classification,
    region_regression,
)
from polyglance.objectives.matching import itm_loss
from polyglance.recipes.cross_encoder.batches import MaskedBatch
from polyglance.recipes.cross_encoder.captions import CaptionSource, Streaming
from polyglance.recipes.cross_encoder.hard_negatives import sample_pairs
from polyglance.training.mixture import item_draws, rank_share, step_of, take_in_order

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

    def sample(self, generator: np.random.Generator) -> MaskedBatch:
        """Sample sentences and mask words."""
        share = rank_share(self.batch)
        rows = self.sample_rows(generator)[share]
        draws = item_draws(generator, self.batch, share)
        text = pack_captions(self.corpus, rows, language_ids=self.language_ids)
        masked = mask_tokens(text.ids, text.packing, self.masking, draws)
        text = replace(text, ids=masked.ids)
        return MaskedBatch("xmlm", text, None, masked.positions, masked.targets)

    def losses(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Predict the masked words."""
        batch = batch.to(next(self.model.parameters()).device)
        hidden = self.model(batch.text, None).text[batch.positions]
        return {"xmlm": self.model.word_loss(hidden, batch.targets)}

    def sample_rows(self, generator: np.random.Generator) -> Indices:
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
    at_least_one_region: bool = False
    """Predict the last region of an image in which none was chosen, unmasked, as the published
    code does; `TokenMasking.at_least_one` says the same of words."""
    skip_background: bool = False
    """Never choose regions of class 0 by chance, as the published code, whose detector has the
    background there."""

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
        regions: RegionSource,
        captions: CaptionSource,
        objective: MCTObjective,
        *,
        batch: int,
        hard_negatives: Indices | None = None,
        warmup_steps: int = 0,
        streaming: Streaming | None = None,
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
            streaming: go through the images in shuffled order, and take negatives among those
                of a step, for a corpus on disk.
        """
        self.model, self.regions, self.captions = model, regions, captions
        self.objective, self.hard_negatives = objective, hard_negatives
        self.warmup_steps = warmup_steps
        self.language_ids = model.language_ids(captions.table.language_codes)
        self.images = captions.images
        if len(self.images) < 2:
            raise PolyglanceError(
                "training needs at least two images with captions: choose languages that the"
                " corpus has"
            )
        self.batch = min(batch, len(self.images))
        self._order: GroupedOrder | None = None
        if streaming is not None:
            streaming = replace(streaming, per_batch=len(objective.tasks) * self.batch)
            self._order = streaming.order(np.array([len(self.images)]), np.ones(1))

    def sample(self, generator: np.random.Generator) -> MCTBatch:
        """Sample pairs for each task, and mask words and regions of those that predict some."""
        pairs = self._sample_pairs(generator)
        draws = item_draws(generator, int(pairs.numbers.max()) + 1, pairs.numbers)
        text = pack_captions(self.captions.table, pairs.captions, language_ids=self.language_ids)
        regions = self.regions.select(pairs.images, draws)
        matched = torch.from_numpy(pairs.matched)
        if self.objective.tasks == ("mc_vlm",):  # nothing is masked
            return MCTBatch(text, regions, matched)
        task = torch.from_numpy(pairs.task)
        words = mask_tokens(
            text.ids,
            text.packing,
            self.objective.masking,
            draws,
            maskable=maskable_tokens(text.packing) & (task[text.packing.sequence_ids] == _MC_MLM),
        )
        mask = choose_regions(
            regions.packing,
            draws,
            rate=self.objective.region_rate,
            hidden=self.objective.regions_zeroed,
            maskable=task[regions.packing.sequence_ids] == _MC_MRM,
            background=regions.labels == 0 if self.objective.skip_background else None,
            global_rows=regions.global_rows,
            at_least_one="last" if self.objective.at_least_one_region else "no",
        )
        return MCTBatch(
            replace(text, ids=words.ids),
            regions,
            matched,
            matching_pairs=(task == _MC_VLM).nonzero()[:, 0],
            words=words,
            mask=mask,
            labelled=int((regions.labels[mask.positions] != NO_LABEL).sum()),
        )

    def losses(self, batch: MCTBatch) -> dict[str, Tensor]:
        """Encode the pairs of all tasks at once."""
        batch = batch.to(next(self.model.parameters()).device)
        regions = batch.regions.load()
        if batch.words is None or batch.mask is None:  # one vector a pair suffices
            scores = self.model.score(batch.text, self.model.embed_regions(regions))
            return {"mc_vlm": itm_loss(scores, batch.matched)}
        masked = mask_features(regions.features, batch.mask.masked)
        assert batch.matching_pairs is not None
        of_words, of_regions, pooled = self.model.encode_selected(
            batch.text,
            self.model.embed_regions(replace(regions, features=masked)),
            words=batch.words.positions,
            regions=batch.mask.positions,
            pairs=batch.matching_pairs,
        )
        losses: dict[str, Tensor] = {}
        if "mc_mlm" in self.objective.tasks:
            losses["mc_mlm"] = self.model.word_loss(of_words, batch.words.targets)
        if "mc_mrm" in self.objective.tasks:
            targets = regions.features[batch.mask.positions]  # as they are, in both variants
            predicted = self.model.predict_features(of_regions)
            losses["mc_mrm_features"] = region_regression(predicted, targets)
            labels = batch.regions.labels[batch.mask.positions]
            label_logits = self.model.label_logits(of_regions)
            losses["mc_mrm_labels"] = region_classification(label_logits, labels)
        if "mc_vlm" in self.objective.tasks:
            logits = self.model.match_logits(pooled)
            losses["mc_vlm"] = itm_loss(logits, batch.matched)
        return losses

    def _sample_images(self, generator: np.random.Generator) -> Indices:
        """Sample distinct images, or take the next ones of a corpus on disk."""
        if self._order is None:
            return generator.choice(self.images, self.batch, replace=False)
        _, numbers = take_in_order(self._order, self.batch, generator)
        images: Indices = self.images[numbers]
        return images

    def _sample_pairs(self, generator: np.random.Generator) -> _Pairs:
        """Sample pairs for all tasks, one task after another, and keep this process's."""
        share = rank_share(self.batch)
        own, kept = np.arange(self.batch)[share], []
        images: list[Indices] = []
        captions: list[Indices] = []
        tasks: list[Indices] = []
        matched = np.zeros(0, bool)
        for name in self.objective.tasks:
            sampled, keep = self._sample_images(generator), own
            if name == "mc_vlm":
                step, negatives = step_of(generator), self.objective.negatives
                pairs = sample_pairs(
                    sampled,
                    self.images if self._order is None else np.unique(sampled),
                    self.captions,
                    generator,
                    negatives=negatives,
                    hard_negatives=self.hard_negatives,
                    hard_share=step / self.warmup_steps if self.warmup_steps else 1.0,
                )
                # Matching pairs come first, then the negatives of each.
                others = self.batch + np.arange(self.batch * negatives).reshape(self.batch, -1)
                keep = np.concatenate([own, others[share].ravel()])
                images.append(pairs.images)
                captions.append(pairs.captions)
                matched = pairs.matched[keep]
            else:
                images.append(sampled)
                captions.append(self.captions.sample(sampled, generator))
            kept.append(sum(map(len, tasks)) + keep)
            tasks.append(np.full(len(images[-1]), TASK_NAMES.index(name), np.int64))
        numbers = np.concatenate(kept)
        return _Pairs(
            np.concatenate(images)[numbers],
            np.concatenate(captions)[numbers],
            np.concatenate(tasks)[numbers],
            matched,
            numbers,
        )


_MC_MLM, _MC_MRM, _MC_VLM = range(3)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The pairs of a step that this process has."""

    images: Indices
    captions: Indices
    task: Indices
    """The index in `TASK_NAMES` of the task that each pair is for."""
    matched: NDArray[np.bool_]
    """Whether the pairs of MC-VLM match."""
    numbers: Indices
    """Each pair's number among those of all processes."""


@dataclass(frozen=True, eq=False)
class MCTBatch(Batch):
    """Captions and images of all tasks of a step, some words and regions masked."""

    text: Text
    regions: RegionBatch
    matched: Tensor
    """Whether the pairs of MC-VLM match."""
    matching_pairs: Tensor | None = None
    """Which pairs are for MC-VLM; None if all are."""
    words: MaskedTokens | None = None
    """Words that MC-MLM predicts; None if nothing is masked."""
    mask: RegionMask | None = None
    """Regions that MC-MRM predicts; None if nothing is masked."""
    labelled: int = 0
    """How many of these regions have a label."""

    def counts(self) -> dict[str, int]:
        """Return the number of predicted words, regions, labels and pairs."""
        return {
            "mc_mlm": 0 if self.words is None else len(self.words.targets),
            "mc_mrm_features": 0 if self.mask is None else len(self.mask.positions),
            "mc_mrm_labels": self.labelled,
            "mc_vlm": len(self.matched),
        }

"""What a reader learns in one step: to match, to answer, and to compute the same in 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionBatch, RegionSource
from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP
from polyglance.models.uc2 import UC2
from polyglance.models.vqa import VQAModel
from polyglance.nn.packed_pairs import PackedRows, Regions, Text, encode_first
from polyglance.nn.packing import Packing
from polyglance.objectives.vqa import vqa_loss
from polyglance.recipes.compact_reader.config import RetrievalConfig
from polyglance.recipes.cross_encoder.batches import PairBatch
from polyglance.recipes.uc2.tasks import ImageTextCorpus, Indices, RetrievalTask
from polyglance.recipes.vqa.tasks import QuestionBatch, VQATask
from polyglance.training.mixture import item_draws, rank_share, step_of
from polyglance.utils.ragged import ragged_arange

_BLOCK = 512
"""Images or captions encoded at a time."""


class MatchingTask(Protocol):
    """Ranks matching pairs among others that it samples."""

    model: UC2

    def sample(self, generator: np.random.Generator, /) -> Any:
        """Sample a batch of pairs."""
        ...

    def losses(self, batch: Any, /) -> dict[str, Tensor]:
        """Return the loss of a batch."""
        ...

    def scores(self, model: UC2, batch: Any, regions: Regions, /) -> Tensor:
        """Return a model's scores of a batch's pairs, given the regions of its images."""
        ...


class ListwiseRetrievalTask(RetrievalTask):
    """Rank a matching pair first among its images, and first among its captions.

    Re-ranking sorts a short list, so that the loss is the cross-entropy of the first place in it
    (ListNet's top-one probability, Cao et al. 2007), in both directions, and not that of each pair
    by itself.
    """

    def losses(self, batch: PairBatch) -> dict[str, Tensor]:
        """Return the mean of both directions."""
        batch = batch.to(self.model.word_bias.device)
        scores = self.scores(self.model, batch, batch.regions.load())
        return {"retrieval": listwise_loss(scores.float(), self.negatives)}

    def scores(self, model: UC2, batch: PairBatch, regions: Regions) -> Tensor:
        """Return a model's scores of a batch, ``(pairs, 1 + 2 * negatives)``."""
        return model.score(batch.text, model.embed_regions(regions)).view(batch.matched.shape)

    def sample_hard_captions(
        self, pool: Indices, picked: Indices, languages: Indices, generator: np.random.Generator
    ) -> Indices:
        """Return a caption of any hard image that has one in the language; -1 where none has.

        In many corpora few images have captions in a given language.
        """
        table, shuffled = self.corpus.captions.table, generator.permuted(pool, axis=1)
        has = table.has_language(shuffled, languages[:, None])
        images = shuffled[np.arange(len(pool)), has.argmax(axis=1)]
        return table.sample_in_languages(images, languages, generator)


def listwise_loss(scores: Tensor, negatives: int) -> Tensor:
    """Return the cross-entropy of the matching pair among images and among captions.

    Args:
        scores: ``(pairs, 1 + 2 * negatives)``: the matching pair, those with other images, those
            with other captions.
        negatives: of each kind.
    """
    images = scores[:, : 1 + negatives]
    captions = torch.cat([scores[:, :1], scores[:, 1 + negatives :]], dim=1)
    losses = [-part.log_softmax(1)[:, 0].mean() for part in (images, captions)]
    return (losses[0] + losses[1]) / 2


@dataclass(frozen=True, eq=False)
class GroupBatch(Batch):
    """Groups of images with a caption each; every caption of a group is read beside every image."""

    text: Text
    regions: RegionBatch
    text_rows: Tensor
    """Rows of the text of all pairs: the first caption beside each image, then the second."""
    text_packing: Packing
    region_rows: Tensor
    """Rows of the regions of all pairs."""
    region_packing: Packing
    ignored: Tensor
    """``(groups, size, size)``: true where a caption's own image comes again in its group."""

    def counts(self) -> dict[str, int]:
        """Return the number of captions."""
        return {"retrieval": len(self.text.packing)}


class GroupRetrievalTask:
    """Rank each caption's image first in its group, and each image's caption.

    A group is an image, some that are hard to tell from it, and one caption of each in one
    language, as CLIP contrasts a batch (Radford et al. 2021) but with every pair read. A group of n
    has n * n pairs and n - 1 negatives of either kind for each caption, where lists of so many
    negatives read 2 * n - 1 pairs for each. Every caption and image matches one and mismatches the
    others, so that it does not pay to give some a high score beside everything.
    """

    def __init__(
        self,
        model: UC2,
        corpus: ImageTextCorpus,
        *,
        batch: int,
        group_size: int,
        hard_negatives: Indices | None = None,
        warmup_steps: int = 0,
    ) -> None:
        """Prepare the task.

        Args:
            model: The reader.
            corpus: Images and captions.
            batch: Captions a step, a multiple of ``group_size``.
            group_size: Images, and captions, of a group.
            hard_negatives: ``(images, k)``, for each image others that are hard to tell apart; a
                group has other images where too few of these have a caption in its language.
            warmup_steps: Over so many steps the share of hard negatives grows from 0 to 1.
        """
        self.model, self.corpus, self.group_size = model, corpus, group_size
        self.groups, self.warmup_steps = batch // group_size, warmup_steps
        self.hard_negatives = hard_negatives

    def sample(self, generator: np.random.Generator) -> GroupBatch:
        """Sample groups."""
        share, size = rank_share(self.groups), self.group_size
        captions = self.sample_groups(generator)[share]
        numbers = np.arange(self.groups * size).reshape(self.groups, size)[share].ravel()
        draws = item_draws(generator, self.groups * size, numbers)
        text = self.corpus.text(captions.ravel())
        images = self.corpus.images(captions)
        regions = self.corpus.regions.select(images.ravel(), draws)
        grid = np.arange(captions.size).reshape(-1, 1, size)
        pairs = np.broadcast_to(grid, (len(captions), size, size))
        text_rows, text_packing = repeat_sequences(text.packing, pairs.transpose(0, 2, 1).ravel())
        region_rows, region_packing = repeat_sequences(regions.packing, pairs.ravel())
        same = (images[:, :, None] == images[:, None]) & ~np.eye(size, dtype=bool)
        return GroupBatch(
            text, regions, text_rows, text_packing, region_rows, region_packing,
            torch.from_numpy(same),
        )  # fmt: skip

    def losses(self, batch: GroupBatch) -> dict[str, Tensor]:
        """Return the mean of both directions."""
        batch = batch.to(self.model.word_bias.device)
        scores = self.scores(self.model, batch, batch.regions.load())
        return {"retrieval": group_loss(scores.float(), batch.ignored)}

    def scores(self, model: UC2, batch: GroupBatch, regions: Regions) -> Tensor:
        """Return a model's scores of a batch, ``(groups, captions, images)``."""
        texts = model.embed_text(batch.text).rows[batch.text_rows]
        images = model.embed_regions(regions).rows[batch.region_rows]
        pairs = model.join(
            PackedRows(texts, batch.text_packing), PackedRows(images, batch.region_packing)
        )
        return model.rank_scores(encode_first(model.encoder, pairs)).view(batch.ignored.shape)

    def sample_groups(self, generator: np.random.Generator) -> Indices:
        """Return captions, ``(groups, group_size)``, all of a group in one language."""
        captions, others = self.corpus.captions, self.group_size - 1
        first = captions.sample(self.groups, generator)
        rows = captions.sample_other_images(np.repeat(first, others), generator)
        rows = rows.reshape(-1, others)
        if self.hard_negatives is not None:
            hard = self.sample_hard_captions(first, self.hard_negatives, generator)
            share = step_of(generator) / self.warmup_steps if self.warmup_steps else 1.0
            chosen = (hard >= 0) & (generator.random(hard.shape) < share)
            rows[:, : hard.shape[1]] = np.where(chosen, hard, rows[:, : hard.shape[1]])
        return np.concatenate([first[:, None], rows], axis=1)

    def sample_hard_captions(
        self, first: Indices, hard_negatives: Indices, generator: np.random.Generator
    ) -> Indices:
        """Return captions of hard images of each caption's image, in its language.

        Args:
            first: Captions, ``(groups,)``.
            hard_negatives: ``(images, k)``.
            generator: The source of randomness.

        Returns:
            ``(groups, group_size - 1)``, or fewer columns if ``k`` is less; -1 where too few of
            the images have a caption in the language.
        """
        table = self.corpus.captions.table
        languages = table.language_ids[first][:, None]
        pool = generator.permuted(hard_negatives[self.corpus.images(first)], axis=1)
        lacking = ~table.has_language(pool, languages)
        places = np.argsort(lacking, axis=1, kind="stable")[:, : self.group_size - 1]
        images = np.take_along_axis(pool, places, axis=1)
        return table.sample_in_languages(images, languages, generator)


def repeat_sequences(packing: Packing, sequences: Indices) -> tuple[Tensor, Packing]:
    """Return the rows of some sequences of a packing on the CPU, and their packing."""
    lengths, starts = packing.lengths.numpy(), packing.cu_seqlens[:-1].numpy().astype(np.int64)
    lengths = lengths[sequences].astype(np.int64)
    return torch.from_numpy(ragged_arange(starts[sequences], lengths)), Packing.of(lengths)


def group_loss(scores: Tensor, ignored: Tensor) -> Tensor:
    """Return the cross-entropy of the matching pair among a group's images and its captions.

    Args:
        scores: ``(groups, captions, images)``; the n-th caption is of the n-th image.
        ignored: Of the same shape: true for pairs that are no negatives.
    """
    scores = scores.masked_fill(ignored, -torch.inf)
    losses = [
        -scores.log_softmax(dim).diagonal(dim1=1, dim2=2).mean() for dim in (1, 2)
    ]  # fmt: skip
    return (losses[0] + losses[1]) / 2


def matching_task(
    config: RetrievalConfig,
    model: UC2,
    corpus: ImageTextCorpus,
    *,
    hard_negatives: Indices | None = None,
) -> MatchingTask:
    """Return the task that a recipe's settings of retrieval describe."""
    if config.group_size:
        return GroupRetrievalTask(
            model,
            corpus,
            batch=config.batch,
            group_size=config.group_size,
            hard_negatives=hard_negatives,
            warmup_steps=config.hard_negative_warmup,
        )
    return ListwiseRetrievalTask(
        model,
        corpus,
        batch=config.batch,
        negatives=config.negatives,
        hard_negatives=hard_negatives,
        warmup_steps=config.hard_negative_warmup,
    )


class TransferredQuestions(VQATask):
    """Questions of which some are asked about another image, one that looks like their own.

    No person answered them, so they are for distillation alone. Of questions about their own
    images, readers that are trained for long know the answers by heart, which says little of what
    they would answer elsewhere.
    """

    share = 0.0
    """Share of the questions that are asked about another image."""
    others: Indices | None = None
    """``(images, k)``: images that look like each image; None for any."""

    def sample_images(self, rows: Indices, generator: np.random.Generator) -> Indices:
        """Return the images that questions are asked about: their own, or another."""
        own = super().sample_images(rows, generator)
        if not self.share:
            return own
        if self.others is None:
            found = generator.integers(len(self.regions), size=len(own))
        else:
            column = generator.integers(self.others.shape[1], size=len(own))
            found = self.others[own, column]
        return np.where(generator.random(len(own)) < self.share, found, own)


class DistilledAnswers:
    """The answers of a compressed reader, learned from the mean of some trained ones."""

    def __init__(self, task: VQATask, teachers: Sequence[VQAModel]) -> None:
        """``task`` is the student's own, whose batches are used."""
        self.task, self.teachers = task, teachers

    def sample(self, generator: np.random.Generator) -> QuestionBatch:
        """Sample questions."""
        return self.task.sample(generator)

    def losses(self, batch: QuestionBatch) -> dict[str, Tensor]:
        """Return the cross-entropy with the teachers' mean probabilities."""
        batch = batch.to(next(self.task.model.parameters()).device)
        regions = batch.regions.load()
        with torch.no_grad():
            logits = [teacher(batch.text, regions).float() for teacher in self.teachers]
            probabilities = torch.stack(logits).sigmoid().mean(0)
        return {"answers": vqa_loss(self.task.model(batch.text, regions), probabilities, "binary")}


class DistilledScores:
    """The scores of a compressed reader, learned from the mean of some trained ones."""

    def __init__(self, task: MatchingTask, teachers: Sequence[VQAModel]) -> None:
        """``task`` is the student's own, whose batches are used."""
        self.task, self.teachers = task, [teacher.cross_encoder for teacher in teachers]

    def sample(self, generator: np.random.Generator) -> Any:
        """Sample pairs with their negatives."""
        return self.task.sample(generator)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return the mean squared difference from the teachers' mean scores."""
        student = self.task.model
        batch = batch.to(student.word_bias.device)
        regions = batch.regions.load()
        with torch.no_grad():
            expected = [
                self.task.scores(teacher, batch, regions).float() for teacher in self.teachers
            ]
        scores = self.task.scores(student, batch, regions)
        return {"scores": F.mse_loss(scores.float(), torch.stack(expected).mean(0))}


@torch.no_grad()
def dual_image_vectors(model: MMP, regions: RegionSource) -> Tensor:
    """Return the dual encoder's vector of each image, ``(images, width)``."""
    blocks = np.array_split(np.arange(len(regions)), -(-len(regions) // _BLOCK))
    vectors = []
    for block in blocks:
        cells = regions.take(block)[0]
        vectors.append(model.encode_visual(cells.features, cells.packing).float())
    return torch.cat(vectors)


@torch.no_grad()
def dual_text_vectors(model: MMP, captions: CaptionTable, rows: Indices) -> Tensor:
    """Return the dual encoder's vector of some captions, ``(rows, width)``."""
    device = next(model.parameters()).device
    vectors = []
    for block in np.array_split(rows, -(-len(rows) // _BLOCK)):
        text = pack_captions(captions, block, device)
        vectors.append(model.encode_text(text.ids, text.packing).float())
    return torch.cat(vectors)


@torch.no_grad()
def mine_hard_negatives(
    model: MMP,
    regions: RegionSource,
    captions: CaptionTable,
    k: int,
    *,
    gallery: int | None = None,
    per_image: int = 3,
) -> Indices:
    """Find the images that the dual encoder ranks highest for each image's captions.

    Args:
        model: The dual encoder.
        regions: Of all images.
        captions: Of these; only images with captions are negatives.
        k: How many for each image.
        gallery: Number of images that are ranked, drawn anew for every block of images; None for
            all.
        per_image: Captions of an image whose mean is compared.

    Returns:
        ``(images, k)``; for an image without captions, those most similar to itself.
    """
    images = dual_image_vectors(model, regions)
    queries = images.clone()
    order = np.random.default_rng(0).permutation(len(captions))
    _, place = np.unique(captions.record_ids[order], return_index=True)
    sums = torch.zeros_like(images)
    rows = order
    for _ in range(per_image):  # one more caption of each image that has so many
        chosen = rows[place]
        own = torch.from_numpy(captions.record_ids[chosen]).to(images.device)
        sums.index_add_(0, own, dual_text_vectors(model, captions, chosen))
        queries[own] = sums[own]
        rows = np.delete(rows, place)
        if not len(rows):
            break
        _, place = np.unique(captions.record_ids[rows], return_index=True)
    pool = torch.from_numpy(np.unique(captions.record_ids)).to(images.device)
    size = min(len(pool), gallery or len(pool))
    k = min(k, size - 1)
    draws, nearest = torch.Generator().manual_seed(0), []
    for block in torch.split(torch.arange(len(images), device=images.device), _BLOCK):
        some = pool
        if size < len(pool):
            some = pool[torch.randperm(len(pool), generator=draws)[:size].to(pool.device)]
        similarity = queries[block] @ images[some].T
        similarity[block[:, None] == some] = -torch.inf
        nearest.append(some[similarity.topk(k, dim=1).indices].cpu())
    found: Indices = torch.cat(nearest).numpy()
    return found

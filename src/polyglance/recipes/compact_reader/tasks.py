"""What a reader learns in one step: to match, to answer, and to compute the same in 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionSource
from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP
from polyglance.models.uc2 import UC2
from polyglance.models.vqa import VQAModel
from polyglance.nn.packed_pairs import Regions
from polyglance.objectives.vqa import vqa_loss
from polyglance.recipes.compact_reader.config import RetrievalConfig
from polyglance.recipes.compact_reader.data import ReaderData
from polyglance.recipes.compact_reader.groups import GroupRetrievalTask
from polyglance.recipes.cross_encoder.batches import PairBatch
from polyglance.recipes.uc2.tasks import ImageTextCorpus, Indices, RetrievalTask
from polyglance.recipes.vqa.tasks import QuestionBatch, VQATask

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


def matching_task(
    config: RetrievalConfig,
    model: UC2,
    corpus: ImageTextCorpus,
    *,
    hard_negatives: Indices | None = None,
) -> MatchingTask:
    """Return the task that a recipe's settings of retrieval describe."""
    shared: dict[str, Any] = {
        "batch": config.batch,
        "hard_negatives": hard_negatives,
        "warmup_steps": config.hard_negative_warmup,
    }
    if config.group_size:
        return GroupRetrievalTask(model, corpus, group_size=config.group_size, **shared)
    return ListwiseRetrievalTask(model, corpus, negatives=config.negatives, **shared)


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


def find_hard_negatives(config: RetrievalConfig, data: ReaderData) -> Indices | None:
    """Return the images that the dual encoder confuses with each image; None for any."""
    if not config.hard_negative_pool:
        return None
    return mine_hard_negatives(
        data.dual.model,
        data.regions,
        data.captions,
        config.hard_negative_pool,
        gallery=config.hard_negative_gallery,
        corpora=data.corpora if config.hard_negatives_of_corpus else None,
    )


@torch.no_grad()
def mine_hard_negatives(
    model: MMP,
    regions: RegionSource,
    captions: CaptionTable,
    k: int,
    *,
    gallery: int | None = None,
    corpora: Indices | None = None,
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
        corpora: ``(images,)``: rank images of the same corpus alone, given its number; all for -1
            and where a corpus has no more than ``k``.
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
    captioned = np.unique(captions.record_ids)
    corpora = np.full(len(images), -1) if corpora is None else corpora
    draws = torch.Generator().manual_seed(0)
    found: dict[int, Indices] = {}
    for corpus in np.unique(corpora):
        pool = captioned[corpora[captioned] == corpus]
        if corpus < 0 or len(pool) <= k:
            pool = captioned
        members = np.flatnonzero(corpora == corpus)
        found[corpus] = _nearest(images, queries[members], members, pool, k, gallery, draws)
    # Galleries of a corpus may have fewer.
    width = min(nearest.shape[1] for nearest in found.values())
    negatives = np.empty((len(images), width), np.int64)
    for corpus, nearest in found.items():
        negatives[corpora == corpus] = nearest[:, :width]
    return negatives


def _nearest(
    images: Tensor,
    queries: Tensor,
    members: Indices,
    pool: Indices,
    k: int,
    gallery: int | None,
    draws: torch.Generator,
) -> Indices:
    """Return for each query the images of a pool that are nearest to it, but for itself."""
    device = images.device
    others, size = torch.from_numpy(pool).to(device), min(len(pool), gallery or len(pool))
    nearest = []
    itself = torch.from_numpy(members).to(device)
    for block, rows in zip(torch.split(queries, _BLOCK), torch.split(itself, _BLOCK), strict=True):
        some = others
        if size < len(others):
            some = others[torch.randperm(len(others), generator=draws)[:size].to(device)]
        similarity = block @ images[some].T
        similarity[rows[:, None] == some] = -torch.inf
        nearest.append(some[similarity.topk(min(k, size - 1), dim=1).indices].cpu())
    return torch.cat(nearest).numpy()

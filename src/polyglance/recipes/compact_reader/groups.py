"""Matching in groups of images that look alike: every caption is read beside every image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.regions import RegionBatch
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2
from polyglance.nn.packed_pairs import PackedRows, Regions, Text, encode_first
from polyglance.nn.packing import Packing
from polyglance.recipes.uc2.tasks import ImageTextCorpus, Indices
from polyglance.training.distributed import world_size
from polyglance.training.mixture import item_draws, rank_share, step_of
from polyglance.utils.ragged import ragged_arange


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

    @property
    def num_pairs(self) -> int:
        """The number of pairs that are read."""
        return len(self.region_packing)


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
        self.model, self.corpus, self.batch, self.group_size = model, corpus, batch, group_size
        self.hard_negatives, self.warmup_steps = hard_negatives, warmup_steps
        self.groups = batch // group_size
        if self.groups < world_size():
            raise PolyglanceError(
                f"a batch of {batch} pairs in groups of {group_size} cannot be split over"
                f" {world_size()} processes: set batch to {group_size * world_size()} or more"
            )

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

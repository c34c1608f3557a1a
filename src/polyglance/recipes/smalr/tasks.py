"""What SMALR learns in one step: captions of the same images in all languages at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import VisualBatch, VisualTable, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.smalr import SMALR, CaptionGrid, SMALRObjective, smalr_losses
from polyglance.objectives.top_triplets import PAPER_RULE, TripletRule, neighbour_triplets
from polyglance.training.mixture import item_draws, rank_share

Indices = NDArray[np.int64]


class CaptionGridSampler:
    """Draws one or two captions for each image and language."""

    def __init__(
        self,
        captions: CaptionTable,
        *,
        languages: Sequence[str] | None = None,
        captions_per_language: int = 2,
        languages_per_step: int | None = None,
    ) -> None:
        """Index the captions by image and language.

        Args:
            captions: Captions whose language numbers are those of the model's lexicon.
            languages: Languages to draw from; None for all.
            captions_per_language: 1 or 2.
            languages_per_step: Number of languages drawn in a step; None for all.
        """
        if captions_per_language not in (1, 2):
            raise PolyglanceError(f"captions_per_language is {captions_per_language}: give 1 or 2")
        unknown = set(languages or ()) - set(captions.language_codes)
        if unknown:
            raise PolyglanceError(
                f"no caption is in {', '.join(sorted(unknown))}:"
                f" choose from {', '.join(captions.language_codes)}"
            )
        self.captions, self.captions_per_language = captions, captions_per_language
        codes = captions.language_codes if languages is None else languages
        self.languages = np.array([captions.language_codes.index(code) for code in codes], np.int64)
        self.languages_per_step = min(languages_per_step or len(codes), len(codes))
        shape = (captions.num_records, len(captions.language_codes))
        self._size = np.zeros(shape, np.int64)
        np.add.at(self._size, (captions.record_ids, captions.language_ids), 1)
        # Captions are ordered by record, then language.
        self._start = (np.cumsum(self._size) - self._size.ravel()).reshape(shape)

    @property
    def items(self) -> Indices:
        """Return the images with a caption in a language that is drawn."""
        items = np.flatnonzero(self._size[:, self.languages].any(1))
        if not len(items):
            raise PolyglanceError(
                "no image has a caption to train on: choose languages that the corpus has"
            )
        return items

    def sample(
        self, items: Indices, generator: np.random.Generator, share: slice = slice(None)
    ) -> CaptionGrid:
        """Draw captions of images, on the CPU; the two of a language differ where it has two.

        Args:
            items: The images of all processes.
            generator: The source of randomness.
            share: The images of this process, whose captions are returned.
        """
        languages = np.sort(
            generator.choice(self.languages, self.languages_per_step, replace=False)
        )
        size = self._size[np.ix_(items, languages)].T
        first = (generator.random(size.shape) * size).astype(np.int64)
        draws = [first]
        if self.captions_per_language == 2:
            step = 1 + (generator.random(size.shape) * np.maximum(0, size - 1)).astype(np.int64)
            draws.append((first + step) % np.maximum(1, size))
        start = self._start[np.ix_(items, languages)].T
        own = np.arange(len(items))[share]
        rows = np.concatenate([(start + draw)[:, share] for draw in draws], axis=1)
        present = np.tile(size[:, share] > 0, self.captions_per_language)
        positions = np.flatnonzero(present)
        text = pack_captions(self.captions, rows.ravel()[positions])
        # A sentence's number among those of all processes.
        columns = np.concatenate([own + part * len(items) for part in range(len(draws))])
        numbers = np.arange(len(languages))[:, None] * (len(draws) * len(items)) + columns
        count = len(languages) * len(draws) * len(items)
        return CaptionGrid(
            ids=text.ids,
            packing=text.packing,
            languages=torch.from_numpy(np.repeat(languages, rows.shape[1])[positions]),
            grid_positions=torch.from_numpy(positions),
            present=torch.from_numpy(np.ascontiguousarray(present)),
            image_ids=torch.from_numpy(np.tile(np.arange(len(own)), self.captions_per_language)),
            draws=item_draws(generator, count, numbers.ravel()[positions]),
        )


@dataclass(frozen=True, eq=False)
class CaptionGridBatch(Batch):
    """Captions of some images in many languages, and perhaps the images."""

    captions: CaptionGrid
    visuals: VisualBatch | None = None


class SMALRTask:
    """SMALR's training on images with captions in many languages (equation 4)."""

    def __init__(
        self,
        model: SMALR,
        visuals: VisualTable,
        captions: CaptionGridSampler,
        objective: SMALRObjective,
        *,
        batch: int = 450,
    ) -> None:
        """Prepare to draw.

        Args:
            model: The model.
            visuals: Images, one for each record of the captions.
            captions: Draws their captions.
            objective: Which losses, and how.
            batch: Images a step.
        """
        self.model, self.visuals, self.captions = model, visuals, captions
        self.objective = objective
        self.items = captions.items
        self.batch = _batch_size(min(batch, len(self.items)))

    def set_rule(self, rule: TripletRule) -> None:
        """Change the triplet rule."""
        self.objective = replace(self.objective, triplets=rule)

    def sample(self, generator: np.random.Generator) -> CaptionGridBatch:
        """Draw images and captions."""
        share = rank_share(self.batch)
        items = generator.choice(self.items, self.batch, replace=False)
        captions = self.captions.sample(items, generator, share)
        visuals = self.visuals.select(items[share], item_draws(generator, self.batch, share))
        return CaptionGridBatch(captions, visuals)

    def losses(self, batch: CaptionGridBatch) -> dict[str, Tensor]:
        """Return the losses of equation 4."""
        batch = batch.to(next(self.model.parameters()).device)
        assert batch.visuals is not None
        features, visuals = batch.visuals.load()
        return smalr_losses(self.model, features, visuals, batch.captions, self.objective)


class SentenceAlignmentTask:
    """Brings captions of the same image together, as means of their words; needs no images.

    With a `LatentVocabulary` this is SMALR's pre-training of latent tokens (equation 1), with
    the words of a model MULE's first stage, of the universal embedding alone.
    """

    def __init__(
        self,
        words: nn.Module,
        captions: CaptionGridSampler,
        *,
        batch: int = 450,
        rule: TripletRule = PAPER_RULE,
    ) -> None:
        """Prepare to draw.

        Args:
            words: From word ids ``(tokens,)`` to vectors ``(tokens, width)``.
            captions: Draws captions.
            batch: Images whose captions a step compares.
            rule: Of the triplet loss.
        """
        self.words, self.captions, self.rule = words, captions, rule
        self.items = captions.items
        self.batch = _batch_size(min(batch, len(self.items)))

    def set_rule(self, rule: TripletRule) -> None:
        """Change the triplet rule."""
        self.rule = rule

    def sample(self, generator: np.random.Generator) -> CaptionGridBatch:
        """Draw captions of some images."""
        share = rank_share(self.batch)
        items = generator.choice(self.items, self.batch, replace=False)
        return CaptionGridBatch(self.captions.sample(items, generator, share))

    def losses(self, batch: CaptionGridBatch) -> dict[str, Tensor]:
        """Compare all captions with all."""
        captions = batch.to(next(self.words.parameters()).device).captions
        sentences = captions.packing.mean(self.words(captions.ids))
        grid = captions.to_grid(sentences)
        loss = neighbour_triplets(grid, captions.present, captions.image_ids, self.rule)
        return {"neighbours": loss}


def _batch_size(images: int) -> int:
    if images < 2:
        raise PolyglanceError(
            f"a batch of {images} has no negatives: set batch to 2 or more, and have as many images"
        )
    return images

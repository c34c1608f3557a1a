"""UC2's objectives (section 3.3): one is drawn at each step, in the ratio 9 : 12 : 9 : 3.

| task | objective |
|---|---|
| `ITMTask` | image-text matching |
| `MLMTask` | masked language modelling |
| `MRTMTask` | masked region-to-token modelling |
| `VTLMTask` | visual translation language modelling; without images XLM's TLM (Table 4) |
| `RetrievalTask` | fine-tuning for retrieval |

A step of any task encodes ``batch`` pairs, split over all processes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionSource
from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import Variant
from polyglance.models.uc2 import UC2
from polyglance.nn.packed_pairs import Text
from polyglance.objectives.co_masking import co_mask
from polyglance.objectives.masked_language import TokenMasking, mask_tokens
from polyglance.objectives.masked_regions import (
    NO_LABEL,
    AtLeastOneRegion,
    choose_regions,
    mask_features,
)
from polyglance.objectives.matching import itm_loss, sigmoid_triplet
from polyglance.recipes.cross_encoder.batches import MaskedBatch, PairBatch
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.training.mixture import item_draws, rank_share, step_of

Indices = NDArray[np.int64]
RetrievalLoss = Literal["triplet", "matching"]


@dataclass(frozen=True, eq=False)
class ImageTextCorpus:
    """Images and captions that tasks sample pairs from."""

    regions: RegionSource
    captions: LanguageBalancedSampler

    def images(self, rows: Indices) -> Indices:
        """Return the images of captions."""
        return self.captions.table.record_ids[rows]

    def text(self, rows: Indices) -> Text:
        """Pack captions on the CPU."""
        return pack_captions(self.captions.table, rows)


def predict_words(model: UC2, batch: MaskedBatch) -> dict[str, Tensor]:
    """Return the loss of predicting the batch's masked words or regions."""
    batch = batch.to(model.word_bias.device)
    images = None
    if batch.regions is not None:
        regions = batch.regions.load()
        if batch.masked_regions is not None:
            masked = mask_features(regions.features, batch.masked_regions, model.region_mask)
            regions = replace(regions, features=masked)
        images = model.embed_regions(regions)
    hidden = model.encode_positions(batch.positions, batch.text, images, batch.translation)
    return {batch.loss: model.word_loss(hidden, batch.targets)}


def encode_pairs(model: UC2, batch: PairBatch) -> Tensor:
    """Return the pooled vector of each pair, ``(pairs, hidden_size)``."""
    return model.encode_pair(batch.text, model.embed_regions(batch.regions.load()))


class MLMTask:
    """MLM: predict masked words of a caption from the other words and the image."""

    def __init__(
        self, model: UC2, corpus: ImageTextCorpus, masking: TokenMasking, *, batch: int
    ) -> None:
        self.model, self.corpus, self.masking, self.batch = model, corpus, masking, batch

    def sample(self, generator: np.random.Generator) -> MaskedBatch:
        """Sample captions, all languages equally often, and mask words."""
        share = rank_share(self.batch)
        rows = self.corpus.captions.sample(self.batch, generator)[share]
        draws = item_draws(generator, self.batch, share)
        text = self.corpus.text(rows)
        masked = mask_tokens(text.ids, text.packing, self.masking, draws)
        regions = self.corpus.regions.select(self.corpus.images(rows), draws)
        text = replace(text, ids=masked.ids)
        return MaskedBatch("mlm", text, regions, masked.positions, masked.targets)

    def losses(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Predict the masked words."""
        return predict_words(self.model, batch)


class ITMTask:
    """ITM: tell whether caption and image match; half of the pairs do.

    In the others, image or caption (each half of the time) is replaced by that of another pair
    in the same language. The published code replaces images only.
    """

    def __init__(
        self, model: UC2, corpus: ImageTextCorpus, *, batch: int, variant: Variant = "paper"
    ) -> None:
        self.model, self.corpus, self.batch = model, corpus, batch
        self.caption_share = 0.5 if variant == "paper" else 0.0

    def sample(self, generator: np.random.Generator) -> PairBatch:
        """Sample pairs, half of them matching."""
        share = rank_share(self.batch)
        captions, images, matched = self.sample_pairs(generator)
        draws = item_draws(generator, self.batch, share)
        return PairBatch(
            "itm",
            self.corpus.text(captions[share]),
            self.corpus.regions.select(images[share], draws),
            torch.from_numpy(matched[share]),
            len(matched[share]),
        )

    def losses(self, batch: PairBatch) -> dict[str, Tensor]:
        """Classify the pairs."""
        batch = batch.to(self.model.word_bias.device)
        logits = self.model.match_logits(encode_pairs(self.model, batch))
        return {"itm": itm_loss(logits, batch.matched)}

    def sample_pairs(
        self, generator: np.random.Generator
    ) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """Return captions, images, and whether they match."""
        positive = self.corpus.captions.sample(self.batch // 2, generator)
        negative = self.corpus.captions.sample(self.batch - len(positive), generator)
        others = self.corpus.captions.sample_other_images(negative, generator)
        replace_caption = generator.random(len(negative)) < self.caption_share
        own, other = self.corpus.images(negative), self.corpus.images(others)
        captions = np.concatenate([positive, np.where(replace_caption, others, negative)])
        images = np.concatenate(
            [self.corpus.images(positive), np.where(replace_caption, own, other)]
        )
        return captions, images, np.arange(self.batch) < len(positive)


class MRTMTask:
    """MRTM: predict the name of a masked region in the caption's language, as a sub-word."""

    def __init__(
        self,
        model: UC2,
        corpus: ImageTextCorpus,
        labels: LabelTokens,
        *,
        batch: int,
        rate: float = 0.15,
        variant: Variant = "paper",
        at_least_one: bool = False,
    ) -> None:
        """Prepare the task.

        Args:
            model: UC2.
            corpus: images with labelled regions, and captions.
            labels: names of labels.
            batch: pairs a step.
            rate: the share of regions to predict.
            variant: the paper masks nine of ten of these, the published code all.
            at_least_one: choose a random region of an image in which none was chosen.
        """
        self.model, self.corpus, self.labels, self.batch = model, corpus, labels, batch
        self.at_least_one: AtLeastOneRegion = "random" if at_least_one else "no"
        self.rate, self.masked_share = rate, 0.9 if variant == "paper" else 1.0
        self.language_ids = labels.language_ids(corpus.captions.table.language_codes)
        if not corpus.regions.has_labels:
            raise PolyglanceError(
                "no region has a label to predict: extract features with labels, or set"
                " pretraining.mixture.mrtm to 0"
            )

    def sample(self, generator: np.random.Generator) -> MaskedBatch:
        """Sample captions, and mask regions of their images."""
        share = rank_share(self.batch)
        rows = self.corpus.captions.sample(self.batch, generator)[share]
        draws = item_draws(generator, self.batch, share)
        regions = self.corpus.regions.select(self.corpus.images(rows), draws)
        mask = choose_regions(
            regions.packing,
            draws,
            rate=self.rate,
            hidden=self.masked_share,
            maskable=regions.labels != NO_LABEL,
            global_rows=regions.global_rows,
            at_least_one=self.at_least_one,
        )
        languages = self.language_ids[self.corpus.captions.table.language_ids[rows]]
        targets = self.labels.sample(
            languages[regions.packing.sequence_ids[mask.positions].numpy()],
            regions.labels[mask.positions].numpy(),
            draws.per_row("names", regions.packing)[mask.positions].numpy(),
        )
        text = self.corpus.text(rows)
        return MaskedBatch(
            "mrtm",
            text,
            regions,
            text.packing.num_tokens + mask.positions,
            torch.from_numpy(targets),
            masked_regions=mask.masked,
        )

    def losses(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Predict the names of the masked regions."""
        return predict_words(self.model, batch)


class VTLMTask:
    """VTLM: predict words masked in both of two translations from the image; TLM without one."""

    def __init__(
        self,
        model: UC2,
        regions: RegionSource | None,
        captions: AlignedCaptions,
        masking: TokenMasking,
        *,
        batch: int,
        co_masked: float = 1.0,
    ) -> None:
        """Prepare the task.

        Args:
            model: UC2.
            regions: of the captions' images; None for TLM.
            captions: pairs of translations with word alignments.
            masking: rates and ids.
            batch: pairs a step.
            co_masked: the share of pairs with aligned words masked together; in the others
                any words are masked.
        """
        self.model, self.regions, self.captions, self.masking = model, regions, captions, masking
        self.batch, self.co_masked = batch, co_masked
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "co_masked")

    def sample(self, generator: np.random.Generator) -> MaskedBatch:
        """Sample translations, all languages equally often, and mask words."""
        share = rank_share(self.batch)
        sampled = self.captions.sample(self.batch, generator)[share]
        draws = item_draws(generator, self.batch, share)
        pair = self.captions.gather(sampled)
        masked = co_mask(pair, self.masking, draws, share=self.co_masked)
        regions = None
        if self.regions is not None:
            images = self.captions.table.record_ids[self.captions.first[sampled]]
            regions = self.regions.select(images, draws)
        split = pair.first.num_tokens
        return MaskedBatch(
            "vtlm",
            Text(masked.ids[:split], pair.first),
            regions,
            masked.positions,
            masked.targets,
            translation=Text(masked.ids[split:], pair.second),
        )

    def losses(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Predict the masked words of both captions."""
        return predict_words(self.model, batch)


class RetrievalTask:
    """Fine-tuning for retrieval: rank matching pairs above those with another image or caption."""

    def __init__(
        self,
        model: UC2,
        corpus: ImageTextCorpus,
        *,
        batch: int,
        negatives: int = 1,
        margin: float = 0.2,
        loss: RetrievalLoss = "triplet",
        hard_negatives: Indices | None = None,
        warmup_steps: int = 0,
    ) -> None:
        """Prepare the task.

        Args:
            model: UC2.
            corpus: images and captions.
            batch: matching pairs a step.
            negatives: of each kind (other image, other caption) for each matching pair.
            margin: of the triplet loss.
            loss: ``triplet``, or ``matching`` for cross-entropy as in M3P.
            hard_negatives: ``(images, k)``, for each image others that are hard to tell apart,
                which negatives are then sampled from. Captions are replaced by some in the
                same language, of any image where the hard one has none in it.
            warmup_steps: over so many steps the share of hard negatives grows from 0 to 1.
        """
        self.model, self.corpus, self.batch, self.negatives = model, corpus, batch, negatives
        self.margin, self.loss, self.hard_negatives = margin, loss, hard_negatives
        self.warmup_steps = warmup_steps
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "negatives")

    def sample(self, generator: np.random.Generator) -> PairBatch:
        """Sample pairs with their negatives."""
        share = rank_share(self.batch)
        captions, images = (part[share] for part in self.sample_pairs(generator))
        numbers = np.arange(self.batch * captions.shape[1]).reshape(self.batch, -1)[share].ravel()
        draws = item_draws(generator, self.batch * captions.shape[1], numbers)
        matched = torch.arange(captions.shape[1]).expand(captions.shape) == 0
        return PairBatch(
            "retrieval",
            self.corpus.text(captions.ravel()),
            self.corpus.regions.select(images.ravel(), draws),
            matched.contiguous(),
            len(captions),
        )

    def losses(self, batch: PairBatch) -> dict[str, Tensor]:
        """Rank each matching pair above its negatives."""
        batch = batch.to(self.model.word_bias.device)
        scores = self.model.rank_scores(encode_pairs(self.model, batch)).view(batch.matched.shape)
        if self.loss == "triplet":
            return {"retrieval": sigmoid_triplet(scores[:, 0], scores[:, 1:], margin=self.margin)}
        return {"retrieval": itm_loss(scores, batch.matched)}

    def sample_pairs(self, generator: np.random.Generator) -> tuple[Indices, Indices]:
        """Return captions and images, ``(batch, 1 + 2 * negatives)`` each.

        A row is a matching pair, then pairs with other images, then with other captions.
        """
        table, count = self.corpus.captions.table, self.negatives
        positive = self.corpus.captions.sample(self.batch, generator)
        own = self.corpus.images(positive)
        repeated = np.repeat(positive, 2 * count)
        other_captions = self.corpus.captions.sample_other_images(repeated, generator)
        other_images = self.corpus.images(other_captions)
        if self.hard_negatives is not None:
            pool = self.hard_negatives[self.corpus.images(repeated)]
            picked = pool[np.arange(len(pool)), generator.integers(pool.shape[1], size=len(pool))]
            share = step_of(generator) / self.warmup_steps if self.warmup_steps else 1.0
            hard = generator.random(len(repeated)) < share
            languages = table.language_ids[repeated]
            hard_captions = self.sample_hard_captions(pool, picked, languages, generator)
            other_images = np.where(hard, picked, other_images)
            other_captions = np.where(hard & (hard_captions >= 0), hard_captions, other_captions)
        captions = np.repeat(positive[:, None], 1 + 2 * count, axis=1)
        captions[:, 1 + count :] = other_captions.reshape(self.batch, 2 * count)[:, count:]
        images = np.repeat(own[:, None], 1 + 2 * count, axis=1)
        images[:, 1 : 1 + count] = other_images.reshape(self.batch, 2 * count)[:, :count]
        return captions, images

    def sample_hard_captions(
        self, pool: Indices, picked: Indices, languages: Indices, generator: np.random.Generator
    ) -> Indices:
        """Return a caption of a hard image for each pair; -1 where there is none.

        Args:
            pool: hard images of each pair, ``(pairs, k)``.
            picked: one of them, ``(pairs,)``.
            languages: those of the pairs' own captions.
            generator: the source of randomness.
        """
        return self.corpus.captions.table.sample_in_languages(picked, languages, generator)

"""UC2's objectives (section 3.3): one is drawn at each step, in the ratio 9 : 12 : 9 : 3.

| task | objective |
|---|---|
| `ITMTask` | image-text matching |
| `MLMTask` | masked language modelling |
| `MRTMTask` | masked region-to-token modelling |
| `VTLMTask` | visual translation language modelling; without images XLM's TLM (Table 4) |
| `RetrievalTask` | fine-tuning for retrieval |

A step of any task encodes ``batch`` pairs.
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
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import Variant
from polyglance.models.uc2 import UC2
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import to_device
from polyglance.objectives.co_masking import co_mask
from polyglance.objectives.masked_language import TokenMasking, mask_tokens, mlm_loss
from polyglance.objectives.masked_regions import NO_LABEL, mask_regions
from polyglance.objectives.matching import itm_loss, sigmoid_triplet
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.training.mixture import step_of
from polyglance.utils.ragged import ragged_arange

Indices = NDArray[np.int64]
RetrievalLoss = Literal["triplet", "matching"]


@dataclass(frozen=True, eq=False)
class ImageTextCorpus:
    """Images and captions that tasks sample pairs from."""

    regions: RegionTable
    captions: LanguageBalancedSampler

    @property
    def device(self) -> torch.device:
        """Where regions and model lie."""
        return self.regions.features.device

    def images(self, rows: Indices) -> Indices:
        """Return the images of captions."""
        return self.captions.table.record_ids[rows]

    def text(self, rows: Indices) -> Text:
        """Pack captions on the CPU."""
        return pack_captions(self.captions.table, rows)

    def encode_pairs(
        self, model: UC2, captions: Indices, images: Indices, generator: np.random.Generator
    ) -> Tensor:
        """Return the pooled vector of each pair, ``(pairs, hidden_size)``, with nothing masked."""
        regions, _ = self.regions.take(images, generator)
        return model.encode_pair(self.text(captions).to(self.device), model.embed_regions(regions))


class MLMTask:
    """MLM: predict masked words of a caption from the other words and the image."""

    def __init__(
        self, model: UC2, corpus: ImageTextCorpus, masking: TokenMasking, *, batch: int
    ) -> None:
        self.model, self.corpus, self.masking, self.batch = model, corpus, masking, batch

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Sample captions, all languages equally often, and predict their masked words."""
        rows = self.corpus.captions.sample(self.batch, generator)
        text = self.corpus.text(rows)
        masked = mask_tokens(text.ids, text.packing, self.masking)
        regions, _ = self.corpus.regions.take(self.corpus.images(rows), generator)
        hidden = self.model.encode_positions(
            masked.positions,
            replace(text, ids=masked.ids).to(self.corpus.device),
            self.model.embed_regions(regions),
        )
        return {"mlm": _word_loss(self.model, hidden, masked.targets)}


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

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Sample pairs and classify them."""
        captions, images, matched = self.sample(generator)
        pooled = self.corpus.encode_pairs(self.model, captions, images, generator)
        return {"itm": itm_loss(self.model.match_logits(pooled), torch.from_numpy(matched))}

    def sample(self, generator: np.random.Generator) -> tuple[Indices, Indices, NDArray[np.bool_]]:
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
    ) -> None:
        """Prepare the task.

        Args:
            model: UC2.
            corpus: images with labelled regions, and captions.
            labels: names of labels.
            batch: pairs a step.
            rate: the share of regions to predict.
            variant: the paper masks nine of ten of these, the published code all.
        """
        self.model, self.corpus, self.labels, self.batch = model, corpus, labels, batch
        self.rate, self.masked_share = rate, 0.9 if variant == "paper" else 1.0
        self.language_ids = labels.language_ids(corpus.captions.table.language_codes)
        self._region_labels = corpus.regions.labels.cpu().numpy()
        if not (self._region_labels != NO_LABEL).any():
            raise PolyglanceError(
                "no region has a label to predict: extract features with labels, or set"
                " pretraining.mixture.mrtm to 0"
            )

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Sample captions and predict the names of masked regions of their images."""
        rows = self.corpus.captions.sample(self.batch, generator)
        table, images = self.corpus.regions, self.corpus.images(rows)
        regions, _ = table.take(images, generator)
        lengths = table.lengths[images]
        labels = self._region_labels[ragged_arange(table.starts[images], lengths)]
        masked = mask_regions(
            regions.features,
            rate=self.rate,
            hidden=self.masked_share,
            mask=self.model.region_mask,
            maskable=torch.from_numpy(labels != NO_LABEL),
            global_rows=table.global_rows(images),
        )
        positions = masked.positions.numpy()
        caption_language = self.language_ids[self.corpus.captions.table.language_ids[rows]]
        language = np.repeat(caption_language, lengths)[positions]
        targets = torch.from_numpy(self.labels.sample(language, labels[positions], generator))
        text = self.corpus.text(rows)
        hidden = self.model.encode_positions(
            text.packing.num_tokens + masked.positions,
            text.to(self.corpus.device),
            self.model.embed_regions(Regions(masked.features, regions.boxes, regions.packing)),
        )
        return {"mrtm": _word_loss(self.model, hidden, targets)}


class VTLMTask:
    """VTLM: predict words masked in both of two translations from the image; TLM without one."""

    def __init__(
        self,
        model: UC2,
        regions: RegionTable | None,
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

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Sample translations, all languages equally often, and predict masked words."""
        sampled = self.captions.sample(self.batch, generator)
        pair = self.captions.gather(sampled)
        masked = co_mask(pair, self.masking, share=self.co_masked)
        device = self.model.word_bias.device
        split = pair.first.num_tokens
        images = None
        if self.regions is not None:
            numbers = self.captions.table.record_ids[self.captions.first[sampled]]
            regions, _ = self.regions.take(numbers, generator)
            images = self.model.embed_regions(regions)
        hidden = self.model.encode_positions(
            masked.positions,
            Text(masked.ids[:split], pair.first).to(device),
            images,
            Text(masked.ids[split:], pair.second).to(device),
        )
        return {"vtlm": _word_loss(self.model, hidden, masked.targets)}


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

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Sample pairs with their negatives and rank them."""
        captions, images = self.sample(generator)
        pooled = self.corpus.encode_pairs(self.model, captions.ravel(), images.ravel(), generator)
        scores = self.model.rank_scores(pooled).view(self.batch, -1)
        if self.loss == "triplet":
            return {"retrieval": sigmoid_triplet(scores[:, 0], scores[:, 1:], margin=self.margin)}
        matched = torch.arange(scores.shape[1]).expand_as(scores) == 0
        return {"retrieval": itm_loss(scores, matched)}

    def sample(self, generator: np.random.Generator) -> tuple[Indices, Indices]:
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
            hard_captions = table.sample_in_languages(picked, languages, generator)
            other_images = np.where(hard, picked, other_images)
            other_captions = np.where(hard & (hard_captions >= 0), hard_captions, other_captions)
        captions = np.repeat(positive[:, None], 1 + 2 * count, axis=1)
        captions[:, 1 + count :] = other_captions.reshape(self.batch, 2 * count)[:, count:]
        images = np.repeat(own[:, None], 1 + 2 * count, axis=1)
        images[:, 1 : 1 + count] = other_images.reshape(self.batch, 2 * count)[:, :count]
        return captions, images


def _word_loss(model: UC2, hidden: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of predicting ``targets`` (sub-words) from their hidden vectors."""
    return mlm_loss(model.word_logits(hidden), to_device(targets, hidden.device))

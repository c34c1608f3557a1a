"""A first stage that encodes images and captions separately (image-text contrastive learning).

A cross-encoder has to compare a sentence with an image before it knows what either means.
Encoding each alone allows a thousand negatives for every pair at the price of encoding both
once, as in a dual encoder. Li et al. 2021 ("Align before fuse", section 3.2) begin so; here
the same encoder does both. Neither M3P nor UC2 has such a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionSource
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.objectives.nce import nce
from polyglance.recipes.cross_encoder.batches import PairBatch
from polyglance.recipes.cross_encoder.config import ContrastiveStage
from polyglance.recipes.cross_encoder.data import Split
from polyglance.recipes.retrieval_report import rows_by_language, validation_scores
from polyglance.recipes.stages import Stage
from polyglance.training.distributed import gather_rows
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import Mixture, item_draws, rank_share

Indices = NDArray[np.int64]

_BATCH = 512
"""Images or sentences embedded at a time."""


class ContrastiveTask:
    """Tell each image's caption from those of the batch's other images, and the reverse."""

    def __init__(
        self,
        model: CrossEncoderModel,
        regions: RegionSource,
        captions: CaptionTable,
        *,
        batch: int,
        temperature: float = 0.05,
    ) -> None:
        """Prepare the task.

        Args:
            model: encodes images and sentences, each alone.
            regions: of the training images.
            captions: of the same images, in any language.
            batch: images a step, with one caption each.
            temperature: of the softmax.
        """
        self.model, self.regions, self.captions = model, regions, captions
        self.temperature = temperature
        self.language_ids = model.language_ids(captions.language_codes)
        self._images = np.unique(captions.record_ids)
        self.batch = min(batch, len(self._images))
        if self.batch < 2:
            raise PolyglanceError("contrastive learning needs at least two images with captions")

    def sample(self, generator: np.random.Generator) -> PairBatch:
        """Sample distinct images with a caption each."""
        share = rank_share(self.batch, equal=True)
        images = generator.choice(self._images, self.batch, replace=False)
        rows = self.captions.sample(images, generator)[share]
        regions = self.regions.select(images[share], item_draws(generator, self.batch, share))
        text = pack_captions(self.captions, rows, language_ids=self.language_ids)
        matched = torch.ones(len(rows), dtype=torch.bool)
        return PairBatch("contrastive", text, regions, matched, len(rows))

    def losses(self, batch: PairBatch) -> dict[str, Tensor]:
        """Contrast the images and captions of all processes."""
        batch = batch.to(next(self.model.parameters()).device)
        visual = gather_rows(embed_images(self.model, batch.regions.load()).float())
        textual = gather_rows(embed_texts(self.model, batch.text).float())
        loss = nce(visual, textual, temperature=self.temperature, negatives="symmetric")
        return {"contrastive": loss}


def embed_images(model: CrossEncoderModel, regions: Regions) -> Tensor:
    """Return the mean output vector of each image's regions, ``(images, hidden_size)``."""
    output = model.encode(None, model.embed_regions(regions)).regions
    assert output is not None
    return regions.packing.mean(output)


def embed_texts(model: CrossEncoderModel, text: Text) -> Tensor:
    """Return the mean output vector of each sentence's sub-words, ``(texts, hidden_size)``."""
    output = model.encode(text, None).text
    assert output is not None
    return text.packing.mean(output)


@torch.no_grad()
def embed_separately(
    model: CrossEncoderModel, regions: RegionSource, captions: CaptionTable, rows: Indices
) -> tuple[Tensor, Tensor]:
    """Return unit vectors of all images and of the captions in ``rows``."""
    device = regions.device
    ids = model.language_ids(captions.language_codes)

    def blocks(count: int) -> list[Indices]:
        return np.array_split(np.arange(count), -(-count // _BATCH))

    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        visual = [embed_images(model, regions.take(some)[0]) for some in blocks(len(regions))]
        textual = [
            embed_texts(model, pack_captions(captions, rows[some], device, language_ids=ids))
            for some in blocks(len(rows))
        ]
    return (
        torch.nn.functional.normalize(torch.cat(visual).float(), dim=1),
        torch.nn.functional.normalize(torch.cat(textual).float(), dim=1),
    )


def contrastive_stage(
    config: ContrastiveStage,
    loop: LoopConfig,
    model: CrossEncoderModel,
    train: Split,
    validation: Split | None,
    groups: Sequence[dict[str, Any]],
) -> Stage:
    """Build the stage; it reports the recall of both encoded separately.

    Args:
        config: its settings.
        loop: its steps and learning rate.
        model: to train.
        train: images and captions to train on.
        validation: those of the report; None for no such entry.
        groups: parameter groups.

    Returns:
        The stage, ready to run.
    """
    task = ContrastiveTask(
        model, train.regions, train.captions, batch=config.batch, temperature=config.temperature
    )
    return Stage(
        "contrastive_stage",
        Mixture({"contrastive": task}),
        loop,
        groups,
        measure=None
        if validation is None
        else lambda: {"validation": validate_separately(model, validation)},
    )


def validate_separately(model: CrossEncoderModel, split: Split) -> dict[str, float]:
    """Return mR by cosine with one caption a language, and the mean over languages."""
    model.eval()
    queries = {}
    for language, rows in rows_by_language(split.captions):
        images, first = np.unique(split.captions.record_ids[rows], return_index=True)
        queries[language] = images, rows[first]
    visual, textual = embed_separately(
        model,
        split.regions,
        split.captions,
        np.concatenate([rows for _, rows in queries.values()]),
    )
    cosines = np.split(
        (visual @ textual.T).cpu().numpy(),
        np.cumsum([len(images) for images, _ in queries.values()])[:-1],
        axis=1,
    )
    by_language = zip(queries.items(), cosines, strict=True)
    return validation_scores(
        {
            code: summarise(ranks_from_scores(scores, images))
            for (code, (images, _)), scores in by_language
        }
    )

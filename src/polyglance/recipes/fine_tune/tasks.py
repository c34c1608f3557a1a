"""What fine-tuning learns in a step: captions of pictures, or of vectors that stay as they are."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import VisualTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, contrast
from polyglance.nn.packing import join_packings
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.mmp.tasks import CaptionedBatch, MMPTask
from polyglance.training.distributed import gather_rows


class KeptPicturesTask(MMPTask):
    """Contrast captions with vectors of pictures that were encoded before (equation 1)."""

    def losses(self, batch: CaptionedBatch) -> dict[str, Tensor]:
        """Encode the captions alone, and contrast them with all pictures of the batch."""
        batch = batch.to(next(self.model.parameters()).device)
        vectors, _ = batch.visuals.load()
        pictures = gather_rows(vectors)
        ids = torch.cat([text.ids for text in batch.captions])
        packing = join_packings([text.packing for text in batch.captions])
        captions = torch.split(self.model.encode_text(ids, packing), len(vectors))
        losses = [contrast(gather_rows(own), pictures, self.objective) for own in captions]
        return {"inter": torch.stack(losses).sum()}


def build_task(
    model: MMP,
    visuals: VisualTable,
    captions: CaptionTable,
    recipe: FineTuneRecipe,
    often: NDArray[np.float64] | None = None,
) -> MMPTask:
    """Return the task of a recipe.

    Args:
        model: The model, frozen as the recipe says.
        visuals: Vectors where the recipe keeps pictures, pixels otherwise.
        captions: Of the pictures.
        recipe: The settings.
        often: How often each picture is drawn, relative to others; None for all alike.
    """
    if unknown := set(recipe.language_weights) - set(captions.language_codes):
        raise PolyglanceError(
            f"language_weights names {', '.join(sorted(unknown))}, which no caption is in: the"
            f" captions are in {', '.join(captions.language_codes)}"
        )
    task = KeptPicturesTask if recipe.keep_pictures else MMPTask
    return task(
        model,
        visuals,
        captions,
        recipe.objective,
        batch=recipe.batch,
        captions_per_image=recipe.captions_per_image,
        weights={code: recipe.language_weights.get(code, 1.0) for code in captions.language_codes},
        image_weights=often,
    )

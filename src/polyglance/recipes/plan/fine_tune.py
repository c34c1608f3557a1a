"""The step of fine-tuning on random captions and pictures, for a plan."""

from __future__ import annotations

import torch

from polyglance.export.fine_tuned import load_quantised
from polyglance.recipes.fine_tune import train
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.fine_tune.data import open_visuals
from polyglance.recipes.fine_tune.tasks import build_task
from polyglance.recipes.plan.synthetic import CorpusShape, SyntheticRun, random_captions
from polyglance.recipes.stages import Stage
from polyglance.training.mixture import Mixture


def build_fine_tune_run(recipe: FineTuneRecipe, mean_tokens: int, device: str) -> SyntheticRun:
    """Build the recipe's model and step; the model's weights are read, nothing else.

    Args:
        recipe: with the batch to probe.
        mean_tokens: sub-words of a caption.
        device: a device of torch.
    """
    source = train.open_source(recipe.model)
    preprocessing = source.description.pictures
    assert preprocessing is not None
    model = load_quantised(source).to(device)
    train.freeze(model, recipe)
    count, size = 2 * recipe.batch, preprocessing.size
    pictures = torch.randint(256, (count, size, size, 3), dtype=torch.uint8)
    if recipe.keep_pictures:
        pictures = torch.nn.functional.normalize(torch.randn(count, model.config.width), dim=1)
    visuals = open_visuals(pictures, model, preprocessing, recipe)
    captions = random_captions(
        count,
        CorpusShape(mean_tokens),
        model.config.encoder.vocab_size,
        tuple(dict.fromkeys(("en", "de", *recipe.language_weights))),
        recipe.max_text_tokens,
    )
    task = build_task(model, visuals, captions, recipe)
    mixture = Mixture({"captions": task})
    stages = [Stage("training", mixture, recipe.loop, train.groups(model, recipe))]
    return SyntheticRun(model, stages)

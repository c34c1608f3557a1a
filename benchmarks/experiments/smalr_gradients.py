"""How much of SMALR's gradient comes from equation 2, by its reading.

Equation 2 has a weight of 1e-4, and the paper does not say whether it is averaged over pairs of
sentences, over images alone, or summed over all. This trains SMALR by its recipe and measures on
the way, for each reading, the norm of equation 2's gradient relative to that of the matching
losses (equation 3, of whole and of masked captions), over the parameters of words and sentences.

    python -m benchmarks.experiments.smalr_gradients --data DATA --device cuda

Writes results/smalr_gradients.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from benchmarks.results_io import write_results
from polyglance.models.smalr import SMALR
from polyglance.models.smalr_baselines import build_word_model
from polyglance.objectives.masked_cross_language import PairReduction
from polyglance.recipes import open_recipe
from polyglance.recipes.smalr.config import SMALRRecipe
from polyglance.recipes.smalr.data import load_data
from polyglance.recipes.smalr.pretraining import pretrain_latent
from polyglance.recipes.smalr.tasks import CaptionGridSampler, SMALRTask
from polyglance.recipes.smalr.train import model_variant
from polyglance.training.loop import train_loop
from polyglance.training.mixture import Mixture


def main() -> None:
    options = _parse_options()
    changes = ["consistency=false", "dictionaries=null", *options.changes]
    recipe = open_recipe(options.recipe, changes).settings
    found = measure(recipe, options.data, options.run, options.steps, device=options.device)
    figures = {
        "recipe": options.recipe,
        "changes": options.changes,
        "device": options.device,
        "batch": recipe.batch,
        "languages": len(recipe.languages),
        "share_of_the_matching_gradient": found,
    }
    for step, shares in found.items():
        print(f"step {step}:", ", ".join(f"{name} {share:.4%}" for name, share in shares.items()))
    write_results("smalr_gradients", figures, options.out)


def measure(
    recipe: SMALRRecipe, data: Path, run: Path, steps: Sequence[int], *, device: str = "cpu"
) -> dict[int, dict[str, float]]:
    """Train SMALR and measure equation 2's share of the gradient before some steps.

    Args:
        recipe: The settings.
        data: The data folder.
        run: Run folder.
        steps: When to measure; training ends at the last.
        device: Where to train.

    Returns:
        By step and reading, the norm relative to that of the matching losses.
    """
    corpus = load_data(recipe, data, device)
    variant = model_variant(recipe, corpus.feature_width)
    captions = CaptionGridSampler(
        corpus.captions["train"], captions_per_language=recipe.captions_per_language
    )
    latent, _ = pretrain_latent(
        variant.config,
        corpus.vectors.to(corpus.device),
        captions,
        recipe.pretraining,
        rule=recipe.triplets,
        hard_negative_warmup=recipe.hard_negative_warmup,
        seed=recipe.loop.seed,
        folder=run / "pretraining",
        cache_dir=corpus.cache_dir,
    )
    torch.manual_seed(recipe.loop.seed)
    model = build_word_model(
        variant,
        corpus.lexicon.words,
        corpus.vectors,
        torch.from_numpy(corpus.lexicon.language_ids),
        torch.from_numpy(corpus.lexicon.frequency_ranks),
        steps=recipe.loop.steps,
        latent=latent,
    ).to(corpus.device)
    visuals = corpus.visuals["train"]
    task = SMALRTask(model, visuals, captions, variant.objective, batch=recipe.batch)
    found = {0: shares(model, task)}
    done = 0
    for step in sorted(set(steps) - {0}):
        loop = replace(
            recipe.loop, steps=step - done, schedule="constant", warmup=0, validate_every=0
        )
        train_loop(model, Mixture({"images": task}), loop, run / str(step))
        done, found[step] = step, shares(model, task)
    return found


def shares(model: SMALR, task: SMALRTask) -> dict[str, float]:
    """Return by reading the norm of equation 2's gradient relative to the matching losses'."""
    parameters = [*model.words.parameters(), *model.sentences.parameters()]
    objective, result = task.objective, {}
    model.train()
    for reduction in get_args(PairReduction):
        task.objective = replace(objective, mask_reduction=reduction)
        losses = task_losses(task)
        matching = _norm(losses["match"] + losses["match_masked"], parameters)
        result[reduction] = _norm(losses["masked"], parameters) / matching
    task.objective = objective
    return result


def task_losses(task: SMALRTask) -> dict[str, Tensor]:
    """Return the losses of one batch, the same for every call."""
    torch.manual_seed(0)
    return task.losses(task.sample(np.random.default_rng(0)))


def _norm(loss: Tensor, parameters: Sequence[Tensor]) -> float:
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    squares = [gradient.pow(2).sum() for gradient in gradients if gradient is not None]
    return float(torch.stack(squares).sum().sqrt())


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0] if __doc__ else None)
    add: Any = parser.add_argument
    add("--data", type=Path, required=True, help="folder of the recipe's manifests")
    add("--recipe", default="smalr-flickr8k", help="name or file of the recipe")
    add("--run", type=Path, default=Path("runs/smalr-gradients"), help="run folder")
    add("--steps", type=int, nargs="+", default=[0, 100, 500, 1000], help="when to measure")
    add("--set", dest="changes", action="append", default=[], help="change a setting")
    add("--device", default="cpu")
    add("--out", type=Path, default=None, help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Train SMALR, its ablations and its baselines: models of whole words on image features.

The recipe's model name says which (`polyglance.models.smalr_baselines`), and two further
settings change the lexicon before any model sees it. A monolingual model is trained once for
each language.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from polyglance.config import as_plain, load
from polyglance.evaluation.retrieval import RetrievalResult, mean_over_languages
from polyglance.models.smalr import SMALR, SMALRConfig, SMALRObjective
from polyglance.models.smalr_baselines import WORD_MODELS, WordModel, build_word_model
from polyglance.models.smalr_folder import save_smalr
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.recipes.retrieval_report import retrieval_report, validation_scores
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.recipes.smalr.config import SMALRRecipe
from polyglance.recipes.smalr.consistency import evaluate_consistency
from polyglance.recipes.smalr.data import SMALRData, load_data
from polyglance.recipes.smalr.evaluation import evaluate, with_human_average, word_coverage
from polyglance.recipes.smalr.pretraining import align_words, pretrain_latent
from polyglance.recipes.smalr.tasks import CaptionGridSampler, SMALRTask
from polyglance.training.loop import train_loop
from polyglance.training.mixture import Mixture
from polyglance.training.triplet_curriculum import TripletCurriculum


def train(recipe: SMALRRecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train a recipe; return and write its report.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        run: Run folder; an interrupted run continues.
        device: Where to train.
    """
    torch.set_float32_matmul_precision("high")
    corpus = load_data(recipe, data, device)
    save_recipe(recipe, "smalr", run)
    variant = model_variant(recipe, corpus.feature_width)
    if recipe.translate_to is not None:
        report = train_model(recipe, variant, corpus.translated_to(recipe.translate_to), run)
    elif variant.monolingual:
        reports = {
            language: train_model(recipe, variant, corpus.in_language(language), run / language)
            for language in recipe.languages
        }
        report = _merge_reports(reports, recipe)
    else:
        report = train_model(recipe, variant, corpus, run)
    write_report(report, run)
    return report


def model_variant(recipe: SMALRRecipe, feature_width: int) -> WordModel:
    """Return the named model with the recipe's changes, for features of a width."""
    variant = WORD_MODELS[recipe.model]
    config = {**as_plain(variant.config), **recipe.model_config, "visual_width": feature_width}
    objective = {**as_plain(variant.objective), **recipe.objective, "triplets": recipe.triplets}
    return replace(
        variant, config=load(SMALRConfig, config), objective=load(SMALRObjective, objective)
    )


def train_model(
    recipe: SMALRRecipe, variant: WordModel, data: SMALRData, run: Path
) -> dict[str, Any]:
    """Pre-train and train one model, save it and return its report.

    Args:
        recipe: The settings.
        variant: The model's configuration and objective.
        data: What to train and evaluate on.
        run: Run folder; an interrupted run continues.
    """
    loop = recipe.loop
    captions = CaptionGridSampler(
        data.captions["train"],
        captions_per_language=recipe.captions_per_language,
        languages_per_step=recipe.languages_per_step,
    )
    pretraining: dict[str, Any] = {
        "rule": recipe.triplets,
        "hard_negative_warmup": recipe.hard_negative_warmup,
        "seed": loop.seed,
        "folder": run / "pretraining",
    }
    latent, pretrained_parameters, pretraining_seconds = None, 0, 0.0
    if variant.needs_pretraining:
        latent, pretraining_seconds = pretrain_latent(
            variant.config,
            data.vectors.to(data.device),
            captions,
            recipe.pretraining,
            cache_dir=data.cache_dir,
            **pretraining,
        )
        pretrained_parameters = sum(p.numel() for p in latent.parameters())
    elif not has_projections(variant):
        loop = replace(loop, steps=loop.steps + recipe.pretraining.steps)
    torch.manual_seed(loop.seed)
    model = build_word_model(
        variant,
        data.lexicon.words,
        data.vectors,
        torch.from_numpy(data.lexicon.language_ids),
        torch.from_numpy(data.lexicon.frequency_ranks),
        steps=loop.steps,
        latent=latent,
    ).to(data.device)
    if isinstance(model.words, HybridEmbedding) and has_projections(variant) and latent is None:
        pretrained_parameters, pretraining_seconds = align_words(
            model.words, captions, recipe.pretraining, **pretraining
        )
    task = SMALRTask(model, data.visuals["train"], captions, variant.objective, batch=recipe.batch)
    curriculum = TripletCurriculum(
        task,
        task.set_rule,
        recipe.triplets,
        candidates=task.batch * recipe.captions_per_language,
        steps=round(recipe.hard_negative_warmup * loop.steps),
    )

    def results(split: str) -> dict[str, RetrievalResult]:
        return evaluate(model, data.captions[split], data.visuals[split])

    result = train_loop(
        model,
        Mixture({"images": curriculum}),
        loop,
        run,
        validate=lambda: validation_scores(results("validation")),
    )
    for pattern in ("latest*", "best", "pretraining/latest*"):
        for checkpoint in run.glob(pattern):
            # With the optimiser's moments a checkpoint is three times as large as the model.
            shutil.rmtree(checkpoint, ignore_errors=True)
    consistency: dict[str, Any] = {}
    networks = None
    if recipe.consistency and recipe.evaluate_test:
        consistency["consistency"], networks = evaluate_consistency(model, data, recipe)
    save_smalr(
        model, data.lexicon, run / "words", feature_info=data.feature_info, consistency=networks
    )
    report: dict[str, Any] = {
        "model": recipe.model,
        "words": len(data.lexicon),
        **_parameter_counts(model),
        "pretraining_parameters": pretrained_parameters,
        "best_step": result.best_step,
        "best_score": result.best,
        "seconds": round(result.seconds, 1),
        "pretraining_seconds": round(pretraining_seconds, 1),
        "coverage": word_coverage(model, data.captions["test"], data.word_counts),
    }
    for split in ("validation", *(["test"] if recipe.evaluate_test else [])):
        report[split] = with_human_average(retrieval_report(results(split)), recipe.human_languages)
    return {**report, **consistency}


def has_projections(variant: WordModel) -> bool:
    """Return whether words are projected into a universal space, for MULE's first stage."""
    return variant.character_width is None and variant.config.projection != "none"


def _parameter_counts(model: SMALR) -> dict[str, int]:
    words = model.words
    latent = words.latent.shape[0] if isinstance(words, HybridEmbedding) else 0
    return {
        "trainable_parameters": model.num_trainable_parameters(),
        "word_parameters": sum(p.numel() for p in words.parameters()),
        "test_time_parameters": model.num_test_time_parameters(),
        "latent_tokens": latent,
    }


def _merge_reports(reports: Mapping[str, dict[str, Any]], recipe: SMALRRecipe) -> dict[str, Any]:
    """Merge the reports of one model a language: sizes are summed, results stand by language."""
    summed = ("words", "trainable_parameters", "word_parameters", "test_time_parameters", "seconds")
    first = next(iter(reports.values()))
    report: dict[str, Any] = {
        "model": first["model"],
        **{name: sum(one[name] for one in reports.values()) for name in summed},
        "latent_tokens": 0,
        "pretraining_parameters": 0,
        "coverage": {code: one["coverage"][code] for code, one in reports.items()},
        "best_step": {language: one["best_step"] for language, one in reports.items()},
        "pretraining_seconds": 0.0,
    }
    for split in ("validation", "test"):
        if split in first:
            results = {language: one[split][language] for language, one in reports.items()}
            average = mean_over_languages({code: one["mR"] for code, one in results.items()})
            merged = {**results, "average": {"mR": average}}
            report[split] = with_human_average(merged, recipe.human_languages)
    report["best_score"] = report["validation"]["average"]["mR"]
    return report

"""Train a caption translator: data, network, one stage, evaluation of the saved model."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from polyglance.evaluation.translation import chrf, score_translations
from polyglance.languages import get_language
from polyglance.recipes.caption_translator.config import CaptionTranslatorRecipe
from polyglance.recipes.caption_translator.data import (
    HeldOut,
    TranslationData,
    load_data,
    texts_of,
)
from polyglance.recipes.caption_translator.tasks import TranslationTask, validation_losses
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.text.translation.caption_translator import (
    TranslationModel,
    load_translation_model,
    save_translation_model,
)
from polyglance.text.translation.network import TranslationNetwork
from polyglance.training.distributed import barrier, on_first_rank
from polyglance.training.loop import train_loop
from polyglance.training.mixture import Mixture

MODEL_FOLDER = "translator"
"""Of the run folder: what ``polyglance data translate --translator`` takes."""
_ROUND_TRIPS = 500
"""Held-out captions that are translated there and back."""


def train(
    recipe: CaptionTranslatorRecipe, data: Path, run: Path, *, device: str = "cpu"
) -> dict[str, Any]:
    """Train a recipe; return and write its report.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        run: Run folder; an interrupted run continues. The model is in ``translator``.
        device: Where to train.
    """
    torch.set_float32_matmul_precision("high")
    save_recipe(recipe, "caption_translator", run)
    begin = time.monotonic()
    corpus = load_data(recipe, data, run)
    prepared = time.monotonic() - begin
    torch.manual_seed(recipe.loop.seed)
    network = TranslationNetwork(recipe.network, len(corpus.vocabulary)).to(device)
    task = TranslationTask(
        network,
        corpus.table,
        corpus.train,
        batch_tokens=recipe.batch_tokens,
        label_smoothing=recipe.label_smoothing,
        plain_share=recipe.plain_share,
    )
    result = train_loop(
        network,
        Mixture({"translation": task}),
        recipe.loop,
        run,
        validate=lambda: _validate(network, corpus),
    )
    report: dict[str, Any] = {
        "vocabulary": len(corpus.vocabulary),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "pairs": corpus.counts,
        "steps": result.steps,
        "best_step": result.best_step,
        "best_score": result.best,
        "preparation_seconds": round(prepared, 1),
        "seconds": round(result.seconds, 1),
    }
    trained = TranslationModel(network.eval(), corpus.vocabulary)
    report |= on_first_rank(lambda: _save_and_evaluate(recipe, corpus, trained, run, device))
    barrier()
    write_report(report, run)
    return report


def _validate(network: TranslationNetwork, corpus: TranslationData) -> dict[str, float]:
    """Return the mean log probability of a held-out sub-word, over corpora and languages."""
    device = next(network.parameters()).device
    scores: dict[str, float] = {}
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        for name, pairs in corpus.validation.items():
            for code, loss in validation_losses(network, corpus.vocabulary, pairs).items():
                scores[f"{name}.{code}"] = -loss
    return scores | {"score": sum(scores.values()) / len(scores)}


def _save_and_evaluate(
    recipe: CaptionTranslatorRecipe,
    corpus: TranslationData,
    trained: TranslationModel,
    run: Path,
    device: str,
) -> dict[str, Any]:
    """Write the model folder and measure what it holds; languages that fail are refused."""
    folder = run / MODEL_FOLDER
    pairs = [(recipe.source, code) for code in recipe.languages]
    if recipe.from_targets > 0:
        pairs += [(code, recipe.source) for code in recipe.languages]
    save_translation_model(trained, folder, pairs=pairs, refused={}, quality={})
    model = load_translation_model(folder, device)
    begin = time.monotonic()
    test, num_sentences = _evaluate(model, corpus.test, recipe.num_beams)
    seconds = time.monotonic() - begin
    report: dict[str, Any] = {"test": test}
    refused: dict[str, str] = {}
    if recipe.from_targets > 0:
        report["round_trip"] = round_trips = _round_trips(model, recipe, corpus.test)
        refused = _refused(recipe, corpus.test, round_trips)
    report["refused"] = refused
    report["sentences_per_second"] = round(num_sentences / max(seconds, 1e-9), 1)
    quality = {key: value for key, value in report.items() if key in ("test", "round_trip")}
    save_translation_model(trained, folder, pairs=pairs, refused=refused, quality=quality)
    return report


def _evaluate(
    model: TranslationModel, held_out: HeldOut, num_beams: int
) -> tuple[dict[str, Any], int]:
    """Return BLEU and chrF by corpus and language, and how many sentences were translated."""
    report: dict[str, Any] = {}
    count = 0
    for name, by_language in held_out.items():
        for code, pairs in sorted(by_language.items()):
            sources, references = texts_of(pairs)
            translations = model.translate(sources, code, num_beams=num_beams)
            count += len(sources)
            scores = asdict(score_translations(translations, references, code))
            report.setdefault(name, {})[code] = {
                key: round(value, 2) if isinstance(value, float) else value
                for key, value in scores.items()
            }
    return report, count


def _round_trips(
    model: TranslationModel, recipe: CaptionTranslatorRecipe, held_out: HeldOut
) -> dict[str, float]:
    """Return chrF of held-out captions translated there and back, by language."""
    captions = _held_out_captions(recipe, held_out)
    report: dict[str, float] = {}
    for code in recipe.languages:
        there = model.translate(captions, code, num_beams=recipe.num_beams)
        back = model.translate(there, recipe.source, num_beams=recipe.num_beams)
        report[code] = round(chrf(back, captions), 2)
    return report


def _held_out_captions(recipe: CaptionTranslatorRecipe, held_out: HeldOut) -> list[str]:
    """Return source sentences of the first corpus that holds some out: that of captions."""
    name = next(corpus.name for corpus in recipe.corpora if corpus.held_out)
    sources = (pair.source for pairs in held_out[name].values() for pair in pairs)
    return list(dict.fromkeys(sources))[:_ROUND_TRIPS]


def _refused(
    recipe: CaptionTranslatorRecipe, held_out: HeldOut, round_trips: dict[str, float]
) -> dict[str, str]:
    """Return the languages without held-out captions that fail the quality check, and why."""
    name = next(corpus.name for corpus in recipe.corpora if corpus.held_out)
    measured = [code for code in recipe.languages if code in held_out[name]]
    expected = sum(round_trips[code] for code in measured) / len(measured)
    return {
        code: f"captions translated into {get_language(code).english_name} and back have chrF"
        f" {round_trips[code]:.1f}, below {recipe.min_round_trip:g} of {expected:.1f}"
        for code in recipe.languages
        if code not in measured and round_trips[code] < recipe.min_round_trip * expected
    }

"""Train MMP's image variant on captioned pictures: the recipe behind the default model.

Pictures with captions in many languages, sentences with translations, a
multilingual text encoder and a picture network that may be trained along. At
the end the model may be compressed into what is shipped.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.common import (
    Measured,
    keep,
    retrieval_by_language,
    write_report,
)
from polyglance.recipes.mmp.compressing import (
    Compression,
    compressed,
    refuse_incompressible,
    save_compact,
)
from polyglance.recipes.mmp.photo_corpora import Corpora
from polyglance.recipes.mmp.photo_recipe import PhotoRecipe
from polyglance.training.distribution import rank
from polyglance.training.loop import train
from polyglance.training.mixture import Mixture
from polyglance.training.pairing import Together
from polyglance.training.visuals import PixelTable
from polyglance.vision.efficientnet import EfficientNetLite


def run(recipe: PhotoRecipe, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train by a recipe on the data under a folder; returns and writes what was measured.

    Under `polyglance.training.distribution.joined` all processes call this together.
    """
    torch.set_float32_matmul_precision("high")
    if not recipe.pictures:
        raise PolyglanceError("the recipe has no pictures to train on: name a manifest")
    model, eyes = build_model(recipe, device)
    if recipe.compression is not None:
        refuse_incompressible(model, recipe.compression)
    corpora = Corpora(recipe, data, eyes, device)
    tasks = corpora.tasks(model)
    validation = corpora.measured(recipe.validation)
    # Read before training, so that what cannot be read does not wait for its end.
    test = None if recipe.test is None else corpora.measured(recipe.test)
    keep(recipe, "photos", out)
    finished = train(
        model,
        Mixture({"all": Together(tasks)}),
        recipe.loop,
        out,
        validate=lambda: scores(model, validation, corpora.held),
        groups=[
            {"params": list(model.encoder.parameters()), "rate": recipe.encoder_rate},
            {"params": list(eyes.network.parameters()), "rate": recipe.backbone_rate},
            {"params": [p for n, p in model.named_parameters() if _is_new(n)], "rate": 1.0},
        ],
    )
    report: dict[str, Any] = {
        "validation": scores(model, validation, corpora.held),
        "best_step": finished.best_step,
        "seconds": round(finished.seconds),
    }
    if test is not None:
        report["test"] = all_recalls(model, test)
    write_report(report, out)
    if recipe.compression is not None:
        report["compressed"] = _made_small(
            recipe, recipe.compression, model, corpora, validation, test, out
        )
        write_report(report, out)
        if rank() == 0:
            _export(out, recipe.compression.name)
    return report


def _made_small(
    recipe: PhotoRecipe,
    compression: Compression,
    model: MMP,
    corpora: Corpora,
    validation: Measured,
    test: Measured | None,
    out: Path,
) -> dict[str, Any]:
    """Compress what was trained and lay it down to be exported; returns what is measured on it."""

    def validate(pupil: MMP, seen: torch.nn.Module) -> dict[str, float]:
        held = {name: _seen_by(part, seen) for name, part in corpora.held.items()}
        return scores(pupil, _seen_by(validation, seen), held)

    small, eyes = compressed(
        model,
        compression,
        sentences=corpora.sentences,
        pictures=corpora.pictures,
        precision=recipe.loop.precision,
        validate=validate,
        folder=out / "compressed",
    )
    found: dict[str, Any] = {"validation": validate(small, eyes)}
    if test is not None:
        found["test"] = all_recalls(small, _seen_by(test, eyes))
    save_compact(
        small,
        out / "compact",
        size=recipe.size,
        mean=corpora.eyes.mean,
        std=corpora.eyes.std,
        longest=recipe.longest,
        tokenizer=recipe.encoder,
        languages=corpora.languages,
    )
    return found


def _export(out: Path, name: str) -> None:
    """Make the model folder, or say how, where what writes it is not installed."""
    if find_spec("onnx"):
        from polyglance.export.from_run import export_run

        export_run(out, out / "model", name=name)
    else:
        print(
            f"onnx is not installed here: where polyglance[train] is, make the model by"
            f" polyglance export {out} --out {out / 'model'} --name {name}",
            file=sys.stderr,
        )


def build_model(recipe: PhotoRecipe, device: str) -> tuple[MMP, EfficientNetLite]:
    """An untrained model on pretrained parts; the picture network is part of it, as ``eyes``."""
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    eyes = EfficientNetLite(
        weights.folder(recipe.backbone), recipe.backbone, recipe.size, device=device
    )
    config = MMPConfig(
        encoder=encoder.config,
        text_layer=recipe.text_layer,
        frozen_layers=recipe.frozen_layers,
        visual_width=eyes.width,
        width=recipe.width,
        pooling_layers=recipe.pooling_layers,
        pooling_heads=recipe.pooling_heads,
        text_pooling=recipe.text_pooling,
        dropout=recipe.dropout,
    )
    torch.manual_seed(recipe.loop.seed)
    model = MMP(config, encoder)
    network = eyes.network.requires_grad_(recipe.backbone_rate > 0)
    model.add_module("eyes", network)
    return model.to(device), eyes


def _is_new(name: str) -> bool:
    return not name.startswith(("encoder.", "eyes."))


def recall_by_language(model: MMP, measured: Measured) -> dict[str, float]:
    """mR of each language and their average, in percent."""
    recalls = {
        language: float(result.mean_recall)
        for language, result in retrieval_by_language(model, measured).items()
    }
    return {**recalls, "average": float(np.mean(list(recalls.values())))}


def all_recalls(model: MMP, measured: Measured) -> dict[str, dict[str, float]]:
    """mR and recalls both ways of each language, in percent, and mR's average."""
    found: dict[str, dict[str, float]] = {}
    for language, result in retrieval_by_language(model, measured).items():
        found[language] = {"mR": float(result.mean_recall)}
        for way, direction in (
            ("text_to_image", result.text_to_image),
            ("image_to_text", result.image_to_text),
        ):
            found[language] |= {f"{way}_R@{k}": float(r) for k, r in direction.recalls.items()}
    return {**found, "average": {"mR": float(np.mean([f["mR"] for f in found.values()]))}}


def scores(model: MMP, validation: Measured, held: dict[str, Measured]) -> dict[str, float]:
    """mR by language on validation and on held-out pictures; ``score`` chooses the checkpoint."""
    figures = recall_by_language(model, validation)
    for name, measured in held.items():
        found = recall_by_language(model, measured)
        figures |= {f"{name}.{language}": value for language, value in found.items()}
    return {**figures, "score": figures["average"]}


def _seen_by(measured: Measured, network: torch.nn.Module) -> Measured:
    """The same pictures through other eyes."""
    assert isinstance(measured.visuals, PixelTable)
    return Measured(measured.visuals.seen_by(network), measured.captions)

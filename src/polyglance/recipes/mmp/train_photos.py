"""Train MMP's image variant on photos: the recipe behind the default model.

It learns from images with captions in many languages and from sentences with translations,
with a multilingual text encoder and an image backbone that may be trained along. At the end
the model may be compressed into the one that ships.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from polyglance import weights
from polyglance.batches.inputs import EarlySize, ImagePixels
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.models.mmp_folder import OWN_FOLDER, TrainedFeatures, save_mmp
from polyglance.nn.pretrained import distinct_tensors, load_encoder
from polyglance.recipes.mmp.class_names import ClassNameTask, class_statistics
from polyglance.recipes.mmp.compression import (
    compress_and_distil,
    require_compressible,
    save_compact,
)
from polyglance.recipes.mmp.config import BACKBONE_MODULE, CompressionConfig, MMPPhotoRecipe
from polyglance.recipes.mmp.data import corpus_name, with_mask_id
from polyglance.recipes.mmp.evaluation import RetrievalSplit, all_recalls, photo_scores
from polyglance.recipes.mmp.initialise import read_average
from polyglance.recipes.mmp.label_names import LabelNameTask
from polyglance.recipes.mmp.photo_data import PhotoData, image_order, load_photo_data
from polyglance.recipes.mmp.tasks import MMPTask, ParallelTextTask
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.training.distributed import full_tensor, rank
from polyglance.training.loop import train_loop
from polyglance.training.mixture import Mixture, MultiTask, Task, TurnTask
from polyglance.vision.backbone import is_transformers_folder
from polyglance.vision.efficientnet import EfficientNetLite, save_efficientnet
from polyglance.vision.torch_backbone import TorchBackbone
from polyglance.vision.transformers_backbone import TransformersBackbone, save_tower

MODEL_FOLDER = "model"
"""Folder of a run with its trained model, not compressed, and the image backbone of it."""


def train(recipe: MMPPhotoRecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train a recipe; return and write its report.

    Under `polyglance.training.distributed.init_distributed` all processes call this together.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        run: Run folder; an interrupted run continues.
        device: Where to train.
    """
    torch.set_float32_matmul_precision("high")
    backbone = open_backbone(recipe, device)
    model = build_model(recipe, backbone, device)
    if recipe.compression is not None:
        require_compressible(model, recipe.compression)
    known = None
    if recipe.initialise_from is not None:
        known = read_average(model, (recipe.initialise_from, *recipe.average_with))
    photos = load_photo_data(recipe, data, backbone, device)
    tasks = build_tasks(recipe, photos, model, backbone)
    languages = set(photos.languages)
    if known is not None:  # the tasks know the backbone as it was
        model.load_state_dict(known.tensors, strict=False)
        languages.update(known.languages)
    if recipe.early_image_size is not None:
        steps = round(recipe.early_share * recipe.loop.steps)
        for table in photos.pixel_tables:
            table.early = EarlySize(recipe.early_image_size, steps)
    save_recipe(recipe, "mmp_photos", run)
    result = train_loop(
        model,
        Mixture({"all": MultiTask(tasks)}),
        recipe.loop,
        run,
        validate=lambda: photo_scores(model, photos.validation, photos.held_out),
        param_groups=parameter_groups(model, backbone, recipe),
    )
    report: dict[str, Any] = {
        "validation": photo_scores(model, photos.validation, photos.held_out),
        "best_step": result.best_step,
        "seconds": round(result.seconds),
    }
    if photos.test is not None:
        report["test"] = all_recalls(model, photos.test)
    write_report(report, run)
    if recipe.compression is None:
        save_with_backbone(model, backbone, recipe, photos, languages, run / MODEL_FOLDER)
    else:
        report["compressed"] = _compress(
            recipe, recipe.compression, model, photos, backbone, run, languages
        )
        write_report(report, run)
        if rank() == 0:
            _export(run, recipe.compression.name)
    return report


def open_backbone(recipe: MMPPhotoRecipe, device: str) -> TorchBackbone:
    """Open the pretrained image backbone: EfficientNet-Lite, or a tower of transformers."""
    name = recipe.image_backbone
    folder = weights.folder(name)
    if not is_transformers_folder(folder):
        return EfficientNetLite(folder, name, recipe.image_size, device=device)
    if recipe.compression is not None:
        raise PolyglanceError(
            f"{name} is a vision model of transformers, which cannot be compressed: set compression"
            " to null; 'polyglance export' stores its weights in float16"
        )
    return TransformersBackbone(folder, name, recipe.image_size, device=device)


def build_model(recipe: MMPPhotoRecipe, backbone: TorchBackbone, device: str) -> MMP:
    """Return an untrained model on pretrained parts; the image backbone is a submodule of it."""
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    config = MMPConfig(
        encoder=encoder.config,
        text_layer=recipe.text_layer,
        frozen_layers=recipe.frozen_layers,
        visual_width=backbone.width,
        width=recipe.width,
        pooling_layers=recipe.pooling_layers,
        pooling_heads=recipe.pooling_heads,
        text_pooling=recipe.text_pooling,
        dropout=recipe.dropout,
    )
    torch.manual_seed(recipe.loop.seed)
    model = MMP(config, encoder)
    network = backbone.network.requires_grad_(recipe.backbone_lr_multiplier > 0)
    model.add_module(BACKBONE_MODULE, network)
    return model.to(device)


def build_tasks(
    recipe: MMPPhotoRecipe, data: PhotoData, model: MMP, backbone: TorchBackbone
) -> list[tuple[str, Task, float]]:
    """Return name, task and weight of each corpus, and of the names of classes and labels.

    Those that take turns are one task, ``turns``.

    Args:
        recipe: The settings.
        data: The corpora.
        model: The model to train.
        backbone: Its image backbone, not yet fine-tuned.
    """
    objective = with_mask_id(recipe.objective, data.tokenizer, recipe.encoder)
    tasks: list[tuple[str, Task, float]] = []
    turns: list[tuple[str, Task, float]] = []
    for corpus, pixels, captions in data.images:
        task = MMPTask(
            model,
            pixels,
            captions,
            objective,
            batch=corpus.batch,
            captions_per_image=corpus.captions_per_image,
            weights={
                code: corpus.language_weights.get(code, 1.0) for code in captions.language_codes
            },
            streaming=image_order(recipe, corpus, pixels),
        )
        tasks.append((corpus_name(corpus.manifest), task, corpus.weight))
    for text, sentences in data.texts:
        parallel = ParallelTextTask(
            model, sentences, batch=text.batch, temperature=text.temperature
        )
        chosen = turns if text.in_turns else tasks
        chosen.append((corpus_name(text.manifest), parallel, text.weight))
    if recipe.class_names is not None and data.class_names is not None:
        config, names = recipe.class_names, data.class_names
        class_task = ClassNameTask(
            model,
            data.pixel_tables,
            names,
            class_statistics(data.pixel_tables, _classifier(backbone)),
            weights={
                code: config.english_weight if code == "en" else 1.0
                for code in names.language_codes
            },
            batch=config.batch,
        )
        chosen = turns if config.in_turns else tasks
        chosen.append(("classes", class_task, config.weight))
    if (labels := recipe.label_names) is not None and data.label_names is not None:
        label_task = LabelNameTask(
            model,
            data.pixel_tables,
            data.labels,
            data.label_names,
            batch=labels.batch,
            temperature=labels.temperature,
        )
        chosen = turns if labels.in_turns else tasks
        chosen.append(("labels", label_task, labels.weight))
    if turns:
        tasks.append(("turns", TurnTask(turns), 1.0))
    return tasks


def _classifier(backbone: TorchBackbone) -> nn.Linear:
    classifier = backbone.network.get_submodule("classifier")
    assert isinstance(classifier, nn.Linear)
    return classifier


def save_with_backbone(
    model: MMP,
    backbone: TorchBackbone,
    recipe: MMPPhotoRecipe,
    data: PhotoData,
    languages: set[str],
    folder: Path,
) -> None:
    """Write the trained model with its image backbone, which can be exported.

    Args:
        model: The trained model.
        backbone: Its image backbone, trained along.
        recipe: The settings.
        data: The corpora.
        languages: Of all captions that it learned from.
        folder: Where to write.
    """
    own = f"{BACKBONE_MODULE}."
    tensors = {name: full_tensor(value) for name, value in distinct_tensors(model).items()}
    network = {
        name.removeprefix(own): tensors.pop(name) for name in [*tensors] if name.startswith(own)
    }
    if rank() > 0:
        return
    if isinstance(backbone, TransformersBackbone):
        save_tower(backbone, folder / BACKBONE_MODULE)
    else:
        assert isinstance(backbone, EfficientNetLite)
        save_efficientnet(backbone, network, folder / BACKBONE_MODULE)
    zeros = np.zeros((1, recipe.image_size, recipe.image_size, 3), np.uint8)
    grid = backbone.feature_map(zeros).shape[1]
    made_by = {
        "backbone": f"{OWN_FOLDER}{BACKBONE_MODULE}",
        "size": recipe.image_size,
        "grid": grid,
    }
    save_mmp(
        tensors,
        model.config,
        data.tokenizer,
        folder,
        features=TrainedFeatures((made_by,), pictures=True, max_tokens=grid * grid + 1,
                                 prepend_global=True),
        max_text_tokens=recipe.max_text_tokens,
        languages=sorted(languages),
    )  # fmt: skip


def parameter_groups(
    model: MMP, backbone: TorchBackbone, recipe: MMPPhotoRecipe
) -> list[dict[str, Any]]:
    """Return parameter groups with their learning rates: encoder, image backbone, new layers."""
    pretrained = ("encoder.", f"{BACKBONE_MODULE}.")
    new = [p for name, p in model.named_parameters() if not name.startswith(pretrained)]
    return [
        {
            "params": list(model.encoder.parameters()),
            "lr_multiplier": recipe.encoder_lr_multiplier,
        },
        {
            "params": list(backbone.network.parameters()),
            "lr_multiplier": recipe.backbone_lr_multiplier,
        },
        {"params": new, "lr_multiplier": 1.0},
    ]


def _compress(
    recipe: MMPPhotoRecipe,
    compression: CompressionConfig,
    model: MMP,
    photos: PhotoData,
    backbone: TorchBackbone,
    run: Path,
    languages: set[str],
) -> dict[str, Any]:
    """Compress the trained model, save it for export and return its results."""

    def validate(student: MMP, network: nn.Module) -> dict[str, float]:
        held_out = {name: _with_network(s, network) for name, s in photos.held_out.items()}
        return photo_scores(student, _with_network(photos.validation, network), held_out)

    small, network = compress_and_distil(
        model,
        compression,
        sentences=photos.sentences,
        images=photos.pixel_tables,
        precision=recipe.loop.precision,
        validate=validate,
        folder=run / "compressed",
    )
    results: dict[str, Any] = {"validation": validate(small, network)}
    if photos.test is not None:
        results["test"] = all_recalls(small, _with_network(photos.test, network))
    save_compact(
        small,
        run / "compact",
        image_size=recipe.image_size,
        mean=backbone.mean,
        std=backbone.std,
        max_text_tokens=recipe.max_text_tokens,
        tokenizer=recipe.encoder,
        languages=sorted(languages),
    )
    return results


def _with_network(split: RetrievalSplit, network: nn.Module) -> RetrievalSplit:
    """Return the same images encoded by another image backbone."""
    assert isinstance(split.visuals, ImagePixels)
    return RetrievalSplit(split.visuals.with_network(network), split.captions)


def _export(run: Path, name: str) -> None:
    """Export the model folder, or print the command where onnx is not installed."""
    if find_spec("onnx"):
        from polyglance.export.from_run import export_run

        export_run(run, run / "model", name=name)
    else:
        print(
            "onnx is not installed here; on a machine with polyglance[train], make the model with"
            f" polyglance export {run} --out {run / 'model'} --name {name}",
            file=sys.stderr,
        )

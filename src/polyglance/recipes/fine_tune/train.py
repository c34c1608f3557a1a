"""Fine-tune an exported dual encoder on captioned pictures.

The model stays quantised: weights are rounded in every step as the exported model rounds them, the
word table is fixed, and what is written has the size and the files of the model that was given.
At the end the weights are interpolated with those of before, which keeps what few pictures cannot
teach (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.encoders.model_folder import (
    DEFAULT_MODEL,
    VOCABULARY,
    ImagePreprocessing,
    ModelFolder,
    shipped_models,
)
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.fine_tuned import (
    FineTuned,
    export_fine_tuned,
    fine_tuned_state,
    load_quantised,
    save_fine_tuned,
)
from polyglance.models.mmp import MMP
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.fine_tune.data import (
    captions_of,
    load_pictures,
    load_validation,
    moved_records,
    open_visuals,
    read_captions,
    split_records,
)
from polyglance.recipes.fine_tune.tasks import build_task
from polyglance.recipes.mmp.config import BACKBONE_MODULE
from polyglance.recipes.mmp.evaluation import (
    RetrievalSplit,
    all_recalls,
    mean_recalls,
    photo_scores,
)
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.records import atomic_write, write_manifest
from polyglance.text.huggingface import FastTokenizer
from polyglance.training.distributed import rank, world_size
from polyglance.training.loop import train_loop
from polyglance.training.mixture import Mixture
from polyglance.utils.bounded import parse_json
from polyglance.weights.unigram import xlmr_tokenizer

SOURCE = "source.json"
"""File in the run folder that says which model is fine-tuned."""
HELD_OUT = "held-out.jsonl"
"""Manifest in the run folder of the pictures that were not trained on."""
_PICTURE_SIDE = (BACKBONE_MODULE, "visual_input", "visual_pooling")
"""What vectors of pictures depend on."""


def train(recipe: FineTuneRecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Fine-tune, evaluate on the pictures held out, and write ``RUN/model``.

    Args:
        recipe: The settings.
        data: Folder that holds the captions and the pictures.
        run: Run folder; an interrupted run continues.
        device: Where to train.

    Returns:
        The report: recalls on the pictures held out, and mR on those of ``validation``, before and
        after.
    """
    torch.set_float32_matmul_precision("high")
    if recipe.validation and recipe.loop.sharding == "fsdp" and world_size() > 1:
        raise PolyglanceError("validation takes whole weights: set loop.sharding to ddp")
    source = open_source(recipe.model)
    preprocessing = source.description.pictures
    assert isinstance(preprocessing, ImagePreprocessing)
    model = load_quantised(source).to(device)
    freeze(model, recipe)
    tokenizer = open_vocabulary(source)
    validation = load_validation(data, model, preprocessing, tokenizer, recipe)
    records, counts = read_captions(captions_of(recipe, data))
    records, pictures = load_pictures(records, model, preprocessing, recipe)
    numbers = split_records(len(records), recipe)
    training, held_out = ([records[number] for number in part] for part in numbers)
    examples, tests = (
        RetrievalSplit(
            open_visuals(pictures[chosen], model, preprocessing, recipe),
            CaptionTable.build(
                part,
                tokenizer,
                languages=recipe.languages,
                max_tokens=recipe.max_text_tokens,
            ),
        )
        for part, chosen in zip((training, held_out), numbers, strict=True)
    )
    often = np.array([counts[str(record.image)] for record in training], float)
    task = build_task(model, examples.visuals, examples.captions, recipe, often)
    save_recipe(recipe, "fine_tune", run)
    check_source(source, run)
    if rank() == 0:
        write_manifest(run / HELD_OUT, moved_records(held_out, run))
    before = {name: p.detach().clone() for name, p in trainable(model).items()}
    report: dict[str, Any] = {"before": all_recalls(model, tests)}
    validated = {} if validation is None else {"before": mean_recalls(model, validation)}

    def validate() -> dict[str, float]:
        assert validation is not None
        with interpolated(model, before, recipe.interpolation):
            return photo_scores(model, validation, {})

    result = train_loop(
        model,
        Mixture({"captions": task}),
        recipe.loop,
        run,
        validate=None if validation is None else validate,
        param_groups=groups(model, recipe),
    )
    interpolate(model, before, recipe.interpolation)
    report |= {
        "after": all_recalls(model, tests),
        "pictures": {"trained on": len(training), "held out": len(held_out)},
        "seconds": round(result.seconds),
    }
    figures = {"measured on": f"{len(held_out)} pictures held out", "test": report["after"]}
    if validation is not None:
        validated["after"] = figures["validation"] = mean_recalls(model, validation)
        report |= {"validation": validated, "best_step": result.best_step}
    write_report(report, run)
    if rank() == 0:
        settings = FineTuned(
            _model_reference(recipe.model),
            source.description.fingerprint,
            recipe.name,
            tuple(sorted({*source.description.languages, *examples.captions.language_codes})),
            figures,
        )
        save_fine_tuned(fine_tuned_state(model, source, trainable(model)), settings, run)
        _export(run, source)
    return report


def open_source(model: str | None) -> ModelFolder:
    """Open the model to start from; refuse one that has no quantised weights of pictures."""
    source = ModelFolder.open(model)
    if source.description.pictures is None or source.description.text != "sub-words":
        raise PolyglanceError(
            f"{source.path} holds no compressed model of pictures and sub-words: give the default"
            " model or an export of the recipe polyglance-small"
        )
    return source


def check_source(source: ModelFolder, run: Path) -> None:
    """Note in the run which model is fine-tuned; refuse to continue from another.

    The default model changes with an update, and its weights would be mixed with those of before.
    """
    noted, own = run / SOURCE, source.description.fingerprint
    if noted.exists():
        before = str(parse_json(noted.read_bytes())["fingerprint"])
        if before != own:
            raise PolyglanceError(
                f"{run} fine-tunes another model than {source.path} ({before[:8]}, not {own[:8]}):"
                " give the former with --set model=FOLDER, or another --out"
            )
    elif rank() == 0:
        with atomic_write(noted) as file:
            name = source.description.name
            file.write(json.dumps({"model": name, "fingerprint": own}) + "\n")


def open_vocabulary(source: ModelFolder) -> FastTokenizer:
    """Return the model's tokenizer."""
    vocabulary = Vocabulary.from_bytes(source.read_file(VOCABULARY))
    pieces = list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True))
    return FastTokenizer(xlmr_tokenizer(pieces, vocabulary.charsmap))


def freeze(model: MMP, recipe: FineTuneRecipe) -> None:
    """Freeze what the recipe leaves as it is."""
    layers = len(model.encoder.layers)
    if recipe.frozen_text_layers > layers:
        raise PolyglanceError(
            f"frozen_text_layers is {recipe.frozen_text_layers} and the model's text encoder has"
            f" {layers} layers: lower frozen_text_layers"
        )
    if recipe.frozen_text_layers:
        model.encoder.freeze_below(recipe.frozen_text_layers)
    model.get_submodule(BACKBONE_MODULE).requires_grad_(recipe.backbone_lr_multiplier > 0)
    if recipe.keep_pictures:
        for name in _PICTURE_SIDE:
            model.get_submodule(name).requires_grad_(False)


def trainable(model: MMP) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def groups(model: MMP, recipe: FineTuneRecipe) -> list[dict[str, Any]]:
    """Return parameter groups with their learning rates: the image network, and all else."""
    network = [p for n, p in trainable(model).items() if n.startswith(f"{BACKBONE_MODULE}.")]
    others = [p for n, p in trainable(model).items() if not n.startswith(f"{BACKBONE_MODULE}.")]
    found: list[dict[str, Any]] = [{"params": others, "lr_multiplier": 1.0}]
    if network:
        found.append({"params": network, "lr_multiplier": recipe.backbone_lr_multiplier})
    return found


@torch.no_grad()
def interpolate(model: MMP, before: dict[str, Tensor], share: float) -> None:
    """Move the trained weights to ``before + share * (trained - before)``."""
    for name, parameter in trainable(model).items():
        parameter.copy_(torch.lerp(before[name], parameter, share))


@contextmanager
def interpolated(model: MMP, before: dict[str, Tensor], share: float) -> Iterator[None]:
    """Interpolate the weights within the context; they are as trained after it."""
    trained = {name: p.detach().clone() for name, p in trainable(model).items()}
    interpolate(model, before, share)
    try:
        yield
    finally:
        interpolate(model, trained, 0.0)


def _model_reference(model: str | None) -> str:
    """Return a shipped model's name or a folder's whole path, to open the model again."""
    if model is None or model in shipped_models():
        return model or DEFAULT_MODEL
    return str(Path(model).expanduser().absolute())


def _export(run: Path, source: ModelFolder) -> None:
    """Export the model folder, or print the command where onnx is not installed."""
    if find_spec("onnx"):
        export_fine_tuned(run, run / "model", source=source)
    else:
        print(
            "onnx is not installed here; on a machine with polyglance[train], make the model with"
            f" polyglance export {shlex.quote(str(run))} --out {shlex.quote(str(run / 'model'))}",
            file=sys.stderr,
        )

"""Fine-tune an exported dual encoder on captioned pictures.

The model stays quantised: weights are rounded in every step as the exported model rounds them, the
word table is fixed, and what is written has the size and the files of the model that was given.
At the end the weights are interpolated with those of before, which keeps what few pictures cannot
teach (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import PixelTable
from polyglance.data.captioned_pictures import read_captioned_pictures
from polyglance.data.captions import CaptionTable
from polyglance.encoders.model_folder import VOCABULARY, ImagePreprocessing, ModelFolder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError
from polyglance.export.fine_tuned import load_quantised, write_fine_tuned
from polyglance.models.mmp import MMP
from polyglance.nn.compression import compact_state
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.mmp.config import BACKBONE_MODULE
from polyglance.recipes.mmp.evaluation import RetrievalSplit, all_recalls
from polyglance.recipes.mmp.tasks import MMPTask
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.records import Record, write_manifest
from polyglance.text.huggingface import FastTokenizer
from polyglance.training.distributed import rank
from polyglance.training.loop import train_loop
from polyglance.training.mixture import Mixture
from polyglance.vision.pictures import PictureError, read_square
from polyglance.weights.unigram import xlmr_tokenizer

HELD_OUT = "held-out.jsonl"
"""Manifest in the run folder of the pictures that were not trained on."""
_MAX_NAMED = 10
"""Unreadable pictures that are named; the others are counted."""


def train(recipe: FineTuneRecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Fine-tune, evaluate on the pictures held out, and write ``RUN/model``.

    Args:
        recipe: The settings.
        data: Folder that holds the captions and the pictures.
        run: Run folder; an interrupted run continues.
        device: Where to train.

    Returns:
        The report: recalls on the pictures held out, before and after.
    """
    torch.set_float32_matmul_precision("high")
    source = open_source(recipe.model)
    records, folder = read_captioned_pictures(captions_of(recipe, data))
    records = [record for record in records if record.image and record.captions]
    preprocessing = source.description.pictures
    assert isinstance(preprocessing, ImagePreprocessing)
    records, pixels = read_pictures(records, folder, preprocessing.size)
    numbers = split_records(len(records), recipe)
    training, held_out = ([records[number] for number in part] for part in numbers)
    model = load_quantised(source).to(device)
    model.image_backbone.requires_grad_(recipe.backbone_lr_multiplier > 0)
    tokenizer = open_vocabulary(source)
    examples, tests = (
        load_split(part, pixels[chosen], model, preprocessing, tokenizer, recipe)
        for part, chosen in zip((training, held_out), numbers, strict=True)
    )
    task = MMPTask(
        model,
        examples.visuals,
        examples.captions,
        recipe.objective,
        batch=recipe.batch,
        captions_per_image=recipe.captions_per_image,
    )
    save_recipe(recipe, "fine_tune", run)
    if rank() == 0:
        write_manifest(run / HELD_OUT, moved_records(held_out, folder, run))
    before = {name: p.detach().clone() for name, p in trainable(model).items()}
    report: dict[str, Any] = {"before": all_recalls(model, tests)}
    result = train_loop(
        model, Mixture({"captions": task}), recipe.loop, run, param_groups=groups(model, recipe)
    )
    interpolate(model, before, recipe.interpolation)
    report |= {
        "after": all_recalls(model, tests),
        "pictures": {"trained on": len(training), "held out": len(held_out)},
        "seconds": round(result.seconds),
    }
    write_report(report, run)
    if rank() == 0:
        languages = sorted({*source.description.languages, *examples.captions.language_codes})
        figures = {"measured on": f"{len(held_out)} pictures held out", "test": report["after"]}
        write_fine_tuned(
            source,
            compact_state(model),
            run / "model",
            name=recipe.name,
            languages=languages,
            figures=figures,
        )
    return report


def captions_of(recipe: FineTuneRecipe, data: Path) -> Path:
    """Return the captions that the recipe names, or else the data folder in any other layout."""
    named = data / recipe.captions
    is_default = recipe.captions == FineTuneRecipe.captions
    return data if is_default and not named.exists() else named


def open_source(model: str | None) -> ModelFolder:
    """Open the model to start from; refuse one that has no quantised weights of pictures."""
    source = ModelFolder.open(model)
    if source.description.pictures is None or source.description.text != "sub-words":
        raise PolyglanceError(
            f"{source.path} holds no compressed model of pictures and sub-words: give the default"
            " model or an export of the recipe polyglance-small"
        )
    return source


def open_vocabulary(source: ModelFolder) -> FastTokenizer:
    """Return the model's tokenizer."""
    vocabulary = Vocabulary.from_bytes(source.read_file(VOCABULARY))
    pieces = list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True))
    return FastTokenizer(xlmr_tokenizer(pieces, vocabulary.charsmap))


def read_pictures(
    records: Sequence[Record], folder: Path, size: int
) -> tuple[list[Record], Tensor]:
    """Read the pictures of records; those that cannot be read are named and left out.

    Args:
        records: The pictures and captions.
        folder: Of the pictures.
        size: Side of the squares.

    Returns:
        The records left, and their pixels, uint8 ``(n, size, size, RGB)``.
    """

    def read(record: Record) -> NDArray[np.uint8] | PictureError:
        try:
            return read_square(folder / str(record.image), size).pixels
        except PictureError as error:
            return error

    with ThreadPoolExecutor() as pool:
        read_all = list(zip(records, pool.map(read, records), strict=True))
    errors = [result for _, result in read_all if isinstance(result, PictureError)]
    if rank() == 0:
        for error in errors[:_MAX_NAMED]:
            print(f"left out: {error}", file=sys.stderr)
        if len(errors) > _MAX_NAMED:
            print(f"left out: {len(errors) - _MAX_NAMED:,} more pictures", file=sys.stderr)
    good = [(r, result) for r, result in read_all if not isinstance(result, PictureError)]
    squares = np.array([pixels for _, pixels in good], dtype=np.uint8)
    return [record for record, _ in good], torch.from_numpy(squares)


def split_records(count: int, recipe: FineTuneRecipe) -> tuple[list[int], list[int]]:
    """Return the numbers of the records to train on and held out, drawn by the recipe's seed."""
    held_out = max(1, round(recipe.held_out * count))
    if count - held_out < 2:
        raise PolyglanceError(
            f"{count} of the pictures with captions can be read, too few to train on:"
            " add pictures or lower held_out"
        )
    drawn = np.random.default_rng(recipe.loop.seed).permutation(count)[:held_out]
    chosen = set(drawn.tolist())
    return [number for number in range(count) if number not in chosen], sorted(chosen)


def load_split(
    records: Sequence[Record],
    pixels: Tensor,
    model: MMP,
    preprocessing: ImagePreprocessing,
    tokenizer: FastTokenizer,
    recipe: FineTuneRecipe,
) -> RetrievalSplit:
    """Put pictures on the model's device, and captions as sub-words.

    Args:
        records: The pictures and captions.
        pixels: Of the pictures, uint8 ``(n, size, size, RGB)``.
        model: Encodes them.
        preprocessing: How the model takes pictures.
        tokenizer: Of the model.
        recipe: The settings.
    """
    captions = CaptionTable.build(
        records, tokenizer, languages=recipe.languages, max_tokens=recipe.max_text_tokens
    )
    table = PixelTable(
        pixels,
        model.get_submodule(BACKBONE_MODULE),
        torch.tensor(preprocessing.mean),
        torch.tensor(preprocessing.std),
        min_crop_area=recipe.min_crop_area,
        mirror=recipe.mirror,
        device=next(model.parameters()).device,
    )
    return RetrievalSplit(table, captions)


def moved_records(records: Sequence[Record], source: Path, folder: Path) -> list[Record]:
    """Return the records with the paths of their pictures relative to another folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        replace(record, image=Path(os.path.relpath(source / str(record.image), folder)).as_posix())
        for record in records
    ]


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

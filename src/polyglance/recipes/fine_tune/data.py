"""Read the captioned pictures of fine-tuning, as pixels or as vectors that stay as they are."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.inputs import PixelTable, VectorTable, VisualTable
from polyglance.data.captioned_pictures import read_captioned_pictures
from polyglance.data.captions import CaptionTable
from polyglance.encoders.model_folder import ImagePreprocessing
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.image_sources import pool_for
from polyglance.recipes.mmp.config import BACKBONE_MODULE
from polyglance.recipes.mmp.evaluation import RetrievalSplit
from polyglance.records import Record
from polyglance.text import Tokenizer
from polyglance.training.distributed import rank
from polyglance.utils.progress import progress
from polyglance.vision.decoding import DecodePool

CHUNK = 2048
"""Pictures whose pixels are in memory at a time, where vectors of them are kept."""
_BLOCK = 128
"""Pictures encoded at a time."""
_MAX_NAMED = 10
"""Unreadable pictures that are named; the others are counted."""


def captions_of(recipe: FineTuneRecipe, data: Path) -> list[Path]:
    """Return the captions that the recipe names; for the first the data folder, in any layout."""
    named = data / recipe.captions
    is_default = recipe.captions == FineTuneRecipe.captions
    first = data if is_default and not named.exists() else named
    return [first, *(data / name for name in recipe.extra_train)]


def read_captions(sources: Sequence[Path]) -> tuple[list[Record], Counter[str]]:
    """Read the captioned pictures of manifests or folders.

    Args:
        sources: Each may name pictures that others name, too.

    Returns:
        A record for each picture, with its whole path and the captions of all sources, and the
        number of sources that name it.
    """
    captions: dict[str, dict[str, dict[str, None]]] = {}
    counts = Counter[str]()
    for source in sources:
        records, folder = read_captioned_pictures(source)
        named = set[str]()
        for record in records:
            if not record.image or not record.captions:
                continue
            path = os.path.realpath(folder / record.image)
            named.add(path)
            known = captions.setdefault(path, {})
            for language, texts in record.captions.items():
                known.setdefault(language, {}).update(dict.fromkeys(texts))
        counts.update(named)
    found = [
        Record(image=path, captions={code: tuple(texts) for code, texts in own.items()})
        for path, own in captions.items()
    ]
    return found, counts


def read_pictures(
    records: Sequence[Record], size: int, pool: DecodePool | None = None
) -> tuple[list[Record], Tensor]:
    """Read the pictures of records; those that cannot be read are named and left out.

    Args:
        records: The pictures, by their whole paths, and captions.
        size: Side of the squares.
        pool: Decodes them; None for threads.

    Returns:
        The records left, and their pixels, uint8 ``(n, size, size, RGB)``.
    """
    good, pixels, errors = _decode(records, size, pool or DecodePool())
    _report(errors)
    return good, pixels


def encode_pictures(
    records: Sequence[Record],
    model: MMP,
    preprocessing: ImagePreprocessing,
    pool: DecodePool | None = None,
) -> tuple[list[Record], Tensor]:
    """Encode the pictures of records whole; those that cannot be read are named and left out.

    Args:
        records: The pictures, by their whole paths, and captions.
        model: Encodes them; it is switched to evaluation.
        preprocessing: How the model takes pictures.
        pool: Decodes them; None for threads.

    Returns:
        The records left, and their unit vectors, ``(n, width)`` on the model's device.
    """
    model.eval()
    pool = pool or DecodePool()
    kept: list[Record] = []
    errors: list[str] = []
    vectors = [torch.zeros(0, model.config.width, device=next(model.parameters()).device)]
    bar = progress("encoding pictures", len(records), quiet=rank() > 0)
    with torch.no_grad(), bar as advance:
        for start in range(0, len(records), CHUNK):
            chunk = records[start : start + CHUNK]
            good, pixels, failed = _decode(chunk, preprocessing.size, pool)
            kept += good
            errors += failed
            for block in torch.split(pixels, _BLOCK):
                table = _pixel_table(block, model, preprocessing)
                rows = table.rows(np.arange(len(block)), None)
                vectors.append(model.encode_visual(*rows).float())
            advance(len(chunk), None)
    _report(errors)
    return kept, torch.cat(vectors)


def load_pictures(
    records: Sequence[Record],
    model: MMP,
    preprocessing: ImagePreprocessing,
    recipe: FineTuneRecipe,
) -> tuple[list[Record], Tensor]:
    """Return the records whose pictures can be read, and what `open_visuals` takes of them."""
    pool = pool_for(len(records), recipe.decode_workers)
    if recipe.keep_pictures:
        return encode_pictures(records, model, preprocessing, pool)
    return read_pictures(records, preprocessing.size, pool)


def open_visuals(
    pictures: Tensor, model: MMP, preprocessing: ImagePreprocessing, recipe: FineTuneRecipe
) -> VisualTable:
    """Put vectors or pixels of pictures on the model's device.

    Args:
        pictures: Vectors ``(n, width)`` where the recipe keeps them, or pixels, uint8
            ``(n, size, size, RGB)``.
        model: Encodes pictures.
        preprocessing: How it takes them.
        recipe: The settings.
    """
    if recipe.keep_pictures:
        return VectorTable(pictures, next(model.parameters()).device)
    return _pixel_table(
        pictures, model, preprocessing, min_crop_area=recipe.min_crop_area, mirror=recipe.mirror
    )


def load_validation(
    data: Path,
    model: MMP,
    preprocessing: ImagePreprocessing,
    tokenizer: Tokenizer,
    recipe: FineTuneRecipe,
) -> RetrievalSplit | None:
    """Return the pictures that choose the checkpoint, with captions in all languages, or None.

    Args:
        data: The data folder.
        model: Encodes pictures.
        preprocessing: How it takes them.
        tokenizer: Of the model.
        recipe: The settings.
    """
    if recipe.validation is None:
        return None
    records, _ = read_captions([data / recipe.validation])
    records, pictures = load_pictures(records, model, preprocessing, recipe)
    if not records:
        raise PolyglanceError(f"{data / recipe.validation} has no picture that can be read")
    captions = CaptionTable.build(records, tokenizer, max_tokens=recipe.max_text_tokens)
    return RetrievalSplit(open_visuals(pictures, model, preprocessing, recipe), captions)


def split_records(count: int, recipe: FineTuneRecipe) -> tuple[list[int], list[int]]:
    """Return the numbers of the records to train on and held out, drawn by the recipe's seed."""
    held_out = max(1, round(recipe.held_out * count))
    if count - held_out < 2:
        raise PolyglanceError(
            f"{count} {'picture' if count == 1 else 'pictures'} with captions can be read, too few"
            " to train on: add some, check the paths in the manifest, or lower held_out"
        )
    drawn = np.random.default_rng(recipe.loop.seed).permutation(count)[:held_out]
    chosen = set(drawn.tolist())
    return [number for number in range(count) if number not in chosen], sorted(chosen)


def moved_records(records: Sequence[Record], folder: Path) -> list[Record]:
    """Return the records with the paths of their pictures relative to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    start = os.path.realpath(folder)
    return [
        replace(record, image=Path(os.path.relpath(str(record.image), start)).as_posix())
        for record in records
    ]


def _pixel_table(
    pixels: Tensor,
    model: MMP,
    preprocessing: ImagePreprocessing,
    *,
    min_crop_area: float = 1.0,
    mirror: bool = False,
) -> PixelTable:
    return PixelTable(
        pixels,
        model.get_submodule(BACKBONE_MODULE),
        torch.tensor(preprocessing.mean),
        torch.tensor(preprocessing.std),
        min_crop_area=min_crop_area,
        mirror=mirror,
        device=next(model.parameters()).device,
    )


def _decode(
    records: Sequence[Record], size: int, pool: DecodePool
) -> tuple[list[Record], Tensor, list[str]]:
    """Return the records whose pictures can be read, their pixels, and the others' errors."""
    pixels, errors = pool.read([Path(str(record.image)) for record in records], size)
    good = [number for number in range(len(records)) if number not in errors]
    if errors:
        pixels = pixels[good]
    return [records[number] for number in good], torch.from_numpy(pixels), [*errors.values()]


def _report(errors: Sequence[str]) -> None:
    if rank() == 0:
        for error in errors[:_MAX_NAMED]:
            print(f"left out: {error}", file=sys.stderr)
        if len(errors) > _MAX_NAMED:
            print(f"left out: {len(errors) - _MAX_NAMED:,} more pictures", file=sys.stderr)

"""Compress a trained photo model, distil it from the original, and save it for export."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from polyglance.batches.inputs import ImagePixels
from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP
from polyglance.nn.compression import check_compressible, compact_state, compress
from polyglance.recipes.mmp.config import BACKBONE_MODULE, CompressionConfig
from polyglance.recipes.mmp.tasks import EmbeddingDistillationTask
from polyglance.records import atomic_write
from polyglance.training.distributed import rank
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture
from polyglance.weights.unigram import SPECIALS

_VIEW_BATCH = 256
"""Images whose views are encoded at a time."""


def require_compressible(model: MMP, compression: CompressionConfig) -> None:
    """Refuse before training a model that could not be compressed after it."""
    check_compressible(
        model,
        parts=compression.parts,
        finer_parts=compression.finer_parts,
        frequent=compression.frequent,
    )


def compress_and_distil(
    teacher: MMP,
    compression: CompressionConfig,
    *,
    sentences: Sequence[CaptionTable],
    images: Sequence[ImagePixels],
    precision: Literal["float32", "bfloat16"],
    validate: Callable[[MMP, nn.Module], dict[str, float]],
    folder: Path,
) -> tuple[MMP, nn.Module]:
    """Return a compressed copy of ``teacher`` after distillation, and the copy's image backbone.

    Args:
        teacher: The trained model; it stays as it is, frozen.
        compression: Size of the copy and length of the distillation.
        sentences: Text to distil on.
        images: Images to distil on, through the teacher's backbone.
        precision: Of the distillation.
        validate: Returns metrics of a model with its image backbone.
        folder: Run folder of the distillation.
    """
    student = copy.deepcopy(teacher)
    backbone = student.get_submodule(BACKBONE_MODULE)
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # the teacher's vectors are exact
    device = next(teacher.parameters()).device
    frequency = token_frequency(sentences, teacher.config.encoder.vocab_size)
    compress(
        student,
        frequency.to(device),
        parts=compression.parts,
        finer_parts=compression.finer_parts,
        frequent=min(compression.frequent, len(frequency)),
    )
    student.requires_grad_(True)
    config = LoopConfig(
        steps=compression.steps,
        learning_rate=compression.learning_rate,
        schedule="cosine",
        warmup=compression.steps // 10,
        grad_clip=1.0,
        precision=precision,
        save_every=0,
        validate_every=max(1, compression.steps // 2),
    )
    teacher.eval()
    pairs: list[tuple[ImagePixels, ImagePixels | Tensor]] = []
    for table in images:
        own = table.with_network(backbone)
        own.early = None
        if not compression.view_sizes:
            pairs.append((own, table))
            continue
        own.min_crop_area = compression.min_crop_area
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            pairs.append((own, mean_view_vectors(teacher, table, compression.view_sizes)))
    task = EmbeddingDistillationTask(student, teacher, sentences, pairs, batch=compression.batch)
    train_loop(
        student,
        Mixture({"distillation": task}),
        config,
        folder,
        validate=lambda: validate(student, backbone),
    )
    return student, backbone


@torch.no_grad()
def mean_view_vectors(model: MMP, images: ImagePixels, sizes: Sequence[int]) -> Tensor:
    """Return the mean vector of each whole image over sizes and their mirror images.

    Args:
        model: The model, switched to evaluation.
        images: Through its backbone.
        sizes: Pixels per side of the views.

    Returns:
        Unit vectors ``(images, width)`` on the CPU.
    """
    means = []
    for start in range(0, len(images), _VIEW_BATCH):
        pixels = images.read(np.arange(start, min(start + _VIEW_BATCH, len(images))))
        views = [
            model.encode_visual(*images.encode_pixels(view, None, size=size)).float()
            for size in sizes
            for view in (pixels, pixels.flip(2))
        ]
        means.append(F.normalize(torch.stack(views).sum(0), dim=1).cpu())
    return torch.cat(means)


def token_frequency(sentences: Sequence[CaptionTable], vocab_size: int) -> Tensor:
    """Return how often each sub-word occurs, ``(vocab_size,)``.

    Those that never occur follow in the order of the vocabulary, which is by frequency in the
    texts that XLM-R was trained on. Special tokens come first.
    """
    counts = np.zeros(vocab_size, np.float64)
    for table in sentences:
        counts += np.bincount(table.token_ids, minlength=vocab_size)
    counts[: len(SPECIALS)] = np.inf
    return torch.from_numpy(counts)


def save_compact(
    model: MMP,
    folder: Path,
    *,
    image_size: int,
    mean: Tensor,
    std: Tensor,
    max_text_tokens: int,
    tokenizer: str,
    languages: Sequence[str],
) -> None:
    """Write the folder that ``polyglance export`` makes a model folder from.

    Args:
        model: A compressed model.
        folder: Where to write.
        image_size: Height and width of images.
        mean: Of the image channels, on the scale of 0 to 255.
        std: Of the image channels, on the same scale.
        max_text_tokens: Maximum number of sub-words of a text.
        tokenizer: Name or folder of the tokenizer.
        languages: Languages of the captions.
    """
    if rank() > 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    save_file(compact_state(model), folder / "compact.safetensors")
    settings = {
        "format": 1,
        "model": model.config.to_json(),
        "pictures": {"size": image_size, "mean": mean.tolist(), "std": std.tolist()},
        "longest": max_text_tokens,
        "tokenizer": tokenizer,
        "languages": list(languages),
    }
    with atomic_write(folder / "config.json") as file:
        file.write(json.dumps(settings, indent=2) + "\n")

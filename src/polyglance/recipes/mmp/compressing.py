"""From a trained photo model to a small one that acts alike, ready to be exported."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP
from polyglance.nn.compression import check_compressible, compact_state, compress
from polyglance.records import replacing
from polyglance.training.distribution import rank
from polyglance.training.imitation import Imitation
from polyglance.training.loop import LoopConfig, train
from polyglance.training.mixture import Mixture
from polyglance.training.visuals import PixelTable
from polyglance.weights.unigram import SPECIALS


@dataclass(frozen=True)
class Compression:
    """How small the model becomes, and how long it is taught to act like the whole one."""

    name: str = "model"
    """What the exported model is called."""
    parts: int = 32
    """Bytes of a word in the table."""
    finer_parts: int = 32
    """Bytes more of each frequent word."""
    frequent: int = 100_000
    steps: int = 400
    learning_rate: float = 3e-4
    batch: int = 512


def refuse_incompressible(model: MMP, compression: Compression) -> None:
    """Refuse before training what could not be compressed after it."""
    check_compressible(
        model,
        parts=compression.parts,
        finer_parts=compression.finer_parts,
        frequent=compression.frequent,
    )


def compressed(
    teacher: MMP,
    compression: Compression,
    *,
    sentences: Sequence[CaptionTable],
    pictures: Sequence[PixelTable],
    precision: Literal["float32", "bfloat16"],
    validate: Callable[[MMP, nn.Module], dict[str, float]],
    folder: Path,
) -> tuple[MMP, nn.Module]:
    """A compressed copy of ``teacher`` that was taught to act like it, and the copy's eyes."""
    pupil = copy.deepcopy(teacher)
    eyes = pupil.eyes
    assert isinstance(eyes, nn.Module)
    for module in pupil.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # the teacher's answers are exact
    device = next(teacher.parameters()).device
    frequency = word_frequency(sentences, teacher.config.encoder.vocabulary)
    compress(
        pupil,
        frequency.to(device),
        parts=compression.parts,
        finer_parts=compression.finer_parts,
        frequent=min(compression.frequent, len(frequency)),
    )
    pupil.requires_grad_(True)
    config = LoopConfig(
        steps=compression.steps,
        learning_rate=compression.learning_rate,
        schedule="cosine",
        warmup=compression.steps // 10,
        clip=1.0,
        precision=precision,
        save_every=0,
        validate_every=max(1, compression.steps // 2),
    )
    task = Imitation(
        pupil,
        teacher,
        sentences,
        [(table.seen_by(eyes), table) for table in pictures],
        batch=compression.batch,
    )
    train(
        pupil,
        Mixture({"imitation": task}),
        config,
        folder,
        validate=lambda: validate(pupil, eyes),
    )
    return pupil, eyes


def word_frequency(sentences: Sequence[CaptionTable], vocabulary: int) -> Tensor:
    """How often each sub-word is met; those never met follow in the order of the vocabulary.

    That order is by frequency in the texts that XLM-R was trained on. Specials come first.
    """
    counts = np.zeros(vocabulary, np.float64)
    for table in sentences:
        counts += np.bincount(table.ids, minlength=vocabulary)
    counts[: len(SPECIALS)] = np.inf
    return torch.from_numpy(counts)


def save_compact(
    model: MMP,
    folder: Path,
    *,
    size: int,
    mean: Tensor,
    std: Tensor,
    longest: int,
    tokenizer: str,
    languages: Sequence[str],
) -> None:
    """Write what `polyglance export` makes a model folder from."""
    if rank() > 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    save_file(compact_state(model), folder / "compact.safetensors")
    settings = {
        "model": asdict(model.config),
        "pictures": {"size": size, "mean": mean.tolist(), "std": std.tolist()},
        "longest": longest,
        "tokenizer": tokenizer,
        "languages": list(languages),
    }
    with replacing(folder / "config.json") as file:
        file.write(json.dumps(settings, indent=2) + "\n")

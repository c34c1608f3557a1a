"""Checkpoints of training runs: a folder of safetensors and JSON, replaced atomically."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.errors import DataError, PolyglanceError
from polyglance.nn.pretrained import distinct_tensors, model_tensors

Fit = Callable[[dict[str, Tensor]], dict[str, Tensor]]
"""Converts the tensors of one model to those of another."""


def save_checkpoint(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Write a checkpoint; an older one in the folder stays until the new one is complete.

    Args:
        folder: Where to write.
        model: Its weights and buffers are saved.
        optimiser: Its moments are saved, by the names of their parameters.
        state: What else to save, as JSON.
    """
    partial, old = (folder.with_name(folder.name + end) for end in (".partial", ".old"))
    shutil.rmtree(partial, ignore_errors=True)
    text = json.dumps(state, indent=2, allow_nan=False)
    try:
        partial.mkdir(parents=True)
        save_file(model_tensors(model), partial / "model.safetensors")
        save_file(_optimiser_tensors(optimiser, model), partial / "optimiser.safetensors")
        (partial / "state.json").write_text(text, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        detail = " ".join(str(error).split())
        raise PolyglanceError(
            f"cannot write a checkpoint to {folder} ({detail}): free disk space and run the same"
            " command again, which resumes from the last checkpoint"
        ) from error
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
    os.replace(partial, folder)
    shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer | None = None,
    *,
    way_out: str = "train into another folder or remove it",
    fit: Fit | None = None,
) -> dict[str, Any] | None:
    """Load a checkpoint into model and optimiser; return its state, or None if there is none.

    Args:
        folder: The checkpoint.
        model: Receives the weights.
        optimiser: Receives the moments; None to leave them.
        way_out: What the error advises where the checkpoint does not fit.
        fit: Converts the checkpoint's tensors to the model's.
    """
    if not folder.exists():
        # A run killed between the two moves of saving leaves the older one under this name.
        folder = folder.with_name(folder.name + ".old")
    if not folder.exists():
        return None
    try:
        state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
        tensors = tensors if fit is None else fit(tensors)
        # Tied parameters are stored once; all other names must match.
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        lacking = [name for name in missing if name in distinct_tensors(model)]
        if lacking or unexpected:
            raise ValueError(f"{(lacking + unexpected)[0]} does not match the model")
        if optimiser is not None:
            _fill_optimiser(optimiser, model, load_file(folder / "optimiser.safetensors"))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        detail = " ".join(str(error).split())
        raise DataError(
            f"{folder}: the checkpoint does not fit this run ({detail}); {way_out}"
        ) from error
    return state


def _optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimiser's state by parameter name.

    PyTorch numbers parameters instead, which would shift with every frozen one.
    """
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = torch.as_tensor(value).detach().contiguous().cpu()
    return tensors


def _fill_optimiser(
    optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    names = {parameter: name for name, parameter in model.named_parameters()}
    trainable = [p for group in optimiser.param_groups for p in group["params"]]
    numbers = {names[parameter]: number for number, parameter in enumerate(trainable)}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, value in tensors.items():
        name, key = full_name.split("/")
        state.setdefault(numbers[name], {})[key] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})

"""Where a training run stands, on disk: a folder of safetensors and JSON, replaced whole."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.errors import DataError


def save_checkpoint(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Write model, optimiser and ``state``; what was there stays until all is written."""
    partial, old = (
        folder.with_name(folder.name + ".partial"),
        folder.with_name(folder.name + ".old"),
    )
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(model_tensors(model), partial / "model.safetensors")
    save_file(_optimiser_tensors(optimiser), partial / "optimiser.safetensors")
    (partial / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(partial, folder)
    shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer | None = None
) -> dict[str, Any] | None:
    """Fill model and optimiser from a checkpoint and return its state; None where there is none."""
    if not folder.exists():
        # A stop between the two moves of saving leaves the older one under its other name.
        folder = folder.with_name(folder.name + ".old")
    if not folder.exists():
        return None
    try:
        state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
        # Tied parameters are stored once; strictness is kept for all other names.
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        lacking = [name for name in missing if name in model_tensors(model)]
        if lacking or unexpected:
            raise ValueError(f"{(lacking + unexpected)[0]} does not match the model")
        if optimiser is not None:
            _fill_optimiser(optimiser, load_file(folder / "optimiser.safetensors"))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(
            f"{folder}: the checkpoint does not fit this run ({error});"
            " train into another folder or remove it"
        ) from error
    return state


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model by name; those that share memory once, under the first name."""
    seen: set[int] = set()
    tensors = {}
    for name, value in model.state_dict().items():
        if value.data_ptr() not in seen or value.numel() == 0:
            tensors[name] = value.detach().contiguous().cpu()
            seen.add(value.data_ptr())
    return tensors


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for number, values in optimiser.state_dict()["state"].items():
        for name, value in values.items():
            tensors[f"{number}.{name}"] = torch.as_tensor(value).detach().contiguous().cpu()
    return tensors


def _fill_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})

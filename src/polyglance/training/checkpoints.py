"""Where a training run stands, on disk: a folder of safetensors and JSON, replaced whole."""

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

Fit = Callable[[dict[str, Tensor]], dict[str, Tensor]]
"""What makes the tensors of one model those of another."""


def save_checkpoint(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Write model, optimiser and ``state``; what was there stays until all is written."""
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
        raise PolyglanceError(
            f"no checkpoint can be written to {folder} ({' '.join(str(error).split())}): make room"
            " there and run the same command again, which goes on from the last one"
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
    """Fill model and optimiser from a checkpoint and return its state; None where there is none.

    ``way_out`` is what to do with one that does not fit, and ``fit`` what makes it fit.
    """
    if not folder.exists():
        # A stop between the two moves of saving leaves the older one under its other name.
        folder = folder.with_name(folder.name + ".old")
    if not folder.exists():
        return None
    try:
        state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
        tensors = tensors if fit is None else fit(tensors)
        # Tied parameters are stored once; strictness is kept for all other names.
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        lacking = [name for name in missing if name in _distinct(model)]
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


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model by name, to be written; tied ones once, under the first name."""
    return {name: value.contiguous().cpu() for name, value in _distinct(model).items()}


def _distinct(model: nn.Module) -> dict[str, Tensor]:
    by_memory: dict[int | str, str] = {}
    state = model.state_dict()
    for name, value in state.items():
        by_memory.setdefault(value.data_ptr() or name, name)  # an empty tensor lies nowhere
    return {name: state[name] for name in by_memory.values()}


def _optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """What the optimiser knows of each parameter, under the parameter's name.

    Numbers, as PyTorch has them, would shift with every parameter that is frozen.
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
    learned = [p for group in optimiser.param_groups for p in group["params"]]
    numbers = {names[parameter]: number for number, parameter in enumerate(learned)}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, value in tensors.items():
        name, key = full_name.split("/")
        state.setdefault(numbers[name], {})[key] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})

"""Read published checkpoint files and load them into our models under our parameter names."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from polyglance.errors import DataError

HEAD_SIZE = 64
"""The size of an attention head in BERT and XLM-R of any size."""

Model = TypeVar("Model", bound=nn.Module)


def read_parameters(path: str | Path) -> dict[str, Tensor]:
    """Read the parameters of a checkpoint file by name. Nothing but tensors is unpickled."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such checkpoint") from None
    except (
        OSError,
        RuntimeError,
        EOFError,
        LookupError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        raise DataError(
            f"{path}: not a file of tensors alone; save its parameters by themselves"
            f" ({_reason(error)})"
        ) from error
    state = loaded
    if isinstance(loaded, dict):  # microsoft/M3P has the first key, UC2's restore.pt the second
        state = loaded.get("model", loaded.get("model_state_dict", loaded))
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path}: not a dictionary of parameters by name")
    return state


def _reason(error: Exception) -> str:
    """Return why torch refused a file, without its general advice."""
    if refused := re.search(r"Unsupported global: GLOBAL (\S+)", str(error)):
        return f"it holds {refused[1]}"
    if isinstance(error, (OSError, RuntimeError)):
        return " ".join(str(error).split())[:200]
    return "torch cannot read it"


class ParameterRenaming:
    """Parameters on their way from published names, ``remaining``, to ours, ``renamed``."""

    def __init__(self, published: Mapping[str, Tensor]) -> None:
        self.remaining = dict(published)
        self.renamed: dict[str, Tensor] = {}

    def move(self, theirs: str, ours: str) -> None:
        """Rename a module's weight and bias, if the checkpoint has them."""
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in self.remaining:
                self.renamed[f"{ours}.{part}"] = self.remaining.pop(f"{theirs}.{part}")

    def concat(self, theirs: Sequence[str], ours: str) -> None:
        """Concatenate modules, such as query, key and value, if the checkpoint has them all."""
        for part in ("weight", "bias"):
            names = [f"{name}.{part}" for name in theirs]
            if all(name in self.remaining for name in names):
                parts = [self.remaining.pop(name) for name in names]
                self.renamed[f"{ours}.{part}"] = torch.cat(parts)

    def check_complete(self, system: str) -> None:
        """Raise if parameters remain."""
        if self.remaining:
            names = ", ".join(sorted(self.remaining)[:3])
            raise DataError(f"{names}: {system} has no parameter of this name")


def load_parameters(
    model: Model, parameters: Mapping[str, Tensor], required: tuple[str, ...]
) -> Model:
    """Load converted parameters into a model and set it to evaluation mode.

    Args:
        model: a new model; heads that the checkpoint lacks keep their initial weights.
        parameters: by the model's own names.
        required: prefixes of the names that the checkpoint must have.
    """
    state = dict(model.state_dict())
    for name, value in parameters.items():
        if name not in state or state[name].shape != value.shape:
            expected = tuple(state[name].shape) if name in state else "no such parameter"
            raise DataError(
                f"the checkpoint's {name} has shape {tuple(value.shape)}, expected {expected}"
            )
    if missing := [name for name in state if name.startswith(required) and name not in parameters]:
        raise DataError(f"the checkpoint has no parameters for {', '.join(missing[:3])}")
    model.load_state_dict({**state, **parameters})
    return model.eval()

"""Read published checkpoint files and load them into our models under our parameter names."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from polyglance.errors import DataError

HEAD_SIZE = 64
"""The size of an attention head in BERT and XLM-R of any size."""

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class PublishedCheckpoint:
    """A checkpoint file as its authors wrote it."""

    parameters: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    """What the authors saved about the run (M3P's ``params``); empty if they saved nothing."""


def read_checkpoint(path: str | Path) -> PublishedCheckpoint:
    """Read a checkpoint file. Nothing but tensors, numbers and plain containers is unpickled."""
    try:
        with torch.serialization.safe_globals(_numpy_reconstructors()):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such checkpoint") from None
    except (
        OSError,
        RuntimeError,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        raise DataError(
            f"{path}: not a file of tensors alone; save its parameters by themselves"
            f" ({_reason(error)})"
        ) from error
    state = loaded
    settings: Any = {}
    if isinstance(loaded, dict):  # microsoft/M3P has the first key, UC2's restore.pt the second
        state = loaded.get("model", loaded.get("model_state_dict", loaded))
        settings = loaded.get("params", {}) if state is not loaded else {}
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path}: not a dictionary of parameters by name")
    return PublishedCheckpoint(state, settings if isinstance(settings, dict) else {})


def _numpy_reconstructors() -> list[Any]:
    """Return what rebuilds numpy's numbers and arrays, under the names of numpy 1 and 2.

    M3P's checkpoints hold the best validation scores as such numbers.
    """
    scalar, array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    modules = ("numpy.core.multiarray", "numpy._core.multiarray")
    names = [(f, f"{m}.{f.__name__}") for m in modules for f in (scalar, array)]  # type: ignore[union-attr]
    return [*names, np.ndarray, np.dtype, *{type(np.dtype(code)) for code in "?bBhHiIlLqQefd"}]


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
    model: Model,
    parameters: Mapping[str, Tensor],
    *,
    required: tuple[str, ...],
    heads: tuple[str, ...],
    allow_missing_heads: bool,
) -> Model:
    """Load converted parameters into a model and set it to evaluation mode.

    The global random generator is neither used nor seeded.

    Args:
        model: built on the meta device, without memory.
        parameters: by the model's own names.
        required: prefixes of the names that the checkpoint must have.
        heads: prefixes of the names that it may lack with ``allow_missing_heads``.
        allow_missing_heads: initialise missing heads as BERT does, from a fixed seed.

    Returns:
        The model, on the device of the parameters. What is neither required nor a head is zero
        where the checkpoint lacks it.
    """
    state = model.state_dict()
    for name, value in parameters.items():
        if name not in state or state[name].shape != value.shape:
            expected = tuple(state[name].shape) if name in state else "no such parameter"
            raise DataError(
                f"the checkpoint's {name} has shape {tuple(value.shape)}, expected {expected}"
            )
    missing = [name for name in state if name not in parameters]
    if absent := [name for name in missing if name.startswith(required)]:
        raise DataError(f"the checkpoint has no parameters for {', '.join(absent[:3])}")
    absent = sorted({name.partition(".")[0] for name in missing if name.startswith(heads)})
    if absent and not allow_missing_heads:
        raise DataError(
            f"the checkpoint lacks the head{'s' * (len(absent) > 1)} {', '.join(absent)}: set"
            " allow_missing_heads to have what is missing newly initialised"
        )
    model.to_empty(device=next(iter(parameters.values())).device)
    _initialise(model, missing, heads)
    model.load_state_dict(parameters, strict=False)
    return model.eval()


@torch.no_grad()
def _initialise(model: nn.Module, missing: Sequence[str], heads: tuple[str, ...]) -> None:
    """Give initial values to parameters that a checkpoint lacks."""
    generator = torch.Generator().manual_seed(0)
    tensors = model.state_dict()
    for name in missing:
        value = tensors[name]
        module = model.get_submodule(name.rpartition(".")[0])
        value.zero_()
        if isinstance(module, nn.LayerNorm) and name.endswith(".weight"):
            value.fill_(1)
        elif name.startswith(heads) and value.dim() == 2 and not value.is_meta:
            value.copy_(0.02 * torch.randn(value.shape, generator=generator))

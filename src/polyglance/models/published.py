"""Checkpoint files as others publish them: parameters by name, and nothing else."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import torch
from torch import Tensor

from polyglance.errors import DataError


def read_parameters(path: str | Path) -> dict[str, Tensor]:
    """The parameters of a checkpoint file, which may keep them under a name of their own.

    Nothing but tensors is unpickled.
    """
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
    if isinstance(loaded, dict):  # microsoft/M3P has the first, the restore.pt of UC2 the second
        state = loaded.get("model", loaded.get("model_state_dict", loaded))
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path}: not a dictionary of parameters by name")
    return state


def _reason(error: Exception) -> str:
    """Why torch refused a file; of its own advice, only what concerns the file."""
    if refused := re.search(r"Unsupported global: GLOBAL (\S+)", str(error)):
        return f"it holds {refused[1]}"
    if isinstance(error, (OSError, RuntimeError)):
        return " ".join(str(error).split())[:200]
    return "torch cannot read it"

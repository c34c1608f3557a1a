"""Checkpoints of training runs: folders of safetensors and JSON, replaced atomically.

A checkpoint is ``model.safetensors`` (the weights to use), ``optimiser.safetensors``,
``state.json`` and ``SHA256SUMS``, with averaged weights also ``training.safetensors`` (those to
go on from). Earlier ones that are kept lie beside ``latest`` as ``latest-00000500``. All are on the
disk before the next takes their place, and are compared with their checksums before they are used.

Sharded tensors are gathered, so that a run resumes on any number of processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.training.distributed import (
    on_first_rank,
    shard_like,
)
from polyglance.training.state_tensors import (
    fill_model,
    fill_optimiser,
    gather_tensors,
    model_tensors,
    optimiser_tensors,
)
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import check_format

Fit = Callable[[dict[str, Tensor]], dict[str, Tensor]]
"""Converts the tensors of one model to those of another."""

_MODEL, _TRAINING = "model.safetensors", "training.safetensors"
_OPTIMISER, _STATE, _SUMS = "optimiser.safetensors", "state.json", "SHA256SUMS"
_REQUIRED = (_MODEL, _OPTIMISER, _STATE)
_FORMAT = 1
"""Version in ``state.json``; checkpoints without one are of before there were checksums."""
_SUM_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
Schema = Mapping[str, tuple[type, ...]]
"""The types that values of a state may have, by their keys."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a checkpoint is to hold, in memory; on processes but the first, nothing."""

    files: Mapping[str, dict[str, Tensor]]
    state: str

    @classmethod
    def take(
        cls,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        state: dict[str, Any],
        *,
        average: Mapping[str, Tensor] | None = None,
        copy: bool = False,
    ) -> Snapshot:
        """Gather weights, moments and state; all processes must call it together.

        Args:
            model: Its weights and buffers are saved.
            optimiser: Its moments are saved, by the names of their parameters.
            state: What else to save, as JSON.
            average: Averaged weights by name, which are then the checkpoint's weights.
            copy: Whether training goes on before the snapshot is written.
        """
        files = {
            _MODEL: gather_tensors(model_tensors(model) | dict(average or {}), copy=copy),
            _OPTIMISER: gather_tensors(optimiser_tensors(optimiser, model), copy=copy),
        }
        if average is not None:
            weights = dict(model.named_parameters())
            files[_TRAINING] = gather_tensors({name: weights[name] for name in average}, copy=copy)
        return cls(files, json.dumps({"format": _FORMAT, **state}, indent=2, allow_nan=False))

    def write(self, folder: Path, keep: int = 1) -> None:
        """Write the checkpoint, on the first process only; see `save_checkpoint`."""
        _write(folder, self.files, self.state, keep)


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    average: Mapping[str, Tensor] | None = None,
    keep: int = 1,
) -> None:
    """Write a checkpoint; earlier ones stay until the new one is complete on the disk.

    All processes must call it together; the first one writes.

    Args:
        folder: Where to write.
        model: As for `Snapshot.take`, and the next three.
        optimiser: Has the moments.
        state: What else to save.
        average: Averaged weights by name.
        keep: How many checkpoints to keep, with this one.
    """
    snapshot = Snapshot.take(model, optimiser, state, average=average)
    on_first_rank(lambda: snapshot.write(folder, keep))


def load_checkpoint(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer | None = None,
    *,
    average: Mapping[str, Tensor] | None = None,
    verify: bool = True,
    way_out: str = "train into another folder",
    fit: Fit | None = None,
) -> dict[str, Any] | None:
    """Load a checkpoint into model and optimiser; return its state, or None if there is none.

    Args:
        folder: The checkpoint.
        model: Receives the weights: with an optimiser those to go on from.
        optimiser: Receives the moments; None to leave them.
        average: Receives averaged weights, in place.
        verify: Compare the files with their checksums first.
        way_out: What the error advises where the checkpoint does not fit.
        fit: Converts the checkpoint's tensors to the model's.
    """
    present = next((path for path in _candidates(folder) if path.exists()), None)
    if present is None:
        return None
    if verify:
        if damage := find_damage(present, weights_only=optimiser is None):
            raise DataError(f"{present} is damaged ({damage}): {way_out}")
        _note_unverified(present)
    try:
        state = read_state(present)
        tensors = load_file(present / _MODEL)
        if average is not None:
            for name, value in average.items():
                value.copy_(shard_like(tensors[name], value))
        if optimiser is not None and (present / _TRAINING).exists():
            tensors |= load_file(present / _TRAINING)
        fill_model(model, tensors if fit is None else fit(tensors))
        if optimiser is not None:
            fill_optimiser(optimiser, model, load_file(present / _OPTIMISER))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        detail = " ".join(str(error).split())
        raise DataError(
            f"{present}: the checkpoint does not fit this run ({detail}); {way_out}"
        ) from error
    return state


def has_checkpoint(folder: Path) -> bool:
    """Return whether there is a checkpoint to resume from, also an earlier one that was kept."""
    return any(path.exists() for path in _candidates(folder))


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint whose files are as they were written; None for no checkpoint.

    A damaged one is renamed and reported on standard error. All processes must call it
    together; the first one reads the files.
    """
    found = on_first_rank(lambda: _find_checkpoint(folder))
    return None if found is None else Path(found)


def read_state(folder: Path, schema: Schema | None = None) -> dict[str, Any]:
    """Return what `save_checkpoint` was given as ``state``.

    Args:
        folder: The checkpoint.
        schema: What must be in it; None for anything.
    """
    path = folder / _STATE
    try:
        state = parse_json(path.read_text(encoding="utf-8"))
        if isinstance(state, dict):
            check_format(state, _FORMAT, folder)
        _check_state(state, {} if schema is None else schema)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: the checkpoint does not fit this run ({error}); train into another folder"
        ) from error
    found: dict[str, Any] = state
    found.pop("format", None)
    return found


def _check_state(state: object, schema: Schema) -> None:
    if not isinstance(state, dict):
        raise ValueError("it is not a JSON object")
    for key, types in schema.items():
        if key not in state:
            raise ValueError(f"it lacks {key!r}")
        value: Any = state[key]
        # In Python a bool is an int, and a number of steps is never negative.
        wrong_bool = isinstance(value, bool) and bool not in types
        negative = types == (int,) and isinstance(value, int) and value < 0
        if wrong_bool or negative or not isinstance(value, types):
            raise ValueError(f"its {key!r} is {value!r}")


def find_damage(folder: Path, *, weights_only: bool = False) -> str | None:
    """Return what is wrong with a checkpoint's files, or None if they match their checksums.

    Runs made before there were checksums have none to compare with. With ``weights_only`` the
    optimiser's state may be absent from files and list: `polyglance reproduce` deletes it.
    """
    try:
        if not (folder / _SUMS).exists():
            return f"{_SUMS} is missing" if _has_format(folder) else None
        sums: dict[str, str] = {}
        for line in (folder / _SUMS).read_bytes().decode().split("\n")[:-1]:
            if (match := _SUM_LINE.fullmatch(line)) is None:
                return f"{_SUMS} is not a list of checksums"
            sums[match[2]] = match[1]
        files = {path.name for path in folder.iterdir() if path.suffix == ".safetensors"}
        required = {*_REQUIRED} - ({_OPTIMISER} if weights_only else set())
        for name in sorted({*required, *files, *sums}):
            if name not in sums:
                return f"{name} is not in {_SUMS}"
            if Path(name).name != name or _digest(folder / name) != sums[name]:
                return f"{name} does not match its checksum"
    except (OSError, ValueError) as error:
        return " ".join(str(error).split())
    return None


def _has_format(folder: Path) -> bool:
    state = parse_json((folder / _STATE).read_text(encoding="utf-8"))
    return isinstance(state, dict) and "format" in state


def _note_unverified(folder: Path) -> None:
    if not (folder / _SUMS).exists():
        print(
            f"{folder} has no checksums, as earlier versions wrote it: its files are used as they"
            " are, without having been verified",
            file=sys.stderr,
        )


def _find_checkpoint(folder: Path) -> str | None:
    damaged: list[str] = []
    for path in _candidates(folder):
        if not path.exists():
            continue
        damage = find_damage(path)
        if damage is None:
            for note in damaged:
                print(f"{note}; resuming from {path}", file=sys.stderr)
            _note_unverified(path)
            return str(path)
        aside = path.with_name(path.name + ".damaged")
        shutil.rmtree(aside, ignore_errors=True)
        try:
            os.replace(path, aside)
        except OSError as error:
            raise DataError(
                f"{path} is damaged ({damage}) and cannot be renamed ({error_reason(error)}):"
                " rename it and run the same command again"
            ) from error
        damaged.append(f"{path} is damaged ({damage}) and was renamed to {aside.name}")
    if damaged:
        raise DataError(
            f"{damaged[0]}; no other checkpoint is left: run the same command again to train from"
            " the beginning"
        )
    return None


def _candidates(folder: Path) -> list[Path]:
    """Return where checkpoints may be, the newest first."""
    # A run killed between the two moves of saving has earlier checkpoints only; earlier
    # versions of this library called that one .old.
    return [folder, *_earlier(folder), folder.with_name(folder.name + ".old")]


def _earlier(folder: Path) -> list[Path]:
    kept = folder.parent.glob(f"{folder.name}-*")
    return sorted((path for path in kept if path.name[-8:].isdigit()), reverse=True)


def _write(folder: Path, files: Mapping[str, dict[str, Tensor]], state: str, keep: int) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        for name, tensors in files.items():
            save_file(tensors, partial / name)
        (partial / _STATE).write_text(state, encoding="utf-8")
        written = sorted(path.name for path in partial.iterdir())
        sums = "".join(f"{_digest(partial / name)}  {name}\n" for name in written)
        (partial / _SUMS).write_text(sums, encoding="utf-8")
        _flush([*partial.iterdir(), partial])
        if folder.exists():
            earlier = folder.with_name(f"{folder.name}-{_step_of(folder):08d}")
            shutil.rmtree(earlier, ignore_errors=True)
            os.replace(folder, earlier)
        os.replace(partial, folder)
        # The parent too, in which this may be the first file of a new folder.
        _flush([folder.parent, folder.parent.parent])
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        detail = " ".join(str(error).split())
        raise PolyglanceError(
            f"cannot write a checkpoint to {folder} ({detail}): free disk space or mend the disk,"
            " and run the same command again, which resumes from the last checkpoint"
        ) from error
    for path in (*_earlier(folder)[keep - 1 :], folder.with_name(folder.name + ".old")):
        shutil.rmtree(path, ignore_errors=True)


def _step_of(folder: Path) -> int:
    with contextlib.suppress(DataError, KeyError, TypeError, ValueError):
        return int(read_state(folder)["step"])
    return 0


def _flush(paths: Iterable[Path]) -> None:
    """Wait until files and folders are on the disk, so that a power cut loses none of them."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Weights as TensorFlow.js has them, in packages of npm.

A package is a gzipped tar. ``model.json`` names the weights in the order in which they lie
in the shards beside it, little-endian.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError

_TYPES = {"float32": "<f4", "int32": "<i4"}


def read_package(source: Path, name: str, folder: str) -> dict[str, NDArray[Any]]:
    """All weights of the model in a folder of the package, by their names."""

    def member(package: tarfile.TarFile, file: str) -> bytes:
        found = package.extractfile(f"package/{folder}/{file}")
        if found is None:
            raise KeyError(file)
        return found.read()

    try:
        with tarfile.open(source, "r:gz") as package:
            (group,) = json.loads(member(package, "model.json"))["weightsManifest"]
            data = b"".join(member(package, shard) for shard in group["paths"])
        return _cut(data, group["weights"])
    except (tarfile.TarError, OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{source} is not the package {name} ({error})") from error


def _cut(data: bytes, entries: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    weights, start = {}, 0
    for entry in entries:
        count = int(np.prod(entry["shape"], dtype=np.int64))
        values = np.frombuffer(data, _TYPES[entry["dtype"]], count, start)
        weights[entry["name"]] = values.reshape(entry["shape"])
        start += values.nbytes
    if start != len(data):
        raise ValueError(f"{len(data) - start} bytes too many")
    return weights

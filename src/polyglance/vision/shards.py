"""Shards of a feature store: named arrays in one memory-mapped file.

A shard is a safetensors file (https://huggingface.co/docs/safetensors): the length of a
JSON header, the header, the arrays. It is written here because equal arrays must give
equal bytes, which the library's order of metadata does not promise, and read here because
searching does not need the library.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError, error_reason, printable
from polyglance.utils.bounded import parse_json

Array = NDArray[Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The arrays of a file and its metadata (any JSON values)."""

    arrays: Mapping[str, Array]
    metadata: Mapping[str, Any]


def write_shard(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Write a shard atomically; equal arrays and metadata give equal bytes."""
    # The widest dtypes first, so that each array starts at a multiple of its item size.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {
        "__metadata__": {
            name: json.dumps(metadata[name], sort_keys=True) for name in sorted(metadata)
        }
    }
    end = 0
    for name in names:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.newbyteorder("<")],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_write(path) as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for name in names:
            out.write(np.ascontiguousarray(arrays[name], _DTYPES[header[name]["dtype"]]).data)


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """Where an array lies in a shard's file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    """In bytes, from the beginning of the file."""

    @property
    def row_bytes(self) -> int:
        """The size of one row."""
        return prod(self.shape[1:]) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class ShardHeader:
    """The places of a shard's arrays, and its metadata."""

    arrays: Mapping[str, ArrayPlace]
    metadata: Mapping[str, Any]


def read_header(read: Callable[[int, int], bytes], name: str) -> ShardHeader:
    """Read a shard's header without mapping the file.

    Args:
        read: returns so many bytes from an offset.
        name: of the file, for errors.
    """
    try:
        length = int.from_bytes(read(8, 0), "little")
        header = parse_json(read(length, 8))
        metadata = {name: parse_json(text) for name, text in header.pop("__metadata__").items()}
        arrays = {
            name: ArrayPlace(
                _DTYPES[entry["dtype"]],
                tuple(entry["shape"]),
                8 + length + entry["data_offsets"][0],
            )
            for name, entry in header.items()
        }
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror or error})") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{name}: is damaged; delete this file and run the extraction again"
        ) from error
    return ShardHeader(arrays, metadata)


def allow_open_files(count: int, *, at_most: int | None = None) -> int:
    """Raise the process's limit of open files by ``count``, as far as the system allows.

    A mapped file stays open, and the usual limit of 1,024 is less than a large store has.

    Args:
        count: Files to be opened.
        at_most: The most to return; None for all.

    Returns:
        How many files one may keep open and leave half of the limit to others.
    """
    most = sys.maxsize if at_most is None else at_most
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows, which has no such limit
        return most
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    wanted = soft + count if hard == resource.RLIM_INFINITY else min(soft + count, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return min(most, soft // 2)


def read_shard(path: Path) -> Shard:
    """Map a shard into memory; its arrays are read-only views of the file."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(data[:8], "little")
        header = parse_json(data[8 : 8 + length])
        metadata = {name: parse_json(text) for name, text in header.pop("__metadata__").items()}
        arrays = {name: _view(data, 8 + length, **entry) for name, entry in header.items()}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path}: is damaged; delete this file and run the extraction again"
        ) from error
    return Shard(arrays, metadata)


def _view(
    data: mmap.mmap, base: int, dtype: str, shape: list[int], data_offsets: list[int]
) -> Array:
    item, (start, end) = _DTYPES[dtype], data_offsets
    count = prod(shape)
    if min(start, *shape, 0) < 0 or end - start != count * item.itemsize:
        raise ValueError("an array's offsets do not fit its shape")
    flat: Array = np.frombuffer(data, item, count, base + start)
    return flat.reshape(shape)


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Write to a temporary file that replaces ``path`` once every byte is on the disk.

    A killed process leaves a ``.partial`` file, which the next attempt overwrites.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):  # it may never have been created
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise PolyglanceError(
                f"{printable(str(path))}: cannot be written ({error_reason(error)});"
                " give a writable folder"
            ) from error
        raise


def _sync_folder(folder: Path) -> None:
    """Flush the folder's entries to the disk, where the system can (POSIX)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Open the shards of a feature store for positioned reads, from a disk or an fsspec address.

Shards of an address such as ``s3://bucket/regions`` are copied to a cache folder when they are
first read; the least recently used copies are deleted when the folder grows beyond its bound.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.shards import allow_open_files

CACHE_BYTES = 64 << 30
"""Default bound of the cache folder of remote shards."""
_MAX_OPEN = 4096
"""Files kept open at a time, where the system allows it: a batch drawn from all of a corpus reads
hundreds of shards, and opening one costs as much as reading an image from it."""


class ShardFiles(Protocol):
    """The files of a store."""

    name: str
    """Of the store, for messages."""
    is_local: bool
    """Whether any row can be read at any time at little cost."""

    def read_text(self, name: str) -> str:
        """Return the text of a small file of the store."""
        ...

    def reader(self, name: str) -> Callable[[int, int], bytes]:
        """Return a function that reads so many bytes of a file from an offset."""
        ...

    def opened(self, names: Sequence[str]) -> AbstractContextManager[list[int]]:
        """Return a context manager with file descriptors that nobody closes meanwhile."""
        ...


def open_files(
    address: str | Path, *, cache_dir: Path | None = None, cache_bytes: int = CACHE_BYTES
) -> ShardFiles:
    """Open the files of a store.

    Args:
        address: A folder, or an address that fsspec understands (``s3://...``).
        cache_dir: Where copies of remote shards are kept; None for a temporary folder.
        cache_bytes: The most that these may occupy.
    """
    if "://" in str(address):
        return RemoteFiles(str(address), cache_dir, cache_bytes)
    return LocalFiles(Path(address))


def open_address(address: str) -> tuple[Any, str]:
    """Return fsspec's file system of an address, and the path in it."""
    try:
        import fsspec  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise PolyglanceError(
            f"{address} needs fsspec: pip install fsspec and the package of its protocol, or"
            " give a local folder"
        ) from None
    try:
        system, root = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise PolyglanceError(f"{address}: {' '.join(str(error).split())}") from error
    return system, root


class LocalFiles:
    """A store in a folder; files stay open, the most recently used ones."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.is_local = path, str(path), True
        self._open = _OpenFiles()

    def read_text(self, name: str) -> str:
        """Return the text of a file."""
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DataError(f"{self.path} is not a feature store: it has no {name}") from None
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path / name}: cannot be read ({error})") from error

    def reader(self, name: str) -> Callable[[int, int], bytes]:
        """Return a function that reads a part of a file."""

        def read(count: int, offset: int) -> bytes:
            with self.opened([name]) as (descriptor,):
                return os.pread(descriptor, count, offset)

        return read

    @contextmanager
    def opened(self, names: Sequence[str]) -> Iterator[list[int]]:
        """Yield descriptors of files."""
        try:
            descriptors = self._open.take([f"{self.path}/{name}" for name in names])
        except FileNotFoundError as error:
            missing = os.path.relpath(error.filename, self.path)
            raise DataError(
                f"{self.path} is not finished: {missing} is missing; run the same extraction again"
                " to continue where it stopped"
            ) from None
        try:
            yield descriptors
        finally:
            self._open.release(descriptors)


class RemoteFiles:
    """A store at an fsspec address, with copies of its shards in a bounded folder."""

    def __init__(
        self,
        address: str,
        cache_dir: Path | None,
        cache_bytes: int,
        *,
        suffix: str = ".safetensors",
    ) -> None:
        """Prepare to copy files.

        Args:
            address: What fsspec understands.
            cache_dir: Of copies; None for a temporary folder.
            cache_bytes: The most that copies may occupy.
            suffix: Of the files that are copied.
        """
        self.name, self.is_local = address, False
        self._system, self._root = open_address(address)
        self._temporary = cache_dir is None
        self.cache_dir = (
            Path(tempfile.mkdtemp(prefix="regions-")) if cache_dir is None else cache_dir
        )
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        self.cache_bytes, self._lock = cache_bytes, threading.Lock()
        self._open = _OpenFiles()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        for file in sorted(self.cache_dir.glob(f"*{suffix}"), key=lambda f: f.stat().st_mtime):
            self._sizes[file.name] = file.stat().st_size

    def __del__(self) -> None:
        if getattr(self, "_temporary", False):
            shutil.rmtree(self.cache_dir, ignore_errors=True)

    def read_text(self, name: str) -> str:
        """Return the text of a remote file."""
        try:
            content: bytes = self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            raise DataError(f"{self.name} is not a feature store: it has no {name}") from None
        return content.decode()

    def reader(self, name: str) -> Callable[[int, int], bytes]:
        """Return a function that reads a part of a remote file, without copying all of it."""

        def read(count: int, offset: int) -> bytes:
            path = f"{self._root}/{name}"
            part: bytes = self._system.cat_file(path, start=offset, end=offset + count)
            return part

        return read

    @contextmanager
    def opened(self, names: Sequence[str]) -> Iterator[list[int]]:
        """Copy files here if they are not, and yield their descriptors."""
        descriptors: list[int] = []
        try:
            for name in names:
                with self._lock:  # a file deleted from the cache stays readable
                    descriptors += self._open.take([str(self._fetch(name))])
            yield descriptors
        finally:
            self._open.release(descriptors)

    def _fetch(self, name: str) -> Path:
        local = self.cache_dir / Path(name).name
        if local.name in self._sizes:
            self._sizes.move_to_end(local.name)
            return local
        size = int(self._system.size(f"{self._root}/{name}"))
        if size > self.cache_bytes:
            raise PolyglanceError(
                f"{self.name}: a shard has {size:,} bytes and the cache may have"
                f" {self.cache_bytes:,}: raise its bound"
            )
        while self._sizes and sum(self._sizes.values()) + size > self.cache_bytes:
            oldest, _ = self._sizes.popitem(last=False)
            self._open.close(str(self.cache_dir / oldest))
            with suppress(FileNotFoundError):
                (self.cache_dir / oldest).unlink()
        partial = local.with_suffix(f".{os.getpid()}.partial")  # processes may share the folder
        try:
            self._system.get_file(f"{self._root}/{name}", str(partial))
        except FileNotFoundError:
            raise DataError(f"{self.name} is not finished: {name} is missing") from None
        os.replace(partial, local)
        self._sizes[local.name] = size
        return local


class _OpenFiles:
    """File descriptors, the most recently used ones kept open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptors: OrderedDict[str, int] = OrderedDict()
        self._users: dict[int, int] = {}
        self._retired: set[int] = set()
        self._most = allow_open_files(_MAX_OPEN, at_most=_MAX_OPEN)

    def take(self, paths: Sequence[str]) -> list[int]:
        """Open files, or take them as they are open; `release` ends the use of each."""
        taken: list[int] = []
        with self._lock:
            try:
                for path in paths:
                    descriptor = self._descriptors.pop(path, None)
                    if descriptor is None:
                        descriptor = os.open(path, os.O_RDONLY)
                    self._descriptors[path] = descriptor
                    self._users[descriptor] = self._users.get(descriptor, 0) + 1
                    taken.append(descriptor)
            except OSError:
                self._release(taken)
                raise
            while len(self._descriptors) > self._most:
                self._retire(next(iter(self._descriptors)))
        return taken

    def release(self, descriptors: Sequence[int]) -> None:
        """End the use of files that were taken."""
        with self._lock:
            self._release(descriptors)

    def close(self, path: str) -> None:
        """Close a file once nobody reads it."""
        with self._lock:
            if path in self._descriptors:
                self._retire(path)

    def _release(self, descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            self._users[descriptor] -= 1
            if not self._users[descriptor] and descriptor in self._retired:
                self._retired.discard(descriptor)
                os.close(descriptor)

    def _retire(self, path: str) -> None:
        descriptor = self._descriptors.pop(path)
        if self._users.get(descriptor):
            self._retired.add(descriptor)
        else:
            os.close(descriptor)

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            with suppress(OSError):
                os.close(descriptor)

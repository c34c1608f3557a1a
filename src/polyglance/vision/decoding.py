"""Decode images in worker processes.

Workers are stateless: each gets a few images, as bytes or as places in files, and returns their
pixels. Which images, and in which order, is decided by the caller alone, so that the number of
workers changes nothing but the speed. This module imports no torch, which workers would load too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.utils.child_processes import SpawnPool
from polyglance.utils.cores import available_cores
from polyglance.vision.pictures import (
    PictureError,
    decode_picture,
    decoding_side,
    read_square,
    to_square,
)

_AT_A_TIME = 8
"""Images of a job."""
_MAX_WORKERS = 16

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ImageBytes:
    """An image inside a file such as a tar, or one whose bytes were read already."""

    name: str
    """For messages."""
    path: str | None = None
    """The file; None where ``content`` is given."""
    start: int = 0
    size: int = 0
    content: bytes | None = None

    def read(self) -> bytes:
        """Return the bytes of the image's own file."""
        if self.content is not None:
            return self.content
        assert self.path is not None
        try:
            with Path(self.path).open("rb", buffering=0) as file:
                file.seek(self.start)
                content = file.read(self.size)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror or error})") from error
        if len(content) < self.size:
            raise DataError(
                f"{self.path}: ends before {self.name}: copy the file again, or move its index away"
            )
        return content


Source = str | Path | ImageBytes


def decode(source: Source, size: int) -> Pixels:
    """Decode an image and squeeze it into a square, uint8 ``(size, size, RGB)``."""
    if isinstance(source, ImageBytes):
        # As `read_square` does, so that an image in a tar becomes the same pixels.
        picture = decode_picture(source.read(), source.name, min_side=decoding_side(size))
        return to_square(picture.image, size).pixels
    return read_square(source, size).pixels


def default_workers(processes: int = 1) -> int:
    """Return how many workers each of so many training processes may have."""
    return max(1, min(_MAX_WORKERS, available_cores() // processes - 1))


class DecodePool:
    """Decodes images in processes, or in threads of this one."""

    def __init__(self, workers: int = 0) -> None:
        """Prepare to start so many processes at the first use; 0 for threads."""
        self.workers = workers
        self._pool: Executor | None = None

    def squares(self, sources: Sequence[Source], size: int) -> Pixels:
        """Decode images, uint8 ``(n, size, size, RGB)``; a damaged one is an error."""
        out = np.empty((len(sources), size, size, 3), np.uint8)
        first = 0
        for pixels, errors in self._decode(sources, size):
            if errors:
                raise PictureError(errors[min(errors)])
            out[first : first + len(pixels)] = pixels
            first += len(pixels)
        return out

    def read(self, sources: Sequence[Source], size: int) -> _Decoded:
        """Decode images into squares; return them and, by number, why some cannot be decoded.

        The pixels of a damaged image are zero.
        """
        out = np.empty((len(sources), size, size, 3), np.uint8)
        found: dict[int, str] = {}
        first = 0
        for pixels, errors in self._decode(sources, size):
            found.update((first + number, reason) for number, reason in errors.items())
            out[first : first + len(pixels)] = pixels
            first += len(pixels)
        return out, found

    def damaged(self, sources: Sequence[Source]) -> dict[int, str]:
        """Return which images cannot be decoded, and why."""
        found: dict[int, str] = {}
        first = 0
        for pixels, errors in self._decode(sources, 8):
            found.update((first + number, reason) for number, reason in errors.items())
            first += len(pixels)
        return found

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _decode(self, sources: Sequence[Source], size: int) -> Iterable[_Decoded]:
        jobs = [sources[n : n + _AT_A_TIME] for n in range(0, len(sources), _AT_A_TIME)]
        if self._pool is None:
            self._pool = SpawnPool(self.workers) if self.workers else ThreadPoolExecutor()
        return self._results(self._pool.map(_decode_job, jobs, [size] * len(jobs)))

    def _results(self, results: Iterator[_Decoded]) -> Iterator[_Decoded]:
        try:
            yield from results
        except BrokenProcessPool:
            self._pool = None
            raise PolyglanceError(
                "a process that decodes images was ended from outside, perhaps for its memory:"
                " set decode_workers to fewer, or to 0 for threads"
            ) from None


_Decoded = tuple[Pixels, dict[int, str]]


def _decode_job(sources: Sequence[Source], size: int) -> _Decoded:
    """Decode a few images; errors as text, since not every exception can be sent."""
    out = np.zeros((len(sources), size, size, 3), np.uint8)
    errors = {}
    for number, source in enumerate(sources):
        try:
            out[number] = decode(source, size)
        except PictureError as error:
            errors[number] = str(error)
    return out, errors

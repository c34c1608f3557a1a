"""Read rows of a feature store by positioned reads, for stores larger than memory.

`FeatureStore` maps its files, and mapped pages count as the process's memory. Here only the
lengths of all items are in memory; rows are read into buffers of the caller, by a few threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError
from polyglance.utils.positioned_reads import read_parts
from polyglance.vision.shard_files import CACHE_BYTES, ShardFiles, open_files
from polyglance.vision.shards import ArrayPlace, ShardHeader, read_header
from polyglance.vision.store import ITEM_ARRAYS, StoreInfo, parse_info, shard_count, shard_layout

Indices = NDArray[np.int64]

_READ_THREADS = 8
_ITEMS_PER_JOB = 512
"""Each job needs the interpreter at its beginning and its end only."""


class Reads:
    """Rows that a few threads read, and the files that they keep open meanwhile."""

    def __init__(self, jobs: Sequence[Future[None]], opened: ExitStack) -> None:
        self._jobs, self._opened, self._left = jobs, opened, len(jobs)
        self._lock = threading.Lock()
        for job in jobs:
            job.add_done_callback(self._end)

    def wait(self) -> None:
        """Return when all is read; raises what reading raised."""
        for job in self._jobs:
            job.result()

    def _end(self, job: Future[None]) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._opened.close()


class StoreReader:
    """Rows of a finished store by item number, in the order of its keys."""

    def __init__(
        self,
        address: str | Path,
        *,
        cache_dir: Path | None = None,
        cache_bytes: int = CACHE_BYTES,
        threads: int = _READ_THREADS,
    ) -> None:
        """Read the headers of all shards.

        Args:
            address: A folder, or an fsspec address.
            cache_dir: Where copies of remote shards are kept; None for a temporary folder.
            cache_bytes: The most that these may occupy.
            threads: Batches of rows that are read at the same time.
        """
        self.files: ShardFiles = open_files(address, cache_dir=cache_dir, cache_bytes=cache_bytes)
        self.info: StoreInfo = parse_info(
            self.files.read_text("store.json"), f"{self.files.name}/store.json"
        )
        self._pool = ThreadPoolExecutor(threads, "store-reader")
        numbers = range(shard_count(self.info))
        described = list(self._pool.map(self._describe, numbers))
        self._places: list[dict[str, ArrayPlace]] = [places for places, _ in described]
        lengths = [length for _, length in described]
        self.lengths: Indices = np.concatenate([np.zeros(0, np.int64), *lengths])
        """``(items,)``: tokens of each item."""
        items = np.array([len(length) for length in lengths], np.int64)
        self._first_item = np.cumsum(items) - items
        self._shard = np.repeat(np.arange(len(items), dtype=np.int32), items)
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        shard_start = np.append(starts, 0)[self._first_item] if len(items) else starts[:0]
        self._row = starts - np.repeat(shard_start, items)
        """``(items,)``: the first token of each item in its shard."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_bytes(self) -> int:
        """The size of all features."""
        return int(self.lengths.sum()) * self.info.width * np.dtype(self.info.dtype).itemsize

    def items_of(self, keys: Sequence[str]) -> Indices:
        """Return the item numbers of keys that the store holds."""
        numbers = {key: number for number, key in enumerate(self.keys())}
        return np.fromiter((numbers[key] for key in keys), np.int64, len(keys))

    def keys(self) -> Iterator[str]:
        """Yield the keys of all items, in order, a shard at a time."""
        for number in range(shard_count(self.info)):
            yield from self._header(number).metadata["keys"]

    def read(
        self, name: str, items: Indices, counts: Indices, out: NDArray[Any], starts: Indices
    ) -> None:
        """Read rows of an array into ``out``; the arguments are those of `start_read`."""
        self.start_read(name, items, counts, out, starts).wait()

    def start_read(
        self, name: str, items: Indices, counts: Indices, out: NDArray[Any], starts: Indices
    ) -> Reads:
        """Begin to read rows of an array into ``out``.

        Args:
            name: ``features``, ``scales``, ``boxes``, ``label_ids`` or ``label_probs`` by
                token; ``wholes`` or ``whole_scales`` by item.
            items: Which items.
            counts: Tokens of each to read, from its first; 1 for arrays by item.
            out: ``(rows, ...)`` of the array's dtype, contiguous.
            starts: Where in ``out`` each item's rows begin.

        Returns:
            What to wait for before ``out`` is used.
        """
        if out.dtype != shard_layout(self.info)[name][1] or not out.flags.c_contiguous:
            raise ValueError(f"{name} cannot be read into {out.dtype}")
        # In the order of the files, so that neighbouring reads are near each other on the disk.
        order = np.lexsort((self._row[items], self._shard[items]))
        items, counts, starts = items[order], counts[order], starts[order]
        width = out[:1].nbytes
        if not width or not len(items):
            return Reads([], ExitStack())
        shards, which = np.unique(self._shard[items], return_inverse=True)
        places = [self._places[shard][name] for shard in shards.tolist()]
        rows = items - self._first_item[shards[which]] if name in ITEM_ARRAYS else self._row[items]
        offsets = np.array([place.offset for place in places])[which] + rows * width
        sizes, begins = counts * width, starts * width
        opened = ExitStack()
        names = [_shard_name(shard) for shard in shards.tolist()]
        descriptors = np.array(opened.enter_context(self.files.opened(names)))[which]

        def run(first: int) -> None:
            part = slice(first, first + _ITEMS_PER_JOB)
            read = read_parts(descriptors[part], offsets[part], sizes[part], out, begins[part])
            for short in np.flatnonzero(read != sizes[part]) + first:
                begin, size = int(begins[short]), int(sizes[short])
                target = out.reshape(-1).view(np.uint8).data[begin : begin + size]
                shard = int(shards[which[short]])
                self._fill(int(descriptors[short]), shard, int(offsets[short]), target)

        jobs = [self._pool.submit(run, i) for i in range(0, len(items), _ITEMS_PER_JOB)]
        return Reads(jobs, opened)

    def read_all(self, name: str, *, columns: int | None = None) -> NDArray[Any]:
        """Read an array of all items into memory, shard by shard; its first columns if given."""
        shape, dtype = shard_layout(self.info)[name]
        kept = shape if columns is None else (columns,)
        rows = [places[name].shape[0] for places in self._places]
        out = np.empty((sum(rows), *kept), dtype)
        ends = np.cumsum(rows)

        def run(number: int) -> None:
            target = out[ends[number] - rows[number] : ends[number]]
            part = target if columns is None else np.empty((rows[number], *shape), dtype)
            if part.size:
                flat = part.reshape(-1).view(np.uint8).data
                with self.files.opened([_shard_name(number)]) as (descriptor,):
                    self._fill(descriptor, number, self._places[number][name].offset, flat)
            if columns is not None:
                target[:] = part[:, :columns]

        list(self._pool.map(run, range(len(rows))))
        return out

    def _fill(self, descriptor: int, shard: int, offset: int, target: memoryview) -> None:
        done = 0
        while done < len(target):
            count = os.preadv(descriptor, [target[done:]], offset + done)
            if not count:
                raise DataError(
                    f"{self.files.name}/{_shard_name(shard)}: is cut off; delete this file and"
                    " run the extraction again"
                )
            done += count

    def _describe(self, number: int) -> tuple[dict[str, ArrayPlace], Indices]:
        header = self._header(number)
        places = dict(header.arrays)
        place = places["lengths"]
        read = self.files.reader(_shard_name(number))
        data = read(place.shape[0] * 8, place.offset)
        return places, np.frombuffer(data, place.dtype).astype(np.int64)

    def _header(self, number: int) -> ShardHeader:
        name = _shard_name(number)
        header = read_header(self.files.reader(name), f"{self.files.name}/{name}")
        layout = shard_layout(self.info)
        for array, (shape, dtype) in layout.items():
            place = header.arrays.get(array)
            if place is None or place.shape[1:] != shape or place.dtype != dtype:
                raise DataError(
                    f"{self.files.name}/{name}: does not fit store.json; move it away, and run"
                    " the extraction again"
                )
        return header


def _shard_name(number: int) -> str:
    return f"shards/{number:05d}.safetensors"

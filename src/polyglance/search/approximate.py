"""A graph of neighbours (HNSW, https://arxiv.org/abs/1603.09320) for libraries of millions.

The graph lies in a file beside the library, made of nothing but what is in it: it can be
deleted, and is made again by the next indexing. It only says where to look: which vectors
there are, what they are and whose is decided by the library. So a graph stays of use while
the library goes on: vectors that are gone are passed over, and those that came later, which
have higher numbers, are compared one by one until there are too many of them.

The file is what FAISS writes, and after it the numbers of the vectors and a description in
JSON: of which library and model it is, and checksums of some vectors to know them again.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import zlib
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from polyglance.errors import DataError, MissingExtra, printable, reason
from polyglance.progress import progress
from polyglance.search.exact import ExactIndex, Nearest, Scores, best, joined
from polyglance.search.store import Filter, Ids, Store

EXACT = 200_000
"""So many vectors are compared one by one: 10 ms on two cores, and half a second to read them."""
GONE = 0.2
"""The part of a graph's vectors that may be gone before it is made again."""
LINKS, BUILDING, SEARCHING = 32, 80, 768
"""Of the graph: links of a vector, and how many vectors are looked at to link it and to find."""
FILTERED = 1024
"""How many are looked at for a search that not all items are good for."""
SAMPLES = 64

_MAGIC = b"PGLHNSW1"
_TAIL = struct.Struct("<QQ8s")


@dataclass(frozen=True, slots=True)
class Description:
    """What a graph is of."""

    library: str
    fingerprint: str
    count: int
    last: int
    """The highest number of a vector in it."""
    samples: dict[str, int]
    """Checksums of some vectors, by their numbers."""


class GraphError(DataError):
    """A graph that cannot be used, and why."""


class ApproximateIndex:
    """A graph with the vectors that came after it."""

    def __init__(self, store: Store, path: Path) -> None:
        """Open the graph in a file; a `GraphError` says why it cannot be used."""
        self._faiss = _faiss()
        self._store, self._path = store, path
        self._graph, self._ids, self.description = _read(path, self._faiss)
        self._later = ExactIndex(store, after=self.description.last)
        self._revision: Hashable = None
        self._check_samples()
        self.refresh()

    def refresh(self) -> None:
        """See that the graph is still of use after what was written since."""
        revision = self._store.revision()
        if revision == self._revision:
            return
        manifest, described = self._store.manifest, self.description
        if (described.library, described.fingerprint) != (manifest.library, manifest.fingerprint):
            raise GraphError(f"{self._name} is of another library")
        there, later = self._store.vector_counts(described.last)
        if later > EXACT:
            raise GraphError(f"{self._name} lacks {later:,} vectors that came later")
        if there > described.count or there < (1 - GONE) * described.count:
            raise GraphError(
                f"{self._name} has {described.count:,} vectors, of which the library has {there:,}"
            )
        self._revision = revision

    def nearest(
        self, query: Scores, count: int, wanted: Filter | None = None, *, once: bool = True
    ) -> Nearest:
        """The vectors that fit best among those ``wanted``, ``once`` of each item."""
        self.refresh()
        depth = max(2 * count, FILTERED if wanted else SEARCHING)
        while True:
            near = self._look(query, depth)
            if wanted:
                near = self._store.matching(wanted, near)
                if len(near) < count:
                    # Few are wanted, or they lie far away: compare all of them.
                    rows = self._store.rows(self._store.matching(wanted))
                    return best(rows, query, count, once=once)
            else:
                near = near[: max(2 * count, 64)] if depth < 4 * SEARCHING else near
            rows = joined(self._store.rows(near), self._later.wanted(wanted))
            found = best(rows, query, count, once=once)
            if len(found) == min(count, len(rows)) or depth >= len(self._ids):
                return found
            depth *= 4  # clips of many spans crowd it

    def _look(self, query: Scores, depth: int) -> Ids:
        """The numbers of vectors near a query, nearest first."""
        settings = self._faiss.SearchParametersHNSW(efSearch=depth)
        _, places = self._graph.search(query[None], min(depth, len(self._ids)), params=settings)
        near: Ids = self._ids[places[0][places[0] >= 0]]
        return near

    def _check_samples(self) -> None:
        """A library that was replaced by an older copy may have other vectors by these numbers."""
        wanted = {int(number): crc for number, crc in self.description.samples.items()}
        rows = self._store.rows(np.array(sorted(wanted), np.int64))
        for number, vector in zip(rows.ids.tolist(), rows.vectors, strict=True):
            if _checksum(vector) != wanted[number]:
                raise GraphError(f"{self._name} is of another state of the library")

    @property
    def _name(self) -> str:
        return printable(self._path.name)


def graph_path(library: Path) -> Path:
    """Where the graph of a library is."""
    return library.with_name(library.name + ".hnsw")


def build(store: Store, path: Path, *, quiet: bool = True) -> Description:
    """Make the graph of a library anew; the file appears whole or not at all."""
    faiss = _faiss()
    manifest = store.manifest
    graph = faiss.IndexHNSWSQ(
        manifest.width, faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT
    )
    graph.hnsw.efConstruction = BUILDING
    graph.train(np.zeros((1, manifest.width), np.float32))
    total, _ = store.vector_counts(np.iinfo(np.int64).max)
    numbers: list[Ids] = []
    samples: dict[str, int] = {}
    with progress("Linking neighbours", total, quiet=quiet) as advance:
        for rows in store.rows_after(0):
            graph.add(rows.vectors)
            numbers.append(rows.ids)
            samples[str(rows.ids[0])] = _checksum(rows.vectors[0])
            advance(len(rows))
    ids = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
    kept = dict(list(samples.items())[:: max(1, len(samples) // SAMPLES)])
    last = int(ids[-1]) if len(ids) else 0
    described = Description(manifest.library, manifest.fingerprint, len(ids), last, kept)
    _write(path, faiss, graph, ids, described)
    return described


def _write(path: Path, faiss: Any, graph: Any, ids: Ids, described: Description) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    beside = Path(name)
    try:
        faiss.write_index(graph, name)
        links = beside.stat().st_size - 2 * graph.d * len(ids)  # float16
        text = json.dumps({**asdict(described), "links": links}).encode()
        with beside.open("r+b") as file:
            checksum = _crc(file, links)
            file.seek(0, os.SEEK_END)
            file.write(ids.tobytes() + text)
            checksum = zlib.crc32(text, zlib.crc32(ids.tobytes(), checksum))
            file.write(_TAIL.pack(checksum, len(text), _MAGIC))
        beside.chmod(0o644)
        os.replace(beside, path)
    except OSError as error:
        raise DataError(f"{printable(str(path))}: cannot be written ({reason(error)})") from error
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path, faiss: Any) -> tuple[Any, Ids, Description]:
    """The graph, the numbers of its vectors and its description.

    FAISS follows links wherever they lead: all but the vectors is checked before it reads.
    """
    name = printable(path.name)
    try:
        with path.open("rb") as file:
            file.seek(-_TAIL.size, os.SEEK_END)
            checksum, length, magic = _TAIL.unpack(file.read())
            if magic != _MAGIC:
                raise ValueError
            file.seek(-_TAIL.size - length, os.SEEK_END)
            text = file.read(length)
            plain = json.loads(text)
            links, described = plain.pop("links"), Description(**plain)
            file.seek(-_TAIL.size - length - 8 * described.count, os.SEEK_END)
            numbers = file.read(8 * described.count)
            if zlib.crc32(text, zlib.crc32(numbers, _crc(file, links))) != checksum:
                raise ValueError
        # Mapped: what a search does not come by is not read.
        graph = faiss.read_index(str(path), getattr(faiss, "IO_FLAG_MMAP_IFC", 0))
    except FileNotFoundError:
        raise GraphError(f"{name} is not there") from None
    except (OSError, ValueError, TypeError, KeyError, struct.error, RuntimeError) as error:
        raise GraphError(f"{name} is damaged") from error
    return graph, np.frombuffer(numbers, np.int64), described


def _crc(file: IO[bytes], count: int) -> int:
    """The checksum of the first bytes of a file."""
    file.seek(0)
    checksum = 0
    while count > 0 and (block := file.read(min(count, 1 << 22))):
        checksum = zlib.crc32(block, checksum)
        count -= len(block)
    return checksum


def _checksum(vector: Scores) -> int:
    return zlib.crc32(vector.astype("<f2").tobytes())


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingExtra(f"searching more than {EXACT:,} vectors quickly", "index") from error
    return faiss

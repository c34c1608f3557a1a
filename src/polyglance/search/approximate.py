"""Approximate search for millions of vectors: an HNSW graph (https://arxiv.org/abs/1603.09320).

The graph is a file beside the library, derived from it alone: it can be deleted, and the next
indexing builds it again. It only proposes candidates; which vectors exist, their values and
their items come from the library. So a graph stays usable while the library changes: deleted
vectors are skipped, and later ones, which have higher ids, are compared one by one until there
are too many of them.

The file is FAISS's own, followed by the ids of the vectors and a description in JSON: the
library and model it belongs to, and checksums of some vectors to verify that.
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

from polyglance.errors import DataError, MissingExtraError, error_reason, printable
from polyglance.search.exact import Bonus, ExactIndex, FloatArray, Neighbors, concat_rows, top_rows
from polyglance.search.store import Filter, Ids, Store
from polyglance.utils.progress import progress

EXACT_LIMIT = 200_000
"""Up to this many vectors are compared one by one: 10 ms on two cores, half a second to read."""
MAX_DELETED = 0.2
"""The fraction of a graph's vectors that may be deleted before it is built again."""
HNSW_LINKS, EF_CONSTRUCTION, EF_SEARCH = 32, 80, 768
"""HNSW's M, efConstruction and efSearch."""
EF_SEARCH_FILTERED = 1024
"""efSearch for a search with a filter."""
NUM_SAMPLED = 1000
"""Vectors by which the mean and deviation of cosines are estimated."""
MAX_GAINING = 256
"""Items beside the graph's candidates that are considered for what they gain by a `Bonus`."""
NUM_SAMPLES = 64
"""Vectors whose checksums are in the description, about."""

_MAGIC = b"PGLHNSW1"
_TAIL = struct.Struct("<QQ8s")


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """The description of a graph; its fields are keys of the JSON in the file."""

    library: str
    fingerprint: str
    count: int
    last: int
    """The highest vector id in it."""
    samples: dict[str, int]
    """Checksums of some vectors, by id."""


class GraphError(DataError):
    """A graph cannot be used."""


class ApproximateIndex:
    """A graph, together with the vectors added after it."""

    def __init__(self, store: Store, path: Path) -> None:
        """Open the graph in a file; a `GraphError` says why it cannot be used."""
        self._faiss = _import_faiss()
        self._store, self._path = store, path
        self._graph, self._ids, self.info = _read_graph(path, self._faiss)
        self._later = ExactIndex(store, after=self.info.last)
        self._revision: Hashable = None
        self._sample: FloatArray | None = None
        self._check_samples()
        self.refresh()

    def refresh(self) -> None:
        """Check that the graph is still usable after what was written since."""
        revision = self._store.revision()
        if revision == self._revision:
            return
        model_info, info = self._store.model_info, self.info
        if (info.library, info.fingerprint) != (model_info.library, model_info.fingerprint):
            raise GraphError(f"{self._name} belongs to another library")
        present, later = self._store.vector_counts(info.last)
        if later > EXACT_LIMIT:
            raise GraphError(f"{self._name} lacks {later:,} vectors that were added later")
        if present > info.count or present < (1 - MAX_DELETED) * info.count:
            raise GraphError(
                f"{self._name} has {info.count:,} vectors, of which the library has {present:,}"
            )
        self._revision = revision

    def search(
        self,
        query: FloatArray,
        k: int,
        where: Filter | None = None,
        *,
        one_per_item: bool = True,
        bonus: Bonus | None = None,
    ) -> Neighbors:
        """Return the ``k`` best vectors; see `polyglance.search.backends.Index.search`."""
        self.refresh()
        depth = max(2 * k, EF_SEARCH_FILTERED if where else EF_SEARCH)
        gaining = np.zeros(0, np.int64)
        cosine_stats = None
        if bonus is not None:
            cosine_stats = self._cosine_stats(query)
            gaining = self._store.ids_of_items(bonus.largest(MAX_GAINING))
            gaining = gaining[gaining <= self.info.last]
            if where and len(gaining):
                gaining = self._store.matching_ids(where, gaining)
        while True:
            ids = self._search_graph(query, depth)
            if where:
                ids = self._store.matching_ids(where, ids)
                if len(ids) < k:
                    # Few items match, or they are far from the query: compare all of them.
                    rows = self._store.rows(self._store.matching_ids(where))
                    return top_rows(
                        rows,
                        query,
                        k,
                        one_per_item=one_per_item,
                        bonus=bonus,
                        cosine_stats=cosine_stats,
                    )
            else:
                ids = ids[: max(2 * k, 64)] if depth < 4 * EF_SEARCH else ids
            ids = np.union1d(ids, gaining) if len(gaining) else ids
            rows = concat_rows(self._store.rows(ids), self._later.matching_rows(where))
            neighbors = top_rows(
                rows, query, k, one_per_item=one_per_item, bonus=bonus, cosine_stats=cosine_stats
            )
            if len(neighbors) == min(k, len(rows)) or depth >= len(self._ids):
                return neighbors
            depth *= 4  # clips with many spans may fill the result

    def _search_graph(self, query: FloatArray, depth: int) -> Ids:
        """Return the ids of the vectors nearest to a query, nearest first."""
        settings = self._faiss.SearchParametersHNSW(efSearch=depth)
        _, positions = self._graph.search(query[None], min(depth, len(self._ids)), params=settings)
        ids: Ids = self._ids[positions[0][positions[0] >= 0]]
        return ids

    def _cosine_stats(self, query: FloatArray) -> tuple[float, float]:
        """Return mean and standard deviation of a query's cosines, by the first vectors."""
        if self._sample is None:
            self._sample = self._store.rows(np.sort(self._ids[:NUM_SAMPLED])).vectors
        cosines = self._sample @ query
        return float(cosines.mean()), float(cosines.std())

    def _check_samples(self) -> None:
        """Refuse a graph of another state: an older copy of a library may have reused its ids."""
        checksums = {int(number): checksum for number, checksum in self.info.samples.items()}
        rows = self._store.rows(np.array(sorted(checksums), np.int64))
        for number, vector in zip(rows.ids.tolist(), rows.vectors, strict=True):
            if _checksum(vector) != checksums[number]:
                raise GraphError(f"{self._name} belongs to another state of the library")

    @property
    def _name(self) -> str:
        return printable(self._path.name)


def graph_path(library: Path) -> Path:
    """Return the path of a library's graph."""
    return library.with_name(library.name + ".hnsw")


def build_graph(store: Store, path: Path, *, quiet: bool = True) -> GraphInfo:
    """Build the graph of a library and write it atomically.

    Args:
        store: The library.
        path: The file to write.
        quiet: Show no progress bar.

    Returns:
        The description of the graph.
    """
    faiss = _import_faiss()
    model_info = store.model_info
    graph = faiss.IndexHNSWSQ(
        model_info.width, faiss.ScalarQuantizer.QT_fp16, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT
    )
    graph.hnsw.efConstruction = EF_CONSTRUCTION
    graph.train(np.zeros((1, model_info.width), np.float32))
    total, _ = store.vector_counts(np.iinfo(np.int64).max)
    blocks: list[Ids] = []
    checksums: dict[str, int] = {}
    with progress("Building graph", total, quiet=quiet) as advance:
        for rows in store.rows_after(0):
            graph.add(rows.vectors)
            blocks.append(rows.ids)
            checksums[str(rows.ids[0])] = _checksum(rows.vectors[0])
            advance(len(rows))
    ids = np.concatenate(blocks) if blocks else np.zeros(0, np.int64)
    samples = dict(list(checksums.items())[:: max(1, len(checksums) // NUM_SAMPLES)])
    last = int(ids[-1]) if len(ids) else 0
    info = GraphInfo(model_info.library, model_info.fingerprint, len(ids), last, samples)
    _write_graph(path, faiss, graph, ids, info)
    return info


def _write_graph(path: Path, faiss: Any, graph: Any, ids: Ids, info: GraphInfo) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    partial = Path(name)
    try:
        faiss.write_index(graph, name)
        links = partial.stat().st_size - 2 * graph.d * len(ids)  # all but the float16 vectors
        text = json.dumps({**asdict(info), "links": links}).encode()
        with partial.open("r+b") as file:
            checksum = _crc(file, links)
            file.seek(0, os.SEEK_END)
            file.write(ids.tobytes() + text)
            checksum = zlib.crc32(text, zlib.crc32(ids.tobytes(), checksum))
            file.write(_TAIL.pack(checksum, len(text), _MAGIC))
        partial.chmod(0o644)
        os.replace(partial, path)
    except OSError as error:
        raise DataError(
            f"{printable(str(path))}: cannot be written ({error_reason(error)})"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _read_graph(path: Path, faiss: Any) -> tuple[Any, Ids, GraphInfo]:
    """Read a graph, the ids of its vectors and its description.

    FAISS follows links wherever they lead, so all but the vectors is verified before it reads.
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
            values = json.loads(text)
            links, info = values.pop("links"), GraphInfo(**values)
            file.seek(-_TAIL.size - length - 8 * info.count, os.SEEK_END)
            ids = file.read(8 * info.count)
            if zlib.crc32(text, zlib.crc32(ids, _crc(file, links))) != checksum:
                raise ValueError
        # Memory-mapped: pages that no search touches are never read.
        graph = faiss.read_index(str(path), getattr(faiss, "IO_FLAG_MMAP_IFC", 0))
    except FileNotFoundError:
        raise GraphError(f"{name} does not exist") from None
    except (OSError, ValueError, TypeError, KeyError, struct.error, RuntimeError) as error:
        raise GraphError(f"{name} is damaged") from error
    return graph, np.frombuffer(ids, np.int64), info


def _crc(file: IO[bytes], count: int) -> int:
    """Return the CRC-32 of the first bytes of a file."""
    file.seek(0)
    checksum = 0
    while count > 0 and (block := file.read(min(count, 1 << 22))):
        checksum = zlib.crc32(block, checksum)
        count -= len(block)
    return checksum


def _checksum(vector: FloatArray) -> int:
    return zlib.crc32(vector.astype("<f2").tobytes())


def _import_faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"searching more than {EXACT_LIMIT:,} vectors quickly", "index"
        ) from error
    return faiss

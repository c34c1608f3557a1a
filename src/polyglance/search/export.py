"""Write a library's vectors, and what they are of, for other programs: as .npy or Parquet.

``vectors.npy`` holds the vectors, float32 ``[n, width]``, and ``vectors.jsonl`` beside it says
in line ``i`` what row ``i`` is of. A Parquet file has both, a row a vector. A picture has one
vector, a clip one for each span; rows are ordered by id.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import MissingExtraError, PolyglanceError, error_reason, printable
from polyglance.search.query import MediaRef
from polyglance.search.store import Store

if TYPE_CHECKING:
    from polyglance.search.open_library import OpenLibrary

NPY, PARQUET = ".npy", ".parquet"


@dataclass(frozen=True, slots=True)
class VectorExport:
    """What an export wrote."""

    vectors: int
    width: int
    files: tuple[Path, ...]


def export_vectors(library: OpenLibrary, path: Path, *, overwrite: bool = False) -> VectorExport:
    """Write all vectors of a library; the suffix of ``path`` says in which format.

    Args:
        library: The library; others may write to it meanwhile.
        path: A file that ends in ``.npy`` or ``.parquet``.
        overwrite: Replace files that exist.

    Returns:
        How many vectors were written, and the files.
    """
    suffix = path.suffix.lower()
    if suffix not in (NPY, PARQUET):
        raise PolyglanceError(
            f"{printable(str(path))}: give a name that ends in {NPY} or {PARQUET}"
        )
    files = (path, path.with_suffix(".jsonl")) if suffix == NPY else (path,)
    for file in files:
        if file.exists() and not overwrite:
            raise PolyglanceError(
                f"{printable(str(file))} exists: give another name, or --overwrite to replace it"
            )
    store = library._store()
    write = _write_npy if suffix == NPY else _write_parquet
    try:
        with ExitStack() as stack:
            count = write(store, [stack.enter_context(_replacing(file)) for file in files])
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(path))}: cannot be written ({error_reason(error)})"
        ) from error
    return VectorExport(count, store.model_info.width, files)


def _rows(store: Store) -> Iterator[tuple[NDArray[np.float32], list[dict[str, Any]]]]:
    """Yield blocks of vectors, ``[n, width]``, with what each is of."""
    for block in store.rows_after(0):
        found = store.lookup(block.ids.tolist())
        kept = [place for place, number in enumerate(block.ids.tolist()) if number in found]
        numbers = block.ids[kept].tolist()
        yield (
            block.vectors[kept],
            [_describe(MediaRef.from_item(number, *found[number])) for number in numbers],
        )


def _describe(item: MediaRef) -> dict[str, Any]:
    start, end = item.span or (None, None)
    return {
        "id": item.id,
        "path": str(item.path),
        "kind": item.kind,
        "start": start,
        "end": end,
        "taken": item.taken.isoformat(),
        "width": item.width,
        "height": item.height,
        "seconds": item.seconds,
    }


def _write_npy(store: Store, files: Sequence[IO[bytes]]) -> int:
    vectors, lines = files
    width, count = store.model_info.width, 0
    vectors.write(_npy_header(0, width))
    for block, items in _rows(store):
        vectors.write(np.ascontiguousarray(block, "<f4").tobytes())
        for item in items:
            lines.write(json.dumps(item, ensure_ascii=False).encode() + b"\n")
        count += len(items)
    vectors.seek(0)
    vectors.write(_npy_header(count, width))
    return count


def _npy_header(rows: int, width: int) -> bytes:
    """Return the beginning of a .npy file, of the same length for any number of rows."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    )
    return header.getvalue()


def _write_parquet(store: Store, files: Sequence[IO[bytes]]) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("writing Parquet", "parquet") from error
    info, count = store.model_info, 0
    text, number = pa.string(), pa.int64()
    vector = pa.list_(pa.float32(), info.width)
    schema = pa.schema(
        [("id", number), ("path", text), ("kind", text), ("start", pa.float64()),
         ("end", pa.float64()), ("taken", pa.timestamp("s")), ("width", number),
         ("height", number), ("seconds", pa.float64()), ("vector", vector)],
        metadata={"model": info.model, "fingerprint": info.fingerprint},
    )  # fmt: skip
    with pq.ParquetWriter(files[0], schema) as writer:
        for block, items in _rows(store):
            flat = pa.array(np.ascontiguousarray(block, np.float32).reshape(-1))
            columns = [
                pa.array(np.array([item[name] for item in items], "datetime64[s]"))
                if name == "taken"
                else pa.array([item[name] for item in items], schema.field(name).type)
                for name in schema.names[:-1]
            ]
            columns.append(pa.FixedSizeListArray.from_arrays(flat, info.width))
            writer.write_table(pa.table(columns, schema=schema))
            count += len(items)
    return count


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of ``path`` when the block ends without an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

"""Shards: Parquet files of encoded pictures and clips, to be imported into a library.

A folder of shards is written by `polyglance encode` and read by `polyglance library import`:

    files/plan.json        the model, the sources, the number of shards
    files/000012.parquet   the files of shard 12, as they were listed
    shards/000012.parquet  their vectors; the file exists only once it is complete

The list of files is made once, in a temporary folder that a rename turns into ``files``, so
that of several runs that start together one wins. A shard then has the same files in every
run and on every machine, and a run that was killed continues with the missing shards. A row of
a shard is a file: an item with its vectors in float16, as in a library, or the reason why it
could not be read. All files are Parquet with checksums, which other programs can read too.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from polyglance.errors import (
    DataError,
    MissingExtraError,
    PolyglanceError,
    error_reason,
    printable,
)
from polyglance.search import serialization
from polyglance.search.scan import ScannedFile
from polyglance.search.serialization import ITEM_FIELDS, item_from_row, item_to_row
from polyglance.search.store import BadFile, Entry, FileSignature, Item, ModelInfo

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
"""Version of the folder's format; raised when older code could not read a newer one."""
SHARD_SIZE = 1024
"""Files per shard: what a kill costs each worker at most, a minute of one core."""
_PLAN = "plan.json"
_NO_SHARD = (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError)
"""What reading tables of other columns and types raises."""

ListedFile: TypeAlias = ScannedFile | BadFile
EncodedFile: TypeAlias = Entry | BadFile


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The contents of ``plan.json``: the settings that a folder of shards is made with."""

    model: str
    source: str
    """What opens the model again: its name or its folder."""
    fingerprint: str
    width: int
    thumbnails: bool
    places: tuple[str, ...]
    """Folders, files and manifests that were searched for files."""
    roots: tuple[str, ...]
    """Folders that are empty or missing on a machine where a disk is not mounted."""
    shard_size: int
    shards: int = 0
    files: int = 0
    format: int = FORMAT

    def settings(self) -> dict[str, Any]:
        """Return what must be equal for a run to continue with another's shards."""
        ignored = ("model", "source", "roots", "shards", "files")
        return {name: value for name, value in asdict(self).items() if name not in ignored}


class ShardFolder:
    """A folder of shards."""

    def __init__(self, path: str | Path) -> None:
        """Name a folder; it is opened when its `plan` is read."""
        self.path = Path(path).expanduser()
        self._plan: ShardPlan | None = None

    @property
    def name(self) -> str:
        """The folder, for messages."""
        return printable(str(self.path))

    @property
    def is_started(self) -> bool:
        """Whether its files are listed."""
        return self._plan_path.is_file()

    @property
    def plan(self) -> ShardPlan:
        """The settings it is made with."""
        if self._plan is None:
            if not self.is_started:
                raise PolyglanceError(
                    f"{self.name}: there are no shards here;"
                    f" `polyglance encode FOLDER --out {self.name}` makes them"
                )
            self._plan = self._read_plan()
        return self._plan

    def start(self, plan: ShardPlan, files: Iterable[ListedFile]) -> ShardPlan:
        """Divide files into shards; return the plan, which may be that of a concurrent run."""
        if self.path.exists() and not self._is_unused() and not self.is_started:
            raise PolyglanceError(
                f"{self.name} contains other files: give a new or an empty folder"
            )
        folder = self._new_list_folder()
        try:
            shards, count, remaining = 0, 0, iter(files)
            while block := list(islice(remaining, plan.shard_size)):
                self._write(folder / _shard_name(shards), _file_list_table(block))
                shards, count = shards + 1, count + len(block)
            complete = ShardPlan(**{**asdict(plan), "shards": shards, "files": count})
            with _atomic_write(folder / _PLAN) as partial:
                text = json.dumps(asdict(complete), indent=2, ensure_ascii=False)
                partial.write_text(text + "\n")
            self._publish_list(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._plan = None
        return self.plan

    def pending(self) -> list[int]:
        """Return the numbers of the shards that do not exist yet."""
        folder = self.path / "shards"
        present = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        numbers = range(self.plan.shards)
        return [number for number in numbers if _shard_name(number) not in present]

    def has_shard(self, number: int) -> bool:
        """Return whether a shard exists."""
        return self._shard_path("shards", number).exists()

    def listed_files(self, number: int) -> list[ListedFile]:
        """Return the files of a shard, ordered by path."""
        rows = self._read(self._shard_path("files", number)).to_pylist()
        return [_listed_file(row) for row in rows]

    def write_shard(self, number: int, files: Sequence[EncodedFile]) -> None:
        """Write the encoded files of a shard."""
        self._write(self._shard_path("shards", number), _shard_table(files, self.plan))

    def read_shard(self, number: int) -> list[EncodedFile]:
        """Read the encoded files of a shard."""
        path = self._shard_path("shards", number)
        table = self._read(path)
        metadata = (table.schema.metadata or {}).get(b"polyglance", b"{}")
        try:
            if json.loads(metadata).get("fingerprint") != self.plan.fingerprint:
                raise DataError(
                    f"{printable(str(path))}: belongs to another folder or model: move it away"
                )
            return _encoded_files(table, self.plan.width)
        except _NO_SHARD as error:  # another program wrote it
            raise DataError(
                f"{printable(str(path))}: is not a shard of this plan: move it away, and encode"
                " again"
            ) from error

    def remove_partial_files(self) -> None:
        """Delete what killed processes left half written."""
        for partial in self.path.glob("shards/*.partial"):
            partial.unlink(missing_ok=True)
        for folder in self.path.glob("files.*.partial"):
            shutil.rmtree(folder, ignore_errors=True)

    def new_model_info(self) -> ModelInfo:
        """Return the model information of a new library that imports the shards."""
        plan, library = self.plan, uuid.uuid4().hex
        return ModelInfo(plan.model, plan.source, plan.fingerprint, plan.width, library)

    @property
    def _plan_path(self) -> Path:
        return self.path / "files" / _PLAN

    def _shard_path(self, part: str, number: int) -> Path:
        return self.path / part / _shard_name(number)

    def _is_unused(self) -> bool:
        """Return whether the folder holds nothing but lists that runs are making or left."""
        return self.path.is_dir() and all(
            entry.name.startswith("files.") and entry.suffix == ".partial"
            for entry in self.path.iterdir()
        )

    def _new_list_folder(self) -> Path:
        """Create a folder for a list of files that no other run writes to."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self.path, prefix="files.", suffix=".partial"))
            folder.chmod(0o755)  # for workers of another user
            return folder
        except OSError as error:
            raise PolyglanceError(
                f"{self.name}: cannot be written ({error_reason(error)})"
            ) from error

    def _publish_list(self, folder: Path) -> None:
        """Make a list of files the one in use, unless there is one already."""
        try:
            folder.rename(self.path / "files")
        except OSError as error:
            if not self.is_started:
                raise PolyglanceError(
                    f"{self.name}: cannot be written ({error_reason(error)}): give a new folder"
                ) from error

    def _read_plan(self) -> ShardPlan:
        path = self._plan_path
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] <= FORMAT:
                tuples = {name: tuple(values[name]) for name in ("places", "roots")}
                plan = ShardPlan(**{**values, **tuples})
                _check_plan(plan)
                return plan
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{printable(str(path))}: is damaged ({error_reason(error)}): encode into a new"
                " folder"
            ) from error
        raise DataError(
            f"{self.name} was made by a newer version of Polyglance: pip install --upgrade"
            " polyglance"
        )

    def _write(self, path: Path, table: pa.Table) -> None:
        parquet = _import_parquet()
        with _atomic_write(path) as partial:
            parquet.write_table(table, partial, compression="zstd", write_page_checksum=True)

    def _read(self, path: Path) -> pa.Table:
        try:
            return _import_parquet().read_table(
                path, partitioning=None, page_checksum_verification=True
            )
        except FileNotFoundError as error:
            raise PolyglanceError(f"{printable(str(path))}: does not exist") from error
        except (OSError, ValueError) as error:  # pyarrow's own errors are one or the other
            raise DataError(
                f"{printable(str(path))}: is damaged: move it away, and encode again"
            ) from error


def import_pyarrow() -> Any:
    """Import PyArrow, or say how to install it."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingExtraError("encoding in bulk", "ray") from error
    return pyarrow


def _import_parquet() -> Any:
    import_pyarrow()
    import pyarrow.parquet

    return pyarrow.parquet


@contextmanager
def _atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces ``path`` at the end; several runs may do so at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".partial")
        os.close(handle)
        partial = Path(name)
        try:
            yield partial
            try:
                partial.chmod(0o644)
                with partial.open("rb") as written:
                    os.fsync(written.fileno())
                os.replace(partial, path)
            except FileNotFoundError:  # another run wrote it meanwhile, and removed partial files
                if not path.exists():
                    raise
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(path))}: cannot be written ({error_reason(error)})"
        ) from error


def _shard_name(number: int) -> str:
    return f"{number:06}.parquet"


def _file_list_table(files: Sequence[ListedFile]) -> pa.Table:
    pa = import_pyarrow()
    schema = pa.schema(
        [("path", pa.string()), ("kind", pa.string()), ("size", pa.int64()),
         ("mtime_ns", pa.int64()), ("reason", pa.string())]
    )  # fmt: skip
    rows = [
        {"path": file.path, "kind": file.kind, **file.signature._asdict()}
        if isinstance(file, ScannedFile)
        else {"path": printable(file.path), "reason": file.reason}
        for file in files
    ]
    return pa.Table.from_pylist(rows, schema)


def _listed_file(row: dict[str, Any]) -> ListedFile:
    if row["reason"] is not None:
        return BadFile(row["path"], row["reason"])
    return ScannedFile(row["path"], row["kind"], FileSignature(row["size"], row["mtime_ns"]))


def _shard_table(files: Sequence[EncodedFile], plan: ShardPlan) -> pa.Table:
    """Convert to a row per file; vectors are concatenated in one array."""
    pa = import_pyarrow()
    rows = [_row_without_vectors(file) for file in files]
    entries = [file if isinstance(file, Entry) else None for file in files]
    counts = [len(entry.vectors) if entry else 0 for entry in entries]
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    blocks = [entry.vectors.astype(np.float16) for entry in entries if entry]
    flat = np.concatenate([np.zeros((0, plan.width), np.float16), *blocks])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), plan.width)
    schema = pa.schema(
        [("path", pa.string()), ("kind", pa.string()), ("size", pa.int64()),
         ("mtime_ns", pa.int64()), ("content", pa.string()), ("taken", pa.string()),
         ("width", pa.int32()), ("height", pa.int32()), ("seconds", pa.float64()),
         ("spans", pa.list_(pa.list_(pa.float64(), 2))), ("thumbnail", pa.binary()),
         ("reason", pa.string()), ("latitude", pa.float64()), ("longitude", pa.float64()),
         ("camera", pa.string())]
    )  # fmt: skip
    table = pa.Table.from_pylist(rows, schema)
    table = table.append_column("vectors", pa.ListArray.from_arrays(offsets, vectors))
    metadata = {"format": FORMAT, "model": plan.model, "fingerprint": plan.fingerprint}
    return table.replace_schema_metadata({"polyglance": json.dumps(metadata)})


def _row_without_vectors(file: EncodedFile) -> dict[str, Any]:
    if isinstance(file, BadFile):
        signature = file.signature._asdict() if file.signature else {}
        return {"path": file.path, **signature, "reason": file.reason}
    item = dict(zip(ITEM_FIELDS, item_to_row(file.item), strict=True))
    details = serialization.details_to_fields(file.details)
    return {**item, **details, "spans": file.spans, "thumbnail": file.thumbnail}


def _check_plan(plan: ShardPlan) -> None:
    """Raise a `ValueError` for values that no plan of ours has."""
    texts = (plan.model, plan.source, plan.fingerprint, *plan.places, *plan.roots)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("not a text")
    if not all(Path(path).is_absolute() for path in plan.places):
        raise ValueError("a path is not absolute")
    numbers = (plan.width, plan.shard_size, plan.shards, plan.files)
    if not all(isinstance(number, int) and 0 <= number < 1 << 40 for number in numbers):
        raise ValueError("not a count")


def _check_item(item: Item, vectors: int, spans: int) -> None:
    """Raise a `ValueError` for an item that no library could hold."""
    texts = (item.path, item.content_hash, item.taken)
    numbers = (*item.signature, item.width, item.height)
    if not all(isinstance(text, str) for text in texts) or item.kind not in ("picture", "clip"):
        raise ValueError("not a text")
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError("not a number")
    if not Path(item.path).is_absolute() or vectors != (spans or 1):
        raise ValueError("not an item")


def _encoded_files(table: pa.Table, width: int) -> list[EncodedFile]:
    column = table.column("vectors").combine_chunks()
    offsets = column.offsets.to_numpy()
    flat = column.values.values.to_numpy(zero_copy_only=False).reshape(-1, width)
    files: list[EncodedFile] = []
    for number, row in enumerate(table.drop_columns(["vectors"]).to_pylist()):
        if row["reason"] is not None:
            signature = FileSignature(row["size"], row["mtime_ns"])
            known = signature if signature.size is not None else None
            files.append(BadFile(row["path"], row["reason"], known))
            continue
        item = item_from_row([row[name] for name in ITEM_FIELDS])
        vectors = flat[offsets[number] : offsets[number + 1]].astype(np.float32)
        spans = tuple((start, stop) for start, stop in row["spans"])
        _check_item(item, len(vectors), len(spans))
        details = serialization.details_from_fields(row)
        files.append(Entry(item, vectors, spans, row["thumbnail"], details))
    return files

"""Encoded pictures and clips in files, on their way into a library.

A folder of shards is made by `polyglance encode` and read by `polyglance library import`:

    files/plan.json        which model, which folders, how many shards
    files/000012.parquet   the files of shard 12, as they were found
    shards/000012.parquet  what became of them: there when it is whole, else not there

The list of files is made once: under a name of its own, and it becomes ``files`` by one
rename, so of several runs that begin together one wins. A shard then is the same files in
every run and on every machine, and a run that was killed goes on with the shards that are
missing. A row of a shard is a file: an item with its vectors in float16, as a library keeps
them, or the reason why there is none. All are Parquet with checksums, which other programs
read too.
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

from polyglance.errors import DataError, MissingExtra, PolyglanceError, printable, reason
from polyglance.search.store import BadFile, Entry, Item, Manifest, Stamp
from polyglance.search.walking import Candidate

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
"""Of the folder; raised when older code could not read a newer one."""
SHARD = 1024
"""Files of a shard: what a kill costs each worker at most, a minute of one core."""
_PLAN = "plan.json"

Listed: TypeAlias = Candidate | BadFile
Done: TypeAlias = Entry | BadFile


@dataclass(frozen=True, slots=True)
class Plan:
    """What a folder of shards is made of."""

    model: str
    source: str
    """What opens the model again: its name, or its folder."""
    fingerprint: str
    width: int
    thumbnails: bool
    places: tuple[str, ...]
    """Folders, files and manifests that the files were found in."""
    roots: tuple[str, ...]
    """Folders that are empty or missing where a disk is not mounted."""
    shard_size: int
    shards: int = 0
    files: int = 0
    format: int = FORMAT

    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to go on with another's shards."""
        counted = ("model", "source", "roots", "shards", "files")
        return {name: value for name, value in asdict(self).items() if name not in counted}


class ShardFolder:
    """A folder of shards."""

    def __init__(self, path: str | Path) -> None:
        """Name a folder; whether it is one is seen when the `plan` is read."""
        self.path = Path(path).expanduser()
        self._plan: Plan | None = None

    @property
    def name(self) -> str:
        """The folder as it is told."""
        return printable(str(self.path))

    @property
    def begun(self) -> bool:
        """Whether its files are listed."""
        return self._written_plan.is_file()

    @property
    def plan(self) -> Plan:
        """What it is made of."""
        if self._plan is None:
            if not self.begun:
                raise PolyglanceError(
                    f"{self.name}: there are no shards here;"
                    f" `polyglance encode FOLDER --out {self.name}` makes them"
                )
            self._plan = self._read_plan()
        return self._plan

    def begin(self, plan: Plan, files: Iterable[Listed]) -> Plan:
        """List the files in shards; the plan, which may be that of another run that was quicker."""
        if self.path.exists() and not self._is_free() and not self.begun:
            raise PolyglanceError(f"{self.name} holds other files: give a new or an empty folder")
        listing = self._new_listing()
        try:
            shards, count, waiting = 0, 0, iter(files)
            while some := list(islice(waiting, plan.shard_size)):
                self._write(listing / _named(shards), _listing(some))
                shards, count = shards + 1, count + len(some)
            whole = Plan(**{**asdict(plan), "shards": shards, "files": count})
            with _whole(listing / _PLAN) as beside:
                beside.write_text(json.dumps(asdict(whole), indent=2, ensure_ascii=False) + "\n")
            self._take_for_files(listing)
        finally:
            shutil.rmtree(listing, ignore_errors=True)
        self._plan = None
        return self.plan

    def pending(self) -> list[int]:
        """The numbers of the shards that are not there yet."""
        folder = self.path / "shards"
        there = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        numbers = range(self.plan.shards)
        return [number for number in numbers if self._place("shards", number).name not in there]

    def has(self, number: int) -> bool:
        """Whether a shard is there."""
        return self._place("shards", number).exists()

    def files(self, number: int) -> list[Listed]:
        """The files of a shard, in the order of their names."""
        return [_listed(row) for row in self._read(self._place("files", number)).to_pylist()]

    def write(self, number: int, done: Sequence[Done]) -> None:
        """Keep what became of a shard's files."""
        self._write(self._place("shards", number), _shard(done, self.plan))

    def read(self, number: int) -> list[Done]:
        """What became of a shard's files."""
        place = self._place("shards", number)
        table = self._read(place)
        notes = (table.schema.metadata or {}).get(b"polyglance", b"{}")
        if json.loads(notes).get("fingerprint") != self.plan.fingerprint:
            raise DataError(f"{place}: is a shard of another folder or model: delete it")
        return _done(table, self.plan.width)

    def tidy(self) -> None:
        """Delete what killed processes left half written."""
        for partial in self.path.glob("shards/*.partial"):
            partial.unlink(missing_ok=True)
        for listing in self.path.glob("files.*.partial"):
            shutil.rmtree(listing, ignore_errors=True)

    def manifest(self) -> Manifest:
        """Of a new library that takes the shards in."""
        plan, library = self.plan, uuid.uuid4().hex
        return Manifest(plan.model, plan.source, plan.fingerprint, plan.width, library)

    @property
    def _written_plan(self) -> Path:
        return self.path / "files" / _PLAN

    def _place(self, part: str, number: int) -> Path:
        return self.path / part / _named(number)

    def _is_free(self) -> bool:
        """Whether there is nothing, or another run that lists or was killed when it did."""
        return self.path.is_dir() and all(
            entry.name.startswith("files.") and entry.suffix == ".partial"
            for entry in self.path.iterdir()
        )

    def _new_listing(self) -> Path:
        """A folder for a list of files that no other run writes to."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            listing = Path(tempfile.mkdtemp(dir=self.path, prefix="files.", suffix=".partial"))
            listing.chmod(0o755)  # for workers that are somebody else
            return listing
        except OSError as error:
            raise PolyglanceError(f"{self.name}: cannot be written ({reason(error)})") from error

    def _take_for_files(self, listing: Path) -> None:
        """Make a list the one that counts, unless there is one."""
        try:
            listing.rename(self.path / "files")
        except OSError as error:
            if not self.begun:
                raise PolyglanceError(
                    f"{self.name}: cannot be written ({reason(error)}): give a new folder"
                ) from error

    def _read_plan(self) -> Plan:
        place = self._written_plan
        try:
            plain = json.loads(place.read_text(encoding="utf-8"))
            if plain["format"] <= FORMAT:
                lists = {name: tuple(plain[name]) for name in ("places", "roots")}
                return Plan(**{**plain, **lists})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{printable(str(place))}: is damaged ({reason(error)}): encode into a new folder"
            ) from error
        raise DataError(
            f"{self.name} was made by a newer Polyglance: pip install --upgrade polyglance"
        )

    def _write(self, place: Path, table: pa.Table) -> None:
        parquet = _parquet()
        with _whole(place) as beside:
            parquet.write_table(table, beside, compression="zstd", write_page_checksum=True)

    def _read(self, place: Path) -> pa.Table:
        try:
            return _parquet().read_table(place, partitioning=None, page_checksum_verification=True)
        except FileNotFoundError as error:
            raise PolyglanceError(f"{printable(str(place))}: is not there") from error
        except (OSError, ValueError) as error:  # pyarrow's own are one or the other
            raise DataError(
                f"{printable(str(place))}: is damaged: delete it and encode again"
            ) from error


def arrow() -> Any:
    """PyArrow."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingExtra("encoding in bulk", "ray") from error
    return pyarrow


def _parquet() -> Any:
    arrow()
    import pyarrow.parquet

    return pyarrow.parquet


@contextmanager
def _whole(place: Path) -> Iterator[Path]:
    """A file to write that takes its place when it is whole; others may do the same meanwhile."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=place.parent, prefix=f"{place.name}.", suffix=".partial"
        )
        os.close(handle)
        beside = Path(name)
        try:
            yield beside
            try:
                beside.chmod(0o644)
                with beside.open("rb") as written:
                    os.fsync(written.fileno())
                os.replace(beside, place)
            except FileNotFoundError:  # another run made it meanwhile, and tidied up
                if not place.exists():
                    raise
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(place))}: cannot be written ({reason(error)})"
        ) from error


def _named(number: int) -> str:
    return f"{number:06}.parquet"


def _listing(files: Sequence[Listed]) -> pa.Table:
    pa = arrow()
    schema = pa.schema(
        [("path", pa.string()), ("kind", pa.string()), ("size", pa.int64()),
         ("mtime_ns", pa.int64()), ("reason", pa.string())]
    )  # fmt: skip
    rows = [
        {"path": file.path, "kind": file.kind, **asdict(file.stamp)}
        if isinstance(file, Candidate)
        else {"path": printable(file.path), "reason": file.reason}
        for file in files
    ]
    return pa.Table.from_pylist(rows, schema)


def _listed(row: dict[str, Any]) -> Listed:
    if row["reason"] is not None:
        return BadFile(row["path"], row["reason"])
    return Candidate(row["path"], row["kind"], Stamp(row["size"], row["mtime_ns"]))


def _shard(done: Sequence[Done], plan: Plan) -> pa.Table:
    """A row for each file; vectors lie end to end in one array."""
    pa = arrow()
    plain = [_plain(one) for one in done]
    entries = [one if isinstance(one, Entry) else None for one in done]
    counts = [len(entry.vectors) if entry else 0 for entry in entries]
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    rows = [entry.vectors.astype(np.float16) for entry in entries if entry]
    flat = np.concatenate([np.zeros((0, plan.width), np.float16), *rows])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), plan.width)
    schema = pa.schema(
        [("path", pa.string()), ("kind", pa.string()), ("size", pa.int64()),
         ("mtime_ns", pa.int64()), ("content", pa.string()), ("taken", pa.string()),
         ("width", pa.int32()), ("height", pa.int32()), ("seconds", pa.float64()),
         ("spans", pa.list_(pa.list_(pa.float64(), 2))), ("thumbnail", pa.binary()),
         ("reason", pa.string())]
    )  # fmt: skip
    table = pa.Table.from_pylist(plain, schema)
    table = table.append_column("vectors", pa.ListArray.from_arrays(offsets, vectors))
    notes = {"format": FORMAT, "model": plan.model, "fingerprint": plan.fingerprint}
    return table.replace_schema_metadata({"polyglance": json.dumps(notes)})


def _plain(one: Done) -> dict[str, Any]:
    """All of a row but its vectors."""
    if isinstance(one, BadFile):
        stamp = asdict(one.stamp) if one.stamp else {}
        return {"path": one.path, **stamp, "reason": one.reason}
    item = asdict(one.item)
    return {**item, **item.pop("stamp"), "spans": one.spans, "thumbnail": one.thumbnail}


def _done(table: pa.Table, width: int) -> list[Done]:
    column = table.column("vectors").combine_chunks()
    offsets = column.offsets.to_numpy()
    flat = column.values.values.to_numpy(zero_copy_only=False).reshape(-1, width)
    done: list[Done] = []
    for number, row in enumerate(table.drop_columns(["vectors"]).to_pylist()):
        why, small, spans = row.pop("reason"), row.pop("thumbnail"), row.pop("spans")
        stamp = Stamp(row.pop("size"), row.pop("mtime_ns"))
        if why is not None:
            done.append(BadFile(row["path"], why, stamp if stamp.size is not None else None))
            continue
        vectors = flat[offsets[number] : offsets[number + 1]].astype(np.float32)
        entry_spans = tuple((start, stop) for start, stop in spans)
        done.append(Entry(Item(stamp=stamp, **row), vectors, entry_spans, small))
    return done

"""Records that stay on disk until they are drawn, for manifests of millions of images or videos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from polyglance.errors import DataError
from polyglance.records import Record, parse_json, read_manifest


class LazyRecords(Sequence[Record]):
    """Selected records of a manifest by number; only their file offsets are in memory."""

    def __init__(self, path: Path, select: Callable[[Record], bool]) -> None:
        self.path = path
        offsets: list[int] = []
        offset = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and select(self._parse(line, number)):
                    offsets.append(offset)
                offset += len(line)
        self.offsets = np.array(offsets, np.int64)

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, item: int) -> Record: ...
    @overload
    def __getitem__(self, item: slice) -> list[Record]: ...
    def __getitem__(self, item: int | slice) -> Record | list[Record]:
        """Read a record, or a list of them."""
        if isinstance(item, slice):
            return [self[number] for number in range(*item.indices(len(self)))]
        with self.path.open("rb") as lines:
            lines.seek(int(self.offsets[item]))
            return self._parse(lines.readline(), item)

    def __iter__(self) -> Iterator[Record]:
        """Read all records in one pass."""
        with self.path.open("rb") as lines:
            for number, offset in enumerate(self.offsets.tolist()):
                lines.seek(offset)
                yield self._parse(lines.readline(), number)

    def _parse(self, line: bytes, number: int) -> Record:
        try:
            return Record.from_json(parse_json(line.removeprefix(b"\xef\xbb\xbf")))
        except ValueError as error:
            raise DataError(f"{self.path}:{number}: expected {error}") from error


def select_records(path: Path, select: Callable[[Record], bool]) -> Sequence[Record]:
    """Return a manifest's selected records: from disk, or in memory where it is compressed."""
    if path.suffix == ".gz" or not path.is_file():  # read_manifest reports a missing file
        return [record for record in read_manifest(path) if select(record)]
    return LazyRecords(path, select)

"""Records that stay on disk until they are asked for, as those of millions of videos must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from polyglance.errors import DataError
from polyglance.records import Record, parse_json, read_manifest


class RecordsOnDisk(Sequence[Record]):
    """Some records of a manifest, by number; only where each begins is kept in memory."""

    def __init__(self, path: Path, keep: Callable[[Record], bool]) -> None:
        self.path = path
        places: list[int] = []
        place = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and keep(self._parse(line, number)):
                    places.append(place)
                place += len(line)
        self.places = np.array(places, np.int64)

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, item: int) -> Record: ...
    @overload
    def __getitem__(self, item: slice) -> list[Record]: ...
    def __getitem__(self, item: int | slice) -> Record | list[Record]:
        """One record (or a list of them), read now."""
        if isinstance(item, slice):
            return [self[number] for number in range(*item.indices(len(self)))]
        with self.path.open("rb") as lines:
            lines.seek(int(self.places[item]))
            return self._parse(lines.readline(), item)

    def _parse(self, line: bytes, number: int) -> Record:
        try:
            return Record.from_json(parse_json(line.removeprefix(b"\xef\xbb\xbf")))
        except ValueError as error:
            raise DataError(f"{self.path}:{number}: expected {error}") from error


def some_records(path: Path, keep: Callable[[Record], bool]) -> Sequence[Record]:
    """The records of a manifest that are to be kept: on disk, or in memory where it is zipped."""
    if path.suffix == ".gz" or not path.is_file():  # what is missing is an error over there
        return [record for record in read_manifest(path) if keep(record)]
    return RecordsOnDisk(path, keep)

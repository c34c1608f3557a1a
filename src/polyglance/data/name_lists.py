"""Lists of clips or images that a published test uses: a part of a dataset's own split."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from polyglance.data.readers.csv_files import rows
from polyglance.errors import DataError, Problems, error_reason
from polyglance.records import Record, read_lines


class NameList:
    """Names of clips or images; a record is on the list by its key, id, file name or stem."""

    def __init__(self, path: Path, names: frozenset[str]) -> None:
        """``path`` is where the names were read from."""
        self.path, self.names = path, names

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, record: Record) -> bool:
        path = PurePosixPath(record.image or record.video or "")
        return not self.names.isdisjoint((record.key, str(path), path.name, path.stem))


def read_name_list(path: str | Path) -> NameList:
    """Read a list: names one a line, an ``.npy`` array of names, or a ``.csv`` with ``video_id``.

    The halves of VATEX's validation set (Chen et al. 2020) are published as ``.npy``, the
    test clips of MSR-VTT (Yu et al. 2018) as ``.csv``.
    """
    path = Path(path)
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            if array.dtype.kind not in "US":
                raise ValueError(f"expected names, found {array.dtype}")
            names = {str(name) for name in np.atleast_1d(array).astype(str).ravel()}
        elif path.suffix == ".csv":
            problems = Problems(strict=True)
            names = {row["video_id"].strip() for _, row in rows(path, ("video_id",), problems)}
        else:
            names = {line.strip() for _, line in read_lines(path, Problems(strict=True))}
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path}: cannot be read as a list of names ({error_reason(error)}): give a text file"
            " with one name a line, an .npy array of names, or a .csv with a column video_id"
        ) from error
    names.discard("")
    if not names:
        raise DataError(f"{path}: names nothing")
    return NameList(path, frozenset(names))

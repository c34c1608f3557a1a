"""Parquet files of the Hugging Face hub: rows of a picture inside the file and its captions.

``data/train-00000-of-00003.parquet`` ... hold a column ``image`` with the bytes of a picture file
and perhaps its name, as ``datasets`` writes it, and the columns that
`polyglance.data.readers.hub_columns` lists. `polyglance data import` writes the pictures to a
folder: row 7 of the file above becomes ``train-00000-of-00003/0000007.jpg``. Rows without a picture
are sentences and their translations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from polyglance.data.readers.base import ReadOptions
from polyglance.data.readers.hub_columns import is_used, make_record
from polyglance.data.readers.validation import reporting
from polyglance.errors import DataError, MissingExtraError, PolyglanceError, Problems, printable
from polyglance.errors import error_reason as reason
from polyglance.records import Record
from polyglance.vision.pictures import SUFFIXES

_ROWS_AT_A_TIME = 64
_PICTURES = ("image", "img", "picture", "photo", "jpg", "png", "webp")
"""Names of the column of pictures, the likeliest first."""
_SIGNATURES = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
}
"""First bytes of picture files."""


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record for each row, and write its picture if the options name a folder."""
    files = _files(source)
    root = source if source.is_dir() else source.parent
    for file in files:
        where = PurePosixPath(file.relative_to(root).as_posix())
        for number, row in enumerate(table_rows(file, problems)):
            with reporting(problems, file, place=f"row {number}"):
                name, content = _picture(row, f"{file.stem}/{number:07}")
                if content is not None and options.unpack is not None:
                    _write(Path(options.unpack) / str(name), content)
                yield make_record(row, options.path(name) if name else None, where, options)


def table_rows(path: Path, problems: Problems) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a Parquet file; damage is reported, and the rows end there."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("reading Parquet", "parquet") from None
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = [
                name
                for name in names
                if is_used(name) or name in _PICTURES or name.endswith("file_name")
            ]
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=wanted):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError, MemoryError, ValueError) as error:
        what = " ".join(reason(error).split())[:200]
        problems.report(path, None, f"expected a Parquet file ({printable(what)})")


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    found = sorted(path for path in source.glob("**/*.parquet") if path.is_file())
    if not found:
        raise DataError(
            f"{printable(str(source))}: expected a Parquet file, or the folder with several"
        )
    return found


def _picture(row: Mapping[str, Any], place: str) -> tuple[str | None, bytes | None]:
    """Return the name of a row's picture, and its content if it is in the row."""
    value = next((row[name] for name in _PICTURES if row.get(name) is not None), None)
    content, given = value, None
    if isinstance(value, dict):
        content, given = value.get("bytes"), value.get("path")
    elif isinstance(value, str):
        content, given = None, value
    if isinstance(given, str) and content is None:
        return given, None
    if content is None:
        return None, None
    if not isinstance(content, bytes):
        raise ValueError("a picture's bytes or path")
    suffix = PurePosixPath(given).suffix.lower() if isinstance(given, str) else ""
    return place + (suffix if suffix in SUFFIXES else _suffix(content)), content


def _suffix(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return ".webp"
    if content[4:8] == b"ftyp":
        return ".avif" if content[8:11] == b"avi" else ".heic"
    for start, suffix in _SIGNATURES.items():
        if content.startswith(start):
            return suffix
    raise ValueError("the bytes of a picture file")


def _write(path: Path, content: bytes) -> None:
    try:
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(path))}: cannot be written ({reason(error)})"
        ) from error

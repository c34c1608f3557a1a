"""Read JSON and compressed files from others with a limit on what they unpack to.

A few kilobytes of xz or gzip can unpack to gigabytes, and a JSON of a megabyte can be nested
deeper than any stack. All functions raise a `ValueError` whose message says which limit it was.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

MAX_RATIO = 200
"""How many times larger content may become; real captions and vocabularies stay below 30."""
MIN_LIMIT = 64 << 20
"""Bytes that any file may unpack to, however small it is."""
_MAX_ZIP_ENTRIES = 10_000
_XZ_MEMORY = 128 << 20
"""Bytes for the dictionary of xz; its strongest preset takes half of that."""


class UnpackLimitError(ValueError):
    """A compressed file that unpacks to more than `unpack_limit` allows."""


def unpack_limit(size: int) -> int:
    """Return how many bytes a file of ``size`` bytes may unpack to."""
    return max(MIN_LIMIT, MAX_RATIO * size)


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; nesting that exhausts the stack is a `ValueError` as all other errors are."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested thousands deep") from None


def decompress_xz(content: bytes) -> bytes:
    """Return what one xz stream holds, up to `unpack_limit`."""
    limit = unpack_limit(len(content))
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    try:
        data = stream.decompress(content, max_length=limit + 1)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error
    if len(data) > limit:
        raise _limit_error(len(content), limit)
    if not stream.eof:
        raise ValueError("it ends too early")
    if stream.unused_data:
        raise ValueError("more follows after its end")
    return data


def read_gzip(path: Path) -> bytes:
    """Return what a gzip file holds, up to `unpack_limit`."""
    size = path.stat().st_size
    limit = unpack_limit(size)
    with gzip.open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _limit_error(size, limit)
    return data


def check_zip(package: zipfile.ZipFile, size: int) -> None:
    """Raise an error if an archive of ``size`` bytes unpacks to more than `unpack_limit`.

    The sizes that the archive states are the ones that `zipfile` holds to when it unpacks.
    """
    entries = package.infolist()
    if len(entries) > _MAX_ZIP_ENTRIES:
        raise ValueError(f"it has {len(entries):,} entries, more than {_MAX_ZIP_ENTRIES:,}")
    limit = unpack_limit(size)
    if sum(entry.file_size for entry in entries) > limit:
        raise _limit_error(size, limit)


def _limit_error(size: int, limit: int) -> UnpackLimitError:
    return UnpackLimitError(
        f"its {size:,} bytes unpack to more than {limit:,}: unpack it yourself if you trust it"
    )

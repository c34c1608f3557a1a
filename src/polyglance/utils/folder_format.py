"""The version of a folder's format, by which older code refuses what newer code wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyglance.errors import DataError

UPGRADE_HINT = "was made by a newer Polyglance: pip install --upgrade polyglance"


def check_format(plain: Mapping[str, Any], newest: int, folder: str | Path) -> None:
    """Raise an error if a folder has a format that this version does not know.

    Args:
        plain: What the folder's description says; without ``format`` it is of the first one,
            which did not say so.
        newest: The newest format that this version reads.
        folder: For the error.
    """
    format_ = plain.get("format", 1)
    if not isinstance(format_, int) or isinstance(format_, bool) or format_ < 1:
        raise DataError(f"{folder}: its format is {format_!r} and should be a whole number")
    if format_ > newest:
        raise DataError(f"{folder} {UPGRADE_HINT}")

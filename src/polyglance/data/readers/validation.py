"""Validate values from files: return the value, or raise a `ValueError` with the expectation.

Readers validate each entry inside `reporting`, which turns the error into a `Problem` of the
file, so that one bad entry does not stop the rest.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from polyglance.errors import Problems
from polyglance.records import is_valid_text


class reporting:  # noqa: N801 (read as a verb: "with reporting(...)")
    """Report a `ValueError` inside as a problem at a line or a place such as ``images[3]``."""

    __slots__ = ("line", "path", "place", "problems")

    def __init__(
        self, problems: Problems, path: Path, line: int | None = None, place: str = ""
    ) -> None:
        self.problems, self.path, self.line, self.place = problems, path, line, place

    def __enter__(self) -> None:
        pass

    def __exit__(self, error_type: object, error: object, traceback: object) -> bool:
        if not isinstance(error, ValueError):
            return False
        place = f"{self.place}: " if self.place else ""
        self.problems.report(self.path, self.line, f"{place}expected {error}")
        return True


def check_string(value: object, what: str) -> str:
    """Return text unchanged."""
    if not isinstance(value, str) or not is_valid_text(value):
        raise ValueError(f"{what} to be text")
    return value


def check_text(value: object, what: str) -> str:
    """Return non-empty text without surrounding white space."""
    if not (stripped := check_string(value, what).strip()):
        raise ValueError(f"{what} not to be empty")
    return stripped


def check_name(value: object, what: str) -> str:
    """Return text, or an integer as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(check_integer(value, what))
    return check_text(value, what)


def check_number(value: object, what: str) -> float:
    """Return a finite number, also from text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{what} to be a number") from None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{what} to be a number")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ValueError(f"{what} to be a number")
    return result


def check_integer(value: object, what: str) -> int:
    """Return an integer of 0 or more, also from text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{what} to be a whole number")
    return value


def check_span(start: object, end: object, what: str) -> tuple[float, float]:
    """Return a start and an end in seconds, in order."""
    first, last = (
        check_number(start, f"the start of {what}"),
        check_number(end, f"the end of {what}"),
    )
    if not 0 <= first <= last:
        raise ValueError(f"{what} to start before it ends")
    return first, last


def check_list(value: object, what: str) -> list[Any]:
    """Return a JSON list."""
    if not isinstance(value, list):
        raise ValueError(f"{what} to be a list")
    return value


def check_object(value: object, what: str) -> dict[str, Any]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} to be an object")
    return value

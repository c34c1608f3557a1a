"""Read JSON files; whatever is malformed becomes a reported problem."""

from __future__ import annotations

import json
import mmap
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from polyglance.data.readers.validation import check_object, check_text, reporting
from polyglance.errors import Problems, error_reason
from polyglance.records import parse_json
from polyglance.utils.bounded import UnpackLimitError, read_gzip

Kind = TypeVar("Kind", dict[str, Any], list[Any])


def load_json(path: Path, problems: Problems, kind: type[Kind]) -> Kind:
    """Load a JSON object or list from a file, unzipping ``.gz``.

    A file that cannot be read is reported, with the line of the error, and counts as empty.
    """
    try:
        data = read_gzip(path) if path.suffix == ".gz" else path.read_bytes()
        content = data.decode("utf-8-sig")
        document = json.loads(content)
    except (OSError, EOFError, zlib.error, UnpackLimitError) as error:
        problems.report(path, None, f"cannot be read ({error_reason(error)})")
    except UnicodeDecodeError as error:
        problems.report(path, data.count(b"\n", 0, error.start) + 1, "expected UTF-8 text")
    except json.JSONDecodeError as error:
        problems.report(path, error.lineno, f"expected valid JSON ({error.msg})")
    except (ValueError, RecursionError):
        problems.report(path, None, "expected JSON without endless numbers or nesting")
    else:
        if isinstance(document, kind):
            return document
        expected = "a JSON object {...}" if issubclass(kind, dict) else "a JSON list [...]"
        problems.report(path, 1, f"expected {expected}")
    return kind()


def entries(
    path: Path, document: dict[str, Any], key: str, problems: Problems, *, inside: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects in the list under ``key``, each with its place such as ``images[3]``."""
    values = document.get(key)
    if isinstance(values, list):
        yield from objects(path, values, inside + key, problems)
    elif document:
        problems.report(path, None, f"expected a list '{inside}{key}'")


def objects(
    path: Path, values: list[Any], key: str, problems: Problems
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects in a list with their places; other values are reported."""
    for index, value in enumerate(values):
        if isinstance(value, dict):
            yield f"{key}[{index}]", value
        else:
            problems.report(path, None, f"{key}[{index}]: expected an object")


# Strings match as a whole, so that braces inside do not count; possessively, so that an
# unterminated string costs one pass and no memory.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:")

ByteRange = tuple[int, int]


class JsonMembers:
    """The members of one huge JSON object ``{"key": {...}, ...}``, without loading it.

    HowTo100M's ``caption.json`` has more than ten gigabytes. The file is memory-mapped and
    scanned once; a member is parsed only by `load`. (A zipped file is unzipped in memory.)
    """

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self._data: mmap.mmap | bytes = b""
        try:
            with path.open("rb") as file:
                if path.suffix == ".gz":
                    self._data = read_gzip(path)
                elif path.stat().st_size:
                    self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, EOFError, zlib.error, UnpackLimitError) as error:
            problems.report(path, None, f"cannot be read ({error_reason(error)})")

    def byte_ranges(self, problems: Problems) -> Iterator[tuple[str, ByteRange]]:
        """Yield each key with the byte range of its value; report a truncated file and stop."""
        depth, key, start = 0, b"", 0
        for match in _TOKEN.finditer(self._data):
            token = match.group()
            if token in (b"{", b"["):
                if depth == 0 and token == b"[":
                    break
                depth += 1
                if depth == 2:
                    start = match.start()
            elif token in (b"}", b"]"):
                depth -= 1
                if depth == 1:
                    with reporting(problems, self.path, place=_printable_key(key)):
                        name = check_text(parse_json(key), "the key of a member")
                        yield name, (start, match.end())
                    key = b""
                elif depth == 0:
                    self._expect_no(key, problems)
                    return
            elif len(token) == 1:
                break
            elif depth == 1 and _COLON.match(self._data, match.end()):
                self._expect_no(key, problems)
                key = token
        line = 1 if depth == 0 else self._count_lines()
        problems.report(self.path, line, 'expected a whole JSON object {"id": {...}, ...}')

    def load(self, byte_range: ByteRange) -> dict[str, Any]:
        """Parse the object in a byte range; a `ValueError` says what was expected."""
        start, end = byte_range
        return check_object(parse_json(self._data[start:end]), "the member")

    def _expect_no(self, key: bytes, problems: Problems) -> None:
        if key:
            problems.report(self.path, None, f"{_printable_key(key)}: expected an object")

    def _count_lines(self) -> int:
        step = 2**24
        starts = range(0, len(self._data), step)
        return 1 + sum(self._data[start : start + step].count(b"\n") for start in starts)


def _printable_key(key: bytes) -> str:
    return repr(key[1:-1][:20].decode("utf-8", "replace"))

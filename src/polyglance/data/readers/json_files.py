"""Whole files of JSON, read so that nothing but a reported problem comes of bad ones."""

from __future__ import annotations

import gzip
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

Kind = TypeVar("Kind", dict[str, Any], list[Any])


def load_json(path: Path, problems: Problems, kind: type[Kind]) -> Kind:
    """The JSON object or list that a file holds, unzipping ``.gz``.

    What cannot be read is reported, with the line where it stops being JSON,
    and stands for an empty one.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        content = data.decode("utf-8-sig")
        document = json.loads(content)
    except (OSError, EOFError, zlib.error) as error:
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
    """Yield the objects in the list under a key, each with its place such as ``images[3]``."""
    values = document.get(key)
    if isinstance(values, list):
        yield from objects(path, values, inside + key, problems)
    elif document:
        problems.report(path, None, f"expected a list '{inside}{key}'")


def objects(
    path: Path, values: list[Any], key: str, problems: Problems
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects in a list with their places; what is no object is reported."""
    for index, value in enumerate(values):
        if isinstance(value, dict):
            yield f"{key}[{index}]", value
        else:
            problems.report(path, None, f"{key}[{index}]: expected an object")


# Strings are taken whole, so that braces in them do not count; possessively, so that a quote
# that is never closed costs one pass and no memory.
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:")

ByteRange = tuple[int, int]


class JsonMembers:
    """The members of one huge JSON object ``{"key": {...}, ...}``, found without loading it.

    HowTo100M's ``caption.json`` has more than ten gigabytes. The file is mapped
    into memory and walked once, from mark to mark; a member is parsed only when
    it is asked for. (A zipped file has to be unzipped in memory.)
    """

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self._data: mmap.mmap | bytes = b""
        try:
            with path.open("rb") as file:
                if path.suffix == ".gz":
                    self._data = gzip.decompress(file.read())
                elif path.stat().st_size:
                    self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, EOFError, zlib.error) as error:
            problems.report(path, None, f"cannot be read ({error_reason(error)})")

    def byte_ranges(self, problems: Problems) -> Iterator[tuple[str, ByteRange]]:
        """Yield each key with where its value is; where the file breaks off, report it and end."""
        depth, key, start = 0, b"", 0
        for found in _MARK.finditer(self._data):
            mark = found.group()
            if mark in (b"{", b"["):
                if depth == 0 and mark == b"[":
                    break
                depth += 1
                if depth == 2:
                    start = found.start()
            elif mark in (b"}", b"]"):
                depth -= 1
                if depth == 1:
                    with reporting(problems, self.path, place=_shown(key)):
                        name = check_text(parse_json(key), "the key of a member")
                        yield name, (start, found.end())
                    key = b""
                elif depth == 0:
                    self._expect_no(key, problems)
                    return
            elif len(mark) == 1:
                break
            elif depth == 1 and _COLON.match(self._data, found.end()):
                self._expect_no(key, problems)
                key = mark
        where = 1 if depth == 0 else self._count_lines()
        problems.report(self.path, where, 'expected a whole JSON object {"id": {...}, ...}')

    def load(self, place: ByteRange) -> dict[str, Any]:
        """The object at a place; a `ValueError` says what was expected."""
        start, end = place
        return check_object(parse_json(self._data[start:end]), "the member")

    def _expect_no(self, key: bytes, problems: Problems) -> None:
        if key:
            problems.report(self.path, None, f"{_shown(key)}: expected an object")

    def _count_lines(self) -> int:
        step = 2**24
        starts = range(0, len(self._data), step)
        return 1 + sum(self._data[start : start + step].count(b"\n") for start in starts)


def _shown(key: bytes) -> str:
    return repr(key[1:-1][:20].decode("utf-8", "replace"))

"""The errors that users can cause, and lists of malformed input.

Every such error is a `PolyglanceError` whose message is one sentence: the fact and the fix.
The command line prints only that sentence; any other exception is a bug of Polyglance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


class PolyglanceError(Exception):
    """A mistake in the input, the settings or the installation; the message says what to do."""


class DataError(PolyglanceError):
    """A file that does not match its format."""


class MissingExtraError(PolyglanceError):
    """An optional dependency of Polyglance that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'polyglance[{extra}]'")


@dataclass(frozen=True, slots=True)
class Problem:
    """A malformed place in the input, and what was expected there."""

    path: str
    line: int | None
    expected: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.expected}"


@dataclass
class Problems:
    """Collect malformed places, so that one bad line does not stop the rest.

    With ``strict`` the first problem is raised as a `DataError` instead. All problems are
    counted but only the first ``max_items`` are kept, to bound the memory.
    """

    strict: bool = False
    max_items: int = 1000
    items: list[Problem] = field(default_factory=list)
    count: int = 0

    def report(self, path: str | Path, line: int | None, expected: str) -> None:
        """Add one problem; ``expected`` says what should have been there."""
        problem = Problem(printable(str(path)), line, expected)
        if self.strict:
            raise DataError(str(problem))
        self.count += 1
        if len(self.items) < self.max_items:
            self.items.append(problem)

    def __len__(self) -> int:
        return self.count


def printable(text: str) -> str:
    """Escape what a terminal cannot print: control codes in file names, bytes not in UTF-8."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def error_reason(error: Exception) -> str:
    """Return the shortest description that an exception offers."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

"""What Polyglance raises when something the user gave it is wrong.

Every error a user can cause is a `PolyglanceError` whose message is one clear
sentence with the way out. The command line prints that sentence and nothing
else; anything that is not a `PolyglanceError` is our own defect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


class PolyglanceError(Exception):
    """A mistake in the input, the settings or the installation, with the way out."""


class DataError(PolyglanceError):
    """A file that does not hold what its format promises."""


class MissingExtraError(PolyglanceError):  # noqa: N818 (it reads as what it says)
    """A part of Polyglance was asked for that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'polyglance[{extra}]'")


@dataclass(frozen=True, slots=True)
class Problem:
    """One malformed place in the input: where it is and what was expected there."""

    path: str
    line: int | None
    expected: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.expected}"


@dataclass
class Problems:
    """Collects malformed places so that one bad line does not stop the rest.

    With ``strict`` the first problem is raised as a `DataError` instead. All
    are counted, but only the first ``keep`` are kept: a file that is garbage
    from end to end must not fill the memory with complaints.
    """

    strict: bool = False
    max_items: int = 1000
    items: list[Problem] = field(default_factory=list)
    count: int = 0

    def report(self, path: str | Path, line: int | None, expected: str) -> None:
        """Note one problem; ``expected`` says what should have been there."""
        problem = Problem(printable(str(path)), line, expected)
        if self.strict:
            raise DataError(str(problem))
        self.count += 1
        if len(self.items) < self.max_items:
            self.items.append(problem)

    def __len__(self) -> int:
        return self.count


def printable(text: str) -> str:
    """Text that any terminal takes: file names may hold control codes, or bytes not in UTF-8."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def error_reason(error: Exception) -> str:
    """Why the system or an archive could not be read, in as few words as it has."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

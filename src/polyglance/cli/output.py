"""Options, parsing and messages that the commands share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.errors import PolyglanceError, Problems
from polyglance.languages import normalise_language

if TYPE_CHECKING:
    from rich.console import Console

Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress bars.")]


def console() -> Console:
    """Return the terminal."""
    from rich.console import Console

    return Console()


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun: 1 record, 2,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def split_names(text: str | None) -> list[str] | None:
    """Split a comma-separated list; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def parse_language(name: str) -> str:
    """Return the code of a language given by code or name."""
    try:
        return normalise_language(name)
    except ValueError as error:
        raise PolyglanceError(f"expected {error}") from None


def parse_integers(text: str, option: str) -> list[int]:
    """Parse a comma-separated list of integers."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise PolyglanceError(
            f"{option} takes whole numbers separated by commas, not {text!r}"
        ) from None


def shorten(text: str, max_chars: int = 40) -> str:
    """Return a text cut to ``max_chars`` characters, with an ellipsis if it is longer."""
    return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + "…"


def warn_truncated(text: str, max_tokens: int, after: str) -> None:
    """Warn that the model truncates a text."""
    print(
        f"the model reads at most {max_tokens} tokens: {shorten(text)!r} was cut after {after!r}",
        file=sys.stderr,
    )


def print_skipped(problems: Problems, max_named: int = 10) -> None:
    """Print the first skipped entries, and their number."""
    for problem in problems.items[:max_named]:
        print(f"skipped {problem}", file=sys.stderr)
    if len(problems) > max_named:
        print(f"skipped {len(problems) - max_named:,} more", file=sys.stderr)
    if problems.items:
        print(f"{len(problems):,} malformed entries were skipped in total", file=sys.stderr)


def print_bad_files(bad: dict[str, str], max_named: int = 10) -> None:
    """Print the first unreadable files, and the number of the others."""
    for key, reason in list(bad.items())[:max_named]:
        print(f"skipped {key}: {reason}", file=sys.stderr)
    if len(bad) > max_named:
        print(f"skipped {len(bad) - max_named:,} more: see bad.txt in the store", file=sys.stderr)

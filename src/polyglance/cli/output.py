"""What verbs of the command line share: options, and telling what was skipped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.errors import PolyglanceError, Problems
from polyglance.languages import normalise_language

if TYPE_CHECKING:
    from rich.console import Console

Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def console() -> Console:
    """The terminal."""
    from rich.console import Console

    return Console()


def counted(number: int, thing: str) -> str:
    """How many things there are: 1 record, 2,000 records."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def names(text: str | None) -> list[str] | None:
    """Names with commas between them; None where the option was not given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def language_code(name: str) -> str:
    """The code of a language that was given by code or by name."""
    try:
        return normalise_language(name)
    except ValueError as error:
        raise PolyglanceError(f"expected {error}") from None


def whole_numbers(text: str, option: str) -> list[int]:
    """Numbers with commas between them."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise PolyglanceError(f"{option} takes whole numbers with commas, not {text!r}") from None


def shortened(text: str, most: int = 40) -> str:
    """The beginning of a text that is too long to be told."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def tell_cut(text: str, longest: int, after: str) -> None:
    """Say that a model does not read all of a text."""
    print(
        f"the model reads {longest} sub-words at most: {shortened(text)!r} was cut after {after!r}",
        file=sys.stderr,
    )


def tell(problems: Problems, most: int = 10) -> None:
    """Name the malformed places that were skipped, and count them."""
    for problem in problems.items[:most]:
        print(f"skipped {problem}", file=sys.stderr)
    if len(problems) > most:
        print(f"skipped {len(problems) - most:,} more", file=sys.stderr)
    if problems.items:
        print(f"{len(problems):,} malformed entries were skipped in all", file=sys.stderr)


def tell_bad(bad: dict[str, str], most: int = 10) -> None:
    """Name the files that could not be read, and count them."""
    for key, reason in list(bad.items())[:most]:
        print(f"skipped {key}: {reason}", file=sys.stderr)
    if len(bad) > most:
        print(f"skipped {len(bad) - most:,} more: see bad.txt in the store", file=sys.stderr)

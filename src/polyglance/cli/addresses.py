"""Addresses of databases on the command line, where a password must not be."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

import typer

from polyglance.cli.completion import complete_library
from polyglance.errors import PolyglanceError

_SCHEMES = ("postgresql://", "postgres://")


def refuse_password(place: str | None) -> str | None:
    """Return a library's place; raise an error if it is an address with a password.

    Other users see a command line in the list of processes, as long as the command runs.
    """
    if place is not None and place.startswith(_SCHEMES) and _has_password(place):
        raise PolyglanceError(
            "a password on the command line shows in the list of processes: leave it out and keep"
            " it in ~/.pgpass, in the file that $PGPASSFILE names or in $PGPASSWORD, or put the"
            " whole address into $POLYGLANCE_LIBRARY"
        )
    return place


def refuse_passwords(places: list[str]) -> list[str]:
    """Apply `refuse_password` to each place."""
    for place in places:
        refuse_password(place)
    return places


def _has_password(address: str) -> bool:
    rest, _, query = address.partition("://")[2].partition("?")
    # Up to the last @, should one in the password not be escaped.
    user, at, _ = rest.rpartition("@")
    if at and user.partition(":")[2]:
        return True
    return any("password" in key.lower() and value for key, value in parse_qsl(query))


LibraryOption = Annotated[
    str | None,
    typer.Option(
        "--library",
        "-l",
        metavar="PLACE",
        callback=refuse_password,
        autocompletion=complete_library,
        help="Library file or postgresql://...; default: $POLYGLANCE_LIBRARY or your default one.",
    ),
]

"""The command line: one verb, one function call. Whatever a verb needs is imported when it runs."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True)


def main() -> None:
    """Run the command line."""
    app()

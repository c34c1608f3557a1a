"""``polyglance serve``: a library in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from polyglance.cli.index import LibraryOption


def serve(
    library: LibraryOption = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; elsewhere than on this machine with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8017,
    token: Annotated[
        str | None,
        typer.Option(envvar="POLYGLANCE_TOKEN", help="What everybody must know to come in."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Cores of the model; default: all.")
    ] = None,
) -> None:
    """Search a library in the browser, and by programs over HTTP."""
    from polyglance.search.library import Library
    from polyglance.serve.running import serve

    with Library(library, threads=threads) as opened:
        serve(opened, host=host, port=port, token=token)

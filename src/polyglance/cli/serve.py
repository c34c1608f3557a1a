"""``polyglance serve``: a library in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.index import LibraryOption
from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    from polyglance.cross_encoders.explain import Explainer
    from polyglance.cross_encoders.vqa import Answerer


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
    reranker: Annotated[
        Path | None, typer.Option(help="A trained UC2 or M3P that reads the best hits again.")
    ] = None,
    explainer: Annotated[
        Path | None, typer.Option(help="A trained UC2 or M3P that shows why something was found.")
    ] = None,
    answerer: Annotated[
        Path | None, typer.Option(help="RUN/model of the recipe vqa, to ask pictures questions.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Cores of the models; default: all.")
    ] = None,
) -> None:
    """Search a library in the browser, and by programs over HTTP."""
    from polyglance.search.library import Library
    from polyglance.serve.server import serve

    if threads and (reranker or explainer or answerer):
        import torch

        torch.set_num_threads(threads)
    with Library(library, reranker=reranker, threads=threads) as opened:
        serve(
            opened,
            host=host,
            port=port,
            token=token,
            explainer=_explainer(explainer) if explainer else None,
            answerer=_answerer(answerer) if answerer else None,
        )


def _explainer(folder: Path) -> Explainer:
    from polyglance.cross_encoders.explain import Explainer

    opened = Explainer.open(folder)
    if opened.answerer is not None:
        raise PolyglanceError(
            f"{folder} answers questions, and says nothing of hits: give a run of UC2 or M3P as"
            " --explainer, and this as --answerer"
        )
    return opened


def _answerer(folder: Path) -> Answerer:
    from polyglance.cross_encoders.vqa import Answerer

    return Answerer.open(folder)

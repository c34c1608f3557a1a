"""``polyglance serve``: search a library in the browser."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.completion import complete_model
from polyglance.cli.index import LibraryOption
from polyglance.errors import PolyglanceError, printable

if TYPE_CHECKING:
    from polyglance.cross_encoders.explain import Explainer
    from polyglance.cross_encoders.vqa import VQA
    from polyglance.search.library import Library


def serve(
    library: LibraryOption = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; others than this machine need an access token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8017,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="POLYGLANCE_TOKEN",
            help="Access token; others on this machine see it in the list of processes.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the access token.", dir_okay=False)
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            help="Address that browsers use behind a proxy, such as https://pictures.example."
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy whose X-Forwarded-For and -Proto are believed"
            " (repeatable)."
        ),
    ] = None,
    trust_folder: Annotated[
        list[Path] | None,
        typer.Option(help="Also serve files of this folder, this time; repeatable."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_model,
            help="The library's model, if it has moved, or one with the same vectors of pictures.",
        ),
    ] = None,
    cross_encoder: Annotated[
        Path | None,
        typer.Option(
            help="UC2 or M3P that re-ranks and explains hits; default: the model's reader, to"
            " explain."
        ),
    ] = None,
    rerank: Annotated[
        bool | None,
        typer.Option(
            "--rerank/--no-rerank",
            help="Re-rank hits with the cross-encoder or reader, or only explain them.",
        ),
    ] = None,
    answerer: Annotated[
        Path | None,
        typer.Option(
            help="A trained vqa model, RUN/model, that answers questions about hits; default: the"
            " model's reader."
        ),
    ] = None,
    manage: Annotated[
        bool,
        typer.Option(
            help="Let the page add and remove folders, on this machine; never where others can"
            " reach the server."
        ),
    ] = True,
    watch: Annotated[
        bool,
        typer.Option(help="Index new files of the library's folders, where the page can add some."),
    ] = True,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of the models; default: all cores.")
    ] = None,
) -> None:
    """Serve a library: a search page for the browser, and an HTTP API."""
    from polyglance.search.library import Library
    from polyglance.serve.server import serve

    if threads and (cross_encoder or answerer):
        import torch

        torch.set_num_threads(threads)
    # The reader takes a second for every search, which nobody asked for.
    reranks = rerank is not False if cross_encoder else bool(rerank)
    reranker = (cross_encoder or True) if reranks else None
    with Library(library, model=model, reranker=reranker, threads=threads) as opened:
        reader = None if cross_encoder and answerer else opened.reader()
        _confirm_folders(opened, trust_folder or ())
        serve(
            opened,
            host=host,
            port=port,
            token=token if token_file is None else _read_token(token_file, token),
            public_url=public_url,
            trusted_proxies=trusted_proxy or (),
            explainer=_explainer(cross_encoder) if cross_encoder else reader,
            answerer=_answerer(answerer) if answerer else reader,
            manage_folders=manage,
            watch=watch,
        )


def _read_token(path: Path, token: str | None) -> str:
    if token is not None:
        raise PolyglanceError("there are two access tokens: give --token or --token-file")
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PolyglanceError(f"cannot read the access token in {path} ({error})") from error


def _confirm_folders(library: Library, folders: Sequence[Path]) -> None:
    """Confirm folders while the server runs, and name those whose files are not served."""
    if folders:
        library.trust(*folders, remember=False)
    for folder in library.unconfirmed:
        print(
            f"files in {printable(folder)} are not served, since you have not confirmed this"
            f" folder: if you know the library, `polyglance library trust --library {library.name}`"
            " does, or --trust-folder for this time",
            file=sys.stderr,
        )


def _explainer(folder: Path) -> Explainer:
    from polyglance.cross_encoders.explain import Explainer

    opened = Explainer.open(folder)
    if opened.vqa is not None:
        raise PolyglanceError(
            f"{folder} answers questions and cannot explain hits: give this as --answerer, and a"
            " trained UC2 or M3P as --cross-encoder"
        )
    return opened


def _answerer(folder: Path) -> VQA:
    from polyglance.cross_encoders.vqa import VQA

    return VQA.open(folder)

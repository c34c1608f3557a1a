"""Measuring an encoder at work: the pictures and captions of a manifest, encoded and ranked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError
from polyglance.evaluation.embeddings import Layout, chosen_languages, read_layout, split_title
from polyglance.evaluation.results import Evaluation, stamp
from polyglance.evaluation.retrieval import RECALL_AT, Array, evaluate_retrieval
from polyglance.utils.progress import progress

_BLOCK = 64
"""Texts or pictures encoded between two steps of the progress bar."""


def evaluate_encoder(
    encoder: Encoder,
    manifest: str | Path,
    *,
    pictures: str | Path | None = None,
    split: str | None = None,
    languages: Collection[str] | None = None,
    human: Collection[str] = (),
    model: str | None = None,
    split_name: str | None = None,
    ks: Sequence[int] = RECALL_AT,
    people_only: bool = False,
    quiet: bool = False,
) -> Evaluation:
    """Measure retrieval by an encoder, in each language of the manifest.

    ``pictures`` is the folder that the manifest's pictures are named in, by default the
    manifest's own; ``people_only`` leaves captions out that a machine made. The rest is as of
    `polyglance.evaluation.embeddings.evaluate_files`.
    """
    manifest = Path(manifest)
    layout = read_layout(manifest, split, people_only=people_only)
    wanted, people = chosen_languages(layout, manifest, languages, human)
    seen = encoded_pictures(encoder, picture_files(layout, manifest, pictures), quiet=quiet)
    results = {}
    for language in wanted:
        captions = encoded_captions(encoder, layout, language, quiet=quiet)
        results[language] = evaluate_retrieval(seen, captions, layout.owners[language], ks=ks)
    return Evaluation(
        model=model or encoder.name,
        split=split_name or split_title(manifest, split),
        languages=results,
        human=tuple(people),
        similarity="cosine",
        **stamp(),
    )


def picture_files(layout: Layout, manifest: Path, pictures: str | Path | None) -> list[Path]:
    """Where the pictures of a manifest lie, in the folder ``pictures`` or beside it."""
    folder = manifest.parent if pictures is None else Path(pictures)
    if clips := [record.video for record in layout.pictures if record.image is None]:
        raise PolyglanceError(
            f"{manifest}: {clips[0]} is a clip, and an encoder takes pictures: give embeddings of"
            " the clips instead"
        )
    return [folder / str(record.image) for record in layout.pictures]


def encoded_pictures(encoder: Encoder, files: Sequence[Path], *, quiet: bool = False) -> Array:
    """Vectors of pictures, a row each."""
    return _encoded("pictures", files, encoder.encode_pictures, quiet)


def encoded_captions(
    encoder: Encoder, layout: Layout, language: str, *, quiet: bool = False
) -> Array:
    """Vectors of all captions in a language."""

    def read(texts: Sequence[str]) -> Array:
        return encoder.encode_texts(texts, language=language)

    return _encoded(language, layout.captions[language], read, quiet)


def _encoded(
    what: str, items: Sequence[Any], encode: Callable[[Sequence[Any]], Array], quiet: bool
) -> Array:
    blocks = []
    with progress(f"Encoding {what}", len(items), quiet=quiet) as advance:
        for start in range(0, len(items), _BLOCK):
            blocks.append(encode(items[start : start + _BLOCK]))
            advance(len(blocks[-1]))
    return np.concatenate(blocks)

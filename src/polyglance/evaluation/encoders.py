"""Evaluate an encoder on a manifest: encode its images and captions, and rank them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.encoders import Encoder
from polyglance.encoders.stored_features import StoredFeatureEncoder
from polyglance.errors import PolyglanceError
from polyglance.evaluation.embeddings import (
    EmbeddingLayout,
    default_split_name,
    read_layout,
    select_languages,
)
from polyglance.evaluation.results import Evaluation, provenance
from polyglance.evaluation.retrieval import RECALL_AT, Array, evaluate_retrieval
from polyglance.utils.progress import progress

_BLOCK = 64
"""Texts or images encoded between two steps of the progress bar."""


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
    human_only: bool = False,
    quiet: bool = False,
) -> Evaluation:
    """Evaluate retrieval with an encoder, in each language of the manifest.

    Args:
        encoder: The encoder; one of `with_features` takes clips too.
        manifest: Images with captions.
        pictures: Folder that image paths are relative to; None for the manifest's.
        split: Only records of this split.
        languages: Languages to evaluate; None for all.
        human: Languages with captions written by people, for the human average.
        model: Name of the model in the report.
        split_name: Name of the split in the report.
        ks: Recalls to compute.
        human_only: Leave out machine-made captions.
        quiet: Show no progress.
    """
    manifest = Path(manifest)
    layout = read_layout(manifest, split, human_only=human_only)
    wanted, human_languages = select_languages(layout, manifest, languages, human)
    stored = isinstance(encoder, StoredFeatureEncoder)
    files = () if stored else image_paths(layout, manifest, pictures)
    encoded = EncodedTestSet(encoder, layout, files, quiet=quiet)
    results = {
        language: evaluate_retrieval(
            encoded.images, encoded.texts(language), layout.image_ids[language], ks=ks
        )
        for language in wanted
    }
    return Evaluation(
        model=model or encoder.name,
        split=split_name or default_split_name(manifest, split),
        languages=results,
        human=tuple(human_languages),
        similarity="cosine",
        **provenance(),
    )


def image_paths(layout: EmbeddingLayout, manifest: Path, pictures: str | Path | None) -> list[Path]:
    """Return the paths of a manifest's images, in the folder ``pictures`` or beside it."""
    folder = manifest.parent if pictures is None else Path(pictures)
    if clips := [record.video for record in layout.records if record.image is None]:
        raise PolyglanceError(
            f"{manifest}: {clips[0]} is a clip, and an encoder takes images only: give embeddings"
            " of the clips instead, or a model of features with --features"
        )
    return [folder / str(record.image) for record in layout.records]


class EncodedTestSet:
    """Vectors of a test set by a dual encoder, each computed once, when first needed."""

    def __init__(
        self,
        encoder: Encoder,
        layout: EmbeddingLayout,
        files: Sequence[Path],
        *,
        quiet: bool = False,
    ) -> None:
        """Take the encoder and what it is to encode.

        Args:
            encoder: The encoder; one of `with_features` needs no files.
            layout: Images and captions.
            files: The images.
            quiet: Show no progress.
        """
        self.encoder, self.layout, self.files, self.quiet = encoder, layout, files, quiet
        self._texts: dict[str, Array] = {}

    @cached_property
    def images(self) -> Array:
        """Vectors of images, ``(images, width)``."""
        if isinstance(self.encoder, StoredFeatureEncoder):
            records, encode = self.layout.records, self.encoder.encode_records
            return encode_in_blocks("features", records, encode, self.quiet)
        return encode_in_blocks("images", self.files, self.encoder.encode_pictures, self.quiet)

    def texts(self, language: str) -> Array:
        """Return the vectors of all captions in a language, ``(captions, width)``."""

        def encode(texts: Sequence[str]) -> Array:
            return self.encoder.encode_texts(texts, language=language)

        if language not in self._texts:
            captions = self.layout.captions[language]
            self._texts[language] = encode_in_blocks(language, captions, encode, self.quiet)
        return self._texts[language]


def encode_in_blocks(
    what: str, items: Sequence[Any], encode: Callable[[Sequence[Any]], Array], quiet: bool
) -> Array:
    """Encode texts or images with a progress bar.

    Args:
        what: Their name in the bar.
        items: What to encode.
        encode: Returns the vectors of some.
        quiet: Show no progress.
    """
    blocks = []
    with progress(f"Encoding {what}", len(items), quiet=quiet) as advance:
        for start in range(0, len(items), _BLOCK):
            blocks.append(encode(items[start : start + _BLOCK]))
            advance(len(blocks[-1]))
    return np.concatenate(blocks)

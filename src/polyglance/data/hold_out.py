"""Hold pictures out of training: the same ones every time, whatever else a manifest has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from polyglance.errors import DataError
from polyglance.records import read_manifest, rebase_paths, write_manifest


def hold_out_pictures(
    manifest: str | Path,
    out: str | Path,
    *,
    pictures: int,
    language: str | None = None,
    not_in: Iterable[str | Path] = (),
) -> int:
    """Write the records of some pictures, those with the smallest hashes of their file names.

    So two manifests of one corpus hold out mostly the same pictures, and little is lost to
    training.

    Args:
        manifest: Pictures with captions or labels.
        out: The manifest to write, in the order of the hashes.
        pictures: How many to hold out.
        language: Only pictures with captions in it, and only these captions; None for all.
        not_in: Manifests of pictures that may not be held out, since a model has seen them.

    Returns:
        The number of pictures; an error if there are fewer than asked for.
    """
    source, target = Path(manifest).resolve(), Path(out).resolve()
    taken = picture_names(not_in)
    kept = []
    for record in read_manifest(source):
        if record.image is None or Path(record.image).name in taken:
            continue
        if language is not None:
            if not record.captions.get(language):
                continue
            record = replace(record, captions={language: record.captions[language]})
        kept.append(record)
    if len(kept) < pictures:
        raise DataError(
            f"{source}: only {len(kept):,} pictures can be held out: ask for fewer than"
            f" {pictures:,}"
        )
    kept.sort(key=lambda record: name_hash(str(record.image)))
    chosen = (rebase_paths(record, source.parent, target.parent) for record in kept[:pictures])
    return write_manifest(target, chosen)


def picture_names(manifests: Iterable[str | Path]) -> set[str]:
    """Return the file names of all pictures of some manifests."""
    return {
        Path(record.image).name
        for manifest in manifests
        for record in read_manifest(manifest)
        if record.image
    }


def name_hash(path: str) -> str:
    """Return a hash of a picture's file name, the same on every machine."""
    return hashlib.sha256(Path(path).name.encode()).hexdigest()

"""Compare a library with its files: content by its hash, vectors by encoding the files again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError, error_reason, printable
from polyglance.search.encoding import (
    MISSING_VIDEO_EXTRA,
    NO_FEATURES,
    FileEncoder,
    quiet_decoders,
)
from polyglance.search.files import content_hash
from polyglance.search.scan import ScannedFile
from polyglance.search.store import BadFile, Entry, Store
from polyglance.vision.limited_decoding import DecodeLimits
from polyglance.vision.pictures import MISSING_PHOTOS_EXTRA

MIN_COSINE = 0.99
"""The least cosine of a stored vector with that of the file: versions of the packages that
decode and compute differ by less, and other pictures by more."""
CHUNK_SIZE = 256
"""Items compared at a time."""


def changed_files(
    store: Store, encoder: Callable[[], Encoder], limits: DecodeLimits | None = None
) -> Iterator[str]:
    """Yield a sentence for each item that is not what its file says.

    Every file is read and encoded again, which takes as long as indexing did. Where the model
    cannot be loaded, contents are still compared.

    Args:
        store: The library.
        encoder: Loads its model.
        limits: What decoding a file may take.
    """
    files: FileEncoder | None = None
    try:
        encoder()
        files = FileEncoder(encoder, limits=limits)
    except PolyglanceError as error:
        yield f"vectors are not compared with the files: {error}"
    entries = store.entries()
    while chunk := list(islice(entries, CHUNK_SIZE)):
        encoded = _encode(files, chunk) if files else {}
        for entry in chunk:
            path = entry.item.path
            if problem := _compare(entry, encoded.get(path)):
                yield f"{printable(path)}: {problem}"


def _encode(files: FileEncoder, entries: list[Entry]) -> dict[str, Entry | BadFile]:
    items = [entry.item for entry in entries]
    scanned = [ScannedFile(item.path, item.kind, item.signature) for item in items]
    with quiet_decoders():
        return {
            result.path if isinstance(result, BadFile) else result.item.path: result
            for batch in files.encode_files(scanned)
            for result in batch
        }


def _compare(entry: Entry, found: Entry | BadFile | None) -> str | None:
    """Return how an item differs from its file, or None."""
    if found is None or (
        isinstance(found, BadFile)
        and found.reason in (NO_FEATURES, MISSING_VIDEO_EXTRA, MISSING_PHOTOS_EXTRA)
    ):
        return _compare_content(entry)
    if isinstance(found, BadFile):
        problem = _compare_content(entry)
        return problem or f"the file can be decoded no more ({found.reason}): index again"
    if found.item.content_hash != entry.item.content_hash:
        return _CHANGED
    if found.vectors.shape != entry.vectors.shape or _cosines(entry, found).min() < MIN_COSINE:
        return "its vectors are not those of the file: `polyglance index --again` makes them anew"
    return None


_CHANGED = "the file changed after it was indexed: index again"


def _compare_content(entry: Entry) -> str | None:
    try:
        return None if content_hash(entry.item.path) == entry.item.content_hash else _CHANGED
    except OSError as error:
        return f"the file cannot be read ({error_reason(error)}): index again"


def _cosines(one: Entry, other: Entry) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    a, b = (np.asarray(entry.vectors, np.float64) for entry in (one, other))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines: np.ndarray[tuple[int], np.dtype[np.float64]] = (a * b).sum(1) / np.maximum(
        norms, 1e-12
    )
    return cosines

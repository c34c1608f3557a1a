"""Import precomputed detector regions into a feature store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from polyglance.errors import DataError
from polyglance.utils.progress import progress
from polyglance.vision.backbone import check_range
from polyglance.vision.extraction import ExtractionResult
from polyglance.vision.regions import Regions, open_regions
from polyglance.vision.store import StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import BadItem, StoreWriter
from polyglance.vision.tokens import VisualTokens


def import_regions(
    source: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    labels: int = 1,
    dtype: StoredDtype = "int8",
    shard_size: int = 256,
    quiet: bool = False,
) -> ExtractionResult:
    """Import precomputed detector regions (`open_regions`) into a feature store.

    Args:
        source: A ``.tsv``, a ``.h5``, an LMDB or a folder of ``.npz``; or several, such as those
            of training and validation pictures. The first one that has a picture counts.
        out: Folder of the store; an unfinished one is continued.
        labels: Number of most likely classes kept per region.
        dtype: Of the stored features.
        shard_size: Items per file.
        quiet: Show no progress bar.
    """
    started = time.monotonic()
    check_range("labels", labels, 0)
    sources = [Path(source)] if isinstance(source, str | Path) else [Path(one) for one in source]
    with ExitStack() as opened:
        regions = _AllRegions([opened.enter_context(open_regions(one)) for one in sources])
        sample = _first_readable(regions, labels)
        labels = sample.label_ids.shape[1]
        info = StoreInfo(
            made_by={"regions": ", ".join(one.name for one in sources)},
            width=sample.features.shape[1],
            dtype=dtype,
            labels=labels,
            shard_size=shard_size,
            items=len(regions.keys),
            keys_sha256=hash_keys(regions.keys),
        )
        writer = StoreWriter(out, info, regions.keys)
        with writer.exclusive():
            repairable = writer.repairable(lambda key: _region_tokens(regions, key, info))
            pending = sorted([*writer.pending, *repairable])
            before = len(regions.keys) - sum(len(writer.keys_of(number)) for number in pending)
            total = len(regions.keys)
            with progress("Importing regions", total, completed=before, quiet=quiet) as advance:
                for number in pending:
                    keys = writer.keys_of(number)
                    writer.write(number, [_region_tokens(regions, key, info) for key in keys])
                    advance(len(keys))
            bad = writer.finish()
    return ExtractionResult(Path(out), total, bad, before, time.monotonic() - started)


class _AllRegions:
    """The regions of several files, one file after the other."""

    def __init__(self, parts: Sequence[Regions]) -> None:
        self._owner = {key: part for part in reversed(parts) for key in part.keys}
        self.keys = tuple(dict.fromkeys(key for part in parts for key in part.keys))

    def read(self, key: str, labels: int) -> VisualTokens:
        """Return a picture's regions with the ``labels`` most likely classes of each."""
        return self._owner[key].read(key, labels)


def _first_readable(regions: _AllRegions, labels: int) -> VisualTokens:
    first: DataError | None = None
    for key in regions.keys:
        try:
            return regions.read(key, labels)
        except DataError as error:
            first = first or error
    raise first or DataError("it contains no regions")


def _region_tokens(regions: _AllRegions, key: str, info: StoreInfo) -> VisualTokens | BadItem:
    try:
        tokens = regions.read(key, info.labels)
    except DataError as error:
        return BadItem(str(error))
    if tokens.features.shape[1] != info.width or tokens.label_ids.shape[1] != info.labels:
        return BadItem("its vectors or labels differ in size from those of the first picture")
    return tokens

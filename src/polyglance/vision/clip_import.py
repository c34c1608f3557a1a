"""Import features of video networks into a feature store (`polyglance features import`)."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.utils.progress import progress
from polyglance.vision.clip_features import ClipFeatures, open_clip_features
from polyglance.vision.extraction import ExtractionResult
from polyglance.vision.store import StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import BadItem, StoreWriter
from polyglance.vision.tokens import VisualTokens

MIN_SHARD_SIZE = 256
MAX_SHARDS = 2000
"""Readers keep every shard open; more videos make larger shards."""


def import_clip_features(
    source: str | Path,
    out: str | Path,
    *,
    features_per_second: float = 1.0,
    dtype: StoredDtype = "int8",
    shard_size: int | None = None,
    quiet: bool = False,
) -> ExtractionResult:
    """Import a network's features of videos (`open_clip_features`) into a feature store.

    Videos are read and written a shard at a time, so that memory depends on the size of a
    shard alone. A run that was interrupted is continued by the next; videos that cannot be
    read are named, skipped and counted.

    Args:
        source: A folder with a file a video, or an ``.h5`` with a dataset a video.
        out: Folder of the store; an unfinished one is continued.
        features_per_second: Vectors a second of video, for the times of tokens.
        dtype: Of the stored features.
        shard_size: Videos per file; None for 256, or more where that would be too many files.
        quiet: Show no progress bar.
    """
    started = time.monotonic()
    if not features_per_second > 0:
        raise PolyglanceError(
            f"features_per_second is {features_per_second}: give a number above 0"
        )
    with open_clip_features(source) as clips:
        total = len(clips.keys)
        size = shard_size or max(MIN_SHARD_SIZE, -(-total // MAX_SHARDS))
        info = StoreInfo(
            made_by={
                "clip_features": Path(source).name,
                "features_per_second": features_per_second,
            },
            width=_width(clips, Path(source)),
            dtype=dtype,
            labels=0,
            shard_size=size,
            items=total,
            keys_sha256=hash_keys(clips.keys),
        )

        def read(key: str) -> VisualTokens | BadItem:
            return _tokens(clips, key, info.width, features_per_second)

        writer = StoreWriter(out, info, clips.keys)
        with writer.exclusive():
            pending = sorted([*writer.pending, *writer.repairable(read)])
            before = total - sum(len(writer.keys_of(number)) for number in pending)
            with progress("Importing features", total, completed=before, quiet=quiet) as advance:
                for number in pending:
                    keys = writer.keys_of(number)
                    writer.write(number, [read(key) for key in keys])
                    advance(len(keys))
            bad = writer.finish()
    return ExtractionResult(Path(out), total, bad, before, time.monotonic() - started)


def _width(clips: ClipFeatures, source: Path) -> int:
    """Return the width of the first readable video's vectors."""
    first: DataError | None = None
    for key in clips.keys:
        try:
            return int(clips.read(key).shape[1])
        except DataError as error:
            first = first or error
    name = printable(str(source))
    raise DataError(f"{name}: none of {len(clips.keys):,} videos can be read: {first}") from first


def _tokens(
    clips: ClipFeatures, key: str, width: int, features_per_second: float
) -> VisualTokens | BadItem:
    try:
        rows = clips.read(key)
    except DataError as error:
        return BadItem(str(error))
    if rows.shape[1] != width:
        return BadItem(f"its vectors have a width of {rows.shape[1]}, those of the first {width}")
    count = len(rows)
    times = np.arange(count + 1, dtype=np.float32) / np.float32(features_per_second)
    return VisualTokens(
        features=rows,
        boxes=np.tile(np.array([0, 0, 1, 1], np.float32), (count, 1)),
        global_feature=rows.mean(0),
        label_ids=np.zeros((count, 0), np.uint16),
        label_probs=np.zeros((count, 0), np.float16),
        spans=np.stack([times[:-1], times[1:]], axis=1),
    )

"""Feature extraction: encode pictures and clips into a feature store.

Threads decode pictures while the network computes. A run can be interrupted or killed at
any time; the same call continues with the first missing shard, and the finished store is
the same to the byte (on the same machine, with the same number of threads and processes).
Unreadable files are named, skipped and counted; the same call adds them once they are
repaired.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from polyglance.errors import PolyglanceError, Problems, printable
from polyglance.records import read_manifest
from polyglance.utils.cores import available_cores
from polyglance.utils.progress import progress
from polyglance.vision.backbone import SIZE_RANGE, THREAD_RANGE, check_range
from polyglance.vision.clips import SUFFIXES as CLIP_SUFFIXES
from polyglance.vision.clips import can_read_clips, require_video
from polyglance.vision.devices import check_device
from polyglance.vision.limited_decoding import DecodeLimits
from polyglance.vision.pictures import SUFFIXES, Resize
from polyglance.vision.shard_encoding import (
    ExtractionSettings,
    Item,
    ShardEncoder,
    StoreJob,
    quiet_decoders,
    try_decoding,
    write_in_workers,
)
from polyglance.vision.store import StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.test_time_augmentation import Views
from polyglance.vision.tokens import feature_key

MAX_GRID = 64
"""Cells per side: more than any backbone's feature map has at the largest size."""
MAX_BATCH = 1024
MAX_OBJECTS = 100


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """The outcome of an extraction."""

    store: Path
    items: int
    """Number of pictures and clips."""
    bad: dict[str, str]
    """Why items could not be read, by key."""
    done_before: int
    """Number of items that an earlier run had finished."""
    seconds: float


def extract(
    source: str | Path,
    out: str | Path,
    settings: ExtractionSettings | None = None,
    *,
    threads: int | None = None,
    workers: int = 1,
    device: str = "cpu",
    problems: Problems | None = None,
    limits: DecodeLimits | None = None,
    quiet: bool = False,
) -> ExtractionResult:
    """Encode the pictures and clips of ``source`` into the feature store ``out``.

    Args:
        source: A manifest, a picture, a clip, or a folder that is scanned for pictures
            and, where PyAV is installed, clips.
        out: Folder of the store; an unfinished one is continued.
        settings: Backbone, size and layout of the features.
        threads: Number of CPU threads; None for all cores.
        workers: Number of processes, which share the threads. A script that asks for several must
            do so below ``if __name__ == "__main__":``, since they import it.
        device: Torch's device.
        problems: Collects malformed lines of a manifest; without it the first is raised.
        limits: What decoding a file may take.
        quiet: Show no progress bar.
    """
    started = time.monotonic()
    settings, limits = settings or ExtractionSettings(), limits or DecodeLimits()
    threads = min(available_cores(), THREAD_RANGE[1]) if threads is None else threads
    _check(settings, threads)
    check_range("workers", workers, *THREAD_RANGE)
    check_device(device)
    items = find_items(source, problems)
    if any(item.video for item in items):
        require_video()
        if settings.detector is not None:
            raise PolyglanceError(
                "a detector finds objects in pictures, and there are clips among these: give"
                " pictures alone, or no detector"
            )
    encoder = ShardEncoder(settings, limits, threads=threads, device=device)
    by_key = {item.key: item for item in items}
    keys = list(by_key)
    info = StoreInfo(
        made_by={**_settings_of(settings), "weights_sha256": encoder.backbone.fingerprint},
        width=encoder.backbone.width,
        dtype=settings.dtype,
        labels=min(settings.labels, encoder.backbone.num_classes),
        shard_size=settings.shard_size,
        items=len(items),
        keys_sha256=hash_keys(keys),
    )
    writer = StoreWriter(out, info, keys)
    with writer.exclusive(), quiet_decoders():
        repairable = writer.repairable(lambda key: try_decoding(settings, limits, by_key[key]))
        pending = sorted([*writer.pending, *repairable])
        size = settings.shard_size
        shards = [items[number * size : (number + 1) * size] for number in pending]
        before = len(items) - sum(map(len, shards))
        with progress("Extracting features", len(items), completed=before, quiet=quiet) as advance:
            if workers > 1 and len(shards) > 1:
                share = max(1, threads // workers)
                job = StoreJob(Path(out), info, settings, limits, share, device)
                del encoder  # each process has its own
                numbered = dict(zip(pending, shards, strict=True))
                write_in_workers(job, numbered, min(workers, len(shards)), advance)
            else:
                encoded = encoder.encode(shards, advance)
                for number, tokens in zip(pending, encoded, strict=True):
                    writer.write(number, tokens)
        bad = writer.finish()
    return ExtractionResult(Path(out), len(items), bad, before, time.monotonic() - started)


def find_items(source: str | Path, problems: Problems | None = None) -> list[Item]:
    """List the pictures and clips of a manifest, a folder or a single file, each once."""
    source = Path(source)
    name = printable(str(source))
    if not os.path.exists(source):  # noqa: PTH110 (unlike Path.exists it never raises)
        raise PolyglanceError(
            f"{name}: no such file or folder; give a manifest, a folder or a picture"
        )
    suffix = source.suffix.lower()
    if source.is_dir():
        items = list(_walk(source))
        if not can_read_clips() and any(not item.video for item in items):
            items = [
                item for item in items if not item.video
            ]  # if there are only clips, extract() raises
    elif suffix in SUFFIXES | CLIP_SUFFIXES:
        items = [Item(source.name, source, suffix in CLIP_SUFFIXES)]
    else:
        items = list(_listed(source, problems))
    unique = {item.key: item for item in items}
    if not unique:
        linked = source.is_dir() and any(p.is_symlink() and p.is_dir() for p in source.iterdir())
        hint = ", and linked folders are not scanned" if linked else ""
        raise PolyglanceError(f"{name}: contains no picture or clip{hint}")
    return list(unique.values())


def _walk(folder: Path) -> Iterator[Item]:
    """Yield the pictures and clips below a folder in the order of names, without hidden files."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            suffix = path.suffix.lower()
            if not name.startswith(".") and suffix in SUFFIXES | CLIP_SUFFIXES:
                yield Item(path.relative_to(folder).as_posix(), path, suffix in CLIP_SUFFIXES)


def _listed(manifest: Path, problems: Problems | None) -> Iterator[Item]:
    for record in read_manifest(manifest, problems):
        if key := feature_key(record):
            path = manifest.parent / (record.image or record.video or "")
            yield Item(key, path, record.video is not None, record.span)


def _check(settings: ExtractionSettings, threads: int) -> None:
    """Validate the settings before anything is loaded or written."""
    check_range("threads", threads, *THREAD_RANGE)
    check_range("size", settings.size, *SIZE_RANGE)
    check_range("grid", settings.grid, 1, MAX_GRID)
    check_range("labels", settings.labels, 0)
    check_range("shard_size", settings.shard_size, 1)
    check_range("batch_size", settings.batch_size, 1, MAX_BATCH)
    if settings.views != "one" and (settings.grid, settings.labels) != (1, 0):
        raise PolyglanceError(
            "several views of a picture are averaged into one vector: set grid to 1 and labels to 0"
        )
    check_range("objects", settings.objects, 1, MAX_OBJECTS)
    if settings.detector is not None:
        if not 0 < settings.min_score < 1:
            raise PolyglanceError(
                f"min_score must be a number from 0 to 1, not {settings.min_score:g}"
            )
        if settings.labels_by is not None or settings.views != "one":
            raise PolyglanceError(
                "a detector labels its own objects in one view: leave out labels_by and views"
            )
    literals = {"resize": Resize, "dtype": StoredDtype, "views": Views}
    for name, choices in ((name, get_args(literal)) for name, literal in literals.items()):
        if getattr(settings, name) not in choices:
            value = getattr(settings, name)
            raise PolyglanceError(f"{name} must be {' or '.join(choices)}, not {value!r}")


def _settings_of(settings: ExtractionSettings) -> dict[str, object]:
    """Return the settings that `StoreInfo` lacks; later additions only where not the default.

    So stores made before a setting existed can still be continued.
    """
    omitted_defaults: dict[str, object] = {"views": "one", "labels_by": None}
    if settings.detector is None:
        omitted_defaults |= {
            name: getattr(settings, name) for name in ("detector", "objects", "min_score")
        }
    return {
        name: value
        for name, value in asdict(settings).items()
        if name not in ("dtype", "labels", "shard_size")
        and (name not in omitted_defaults or value != omitted_defaults[name])
    }

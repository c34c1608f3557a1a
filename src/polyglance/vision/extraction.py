"""Feature extraction: encode pictures and clips into a feature store.

Threads decode pictures while the network computes. A run can be interrupted or killed at
any time; the same call continues with the first missing shard, and the finished store is
the same to the byte (on the same machine, with the same number of threads). Unreadable
files are named, skipped and counted; the same call adds them once they are repaired.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, get_args

from polyglance.errors import DataError, PolyglanceError, Problems, printable
from polyglance.records import read_manifest
from polyglance.utils.cores import available_cores
from polyglance.utils.prefetch import THREADS, prefetch
from polyglance.utils.progress import Advance, progress
from polyglance.vision.backbone import (
    SIZE_RANGE,
    THREAD_RANGE,
    Backbone,
    check_range,
    encode_squares,
    open_backbone,
)
from polyglance.vision.clips import SUFFIXES as CLIP_SUFFIXES
from polyglance.vision.clips import Span, can_read_clips, encode_clip, require_video
from polyglance.vision.devices import check_device
from polyglance.vision.labelled_backbone import LabelledBackbone
from polyglance.vision.limited_decoding import (
    DecodeLimits,
    read_limited_square,
    sample_limited_squares,
)
from polyglance.vision.pictures import SUFFIXES, Resize, Square
from polyglance.vision.store import StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import BadItem, StoreWriter
from polyglance.vision.test_time_augmentation import Views, average_views, crop_margin, crops
from polyglance.vision.tokens import VisualTokens, feature_key

MAX_GRID = 64
"""Cells per side: more than any backbone's feature map has at the largest size."""
MAX_BATCH = 1024
MAX_OBJECTS = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExtractionSettings:
    """The settings that determine a store, next to the pictures themselves."""

    backbone: str = "efficientnet-lite2"
    size: int = 224
    """Side of the square input; 224 gives a 7 x 7 feature map."""
    resize: Resize = "squash"
    views: Views = "one"
    """Test-time augmentation: several views are averaged into one vector (grid 1)."""
    grid: int = 7
    labels: int = 10
    """Number of most likely classes kept per token; 0 for none."""
    labels_by: str | None = None
    """The backbone that provides the labels; None for the one that provides the features."""
    detector: str | None = None
    """A detector whose objects follow the cells as further tokens; only they have labels then."""
    objects: int = 10
    """Maximum number of a picture's objects."""
    min_score: float = 0.3
    """Objects below this score of the detector are dropped."""
    dtype: StoredDtype = "int8"
    shard_size: int = 256
    """Items per file: what an interruption costs at most; readers keep every file open."""
    batch_size: int = 16


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


@dataclass(frozen=True, slots=True)
class Item:
    """A picture or clip to be encoded."""

    key: str
    path: Path
    video: bool = False
    span: Span | None = None


def extract(
    source: str | Path,
    out: str | Path,
    settings: ExtractionSettings | None = None,
    *,
    threads: int | None = None,
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
        device: Torch's device.
        problems: Collects malformed lines of a manifest; without it the first is raised.
        limits: What decoding a file may take.
        quiet: Show no progress bar.
    """
    started = time.monotonic()
    settings, limits = settings or ExtractionSettings(), limits or DecodeLimits()
    threads = min(available_cores(), THREAD_RANGE[1]) if threads is None else threads
    _check(settings, threads)
    check_device(device)
    items = find_items(source, problems)
    if any(item.video for item in items):
        require_video()
        if settings.detector is not None:
            raise PolyglanceError(
                "a detector finds objects in pictures, and there are clips among these: give"
                " pictures alone, or no detector"
            )
    open_ = partial(open_backbone, size=settings.size, threads=threads, device=device)
    backbone = open_(settings.backbone)
    if settings.labels_by is not None:
        backbone = LabelledBackbone(backbone, open_(settings.labels_by))
    if settings.detector is not None:
        from polyglance.vision.objects import detected_backbone  # needs torch

        backbone = detected_backbone(
            backbone,
            settings.detector,
            max_objects=settings.objects,
            min_score=settings.min_score,
            device=device,
        )
    by_key = {item.key: item for item in items}
    keys = list(by_key)
    info = StoreInfo(
        made_by={**_settings_of(settings), "weights_sha256": backbone.fingerprint},
        width=backbone.width,
        dtype=settings.dtype,
        labels=min(settings.labels, backbone.num_classes),
        shard_size=settings.shard_size,
        items=len(items),
        keys_sha256=hash_keys(keys),
    )
    writer = StoreWriter(out, info, keys)
    with writer.exclusive(), _quiet_decoders():
        repairable = writer.repairable(lambda key: _try_decoding(settings, limits, by_key[key]))
        pending = sorted([*writer.pending, *repairable])
        size = settings.shard_size
        shards = [items[number * size : (number + 1) * size] for number in pending]
        before = len(items) - sum(map(len, shards))
        with progress("Extracting features", len(items), completed=before, quiet=quiet) as advance:
            # An accelerator leaves the cores to the decoders.
            decoders = threads if device != "cpu" else THREADS
            encoded = _encode(shards, backbone, settings, limits, advance, decoders)
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


def _encode(
    shards: Sequence[Sequence[Item]],
    backbone: Backbone,
    settings: ExtractionSettings,
    limits: DecodeLimits,
    advance: Advance,
    decoders: int,
) -> Iterator[list[VisualTokens | BadItem]]:
    """Yield the tokens of each shard's items, decoding pictures in the background."""
    pictures = (item for shard in shards for item in shard if not item.video)
    depth = max(2 * settings.batch_size, 4 * decoders)
    decode = partial(_decode, settings, limits)
    with prefetch(decode, pictures, depth, threads=decoders) as decoded:
        for shard in shards:
            # Batches end with the shard, so that it depends on its own items alone.
            tokens = _encode_pictures(shard, decoded, backbone, settings, advance)
            for item in shard:
                if item.video:
                    tokens[item.key] = _encode_clip(item, backbone, settings, limits)
                    advance(1)
            yield [tokens[item.key] for item in shard]


def _encode_pictures(
    shard: Sequence[Item],
    decoded: Iterator[Square | BadItem],
    backbone: Backbone,
    settings: ExtractionSettings,
    advance: Advance,
) -> dict[str, VisualTokens | BadItem]:
    encoded: dict[str, VisualTokens | BadItem] = {}
    keys = [item.key for item in shard if not item.video]
    for start in range(0, len(keys), settings.batch_size):
        batch = dict(zip(keys[start : start + settings.batch_size], decoded, strict=False))
        squares = {key: square for key, square in batch.items() if isinstance(square, Square)}
        views = [crops(square, settings.size, settings.views) for square in squares.values()]
        num_views = max(map(len, views), default=1)
        tokens = encode_squares(
            backbone,
            [view for picture in views for view in picture],
            batch_size=settings.batch_size * num_views,
            grid=settings.grid,
            labels=settings.labels,
        )
        starts = range(0, len(tokens), num_views)
        tokens = [average_views(tokens[start : start + num_views]) for start in starts]
        encoded |= {key: bad for key, bad in batch.items() if isinstance(bad, BadItem)}
        encoded |= dict(zip(squares, tokens, strict=True))
        advance(len(batch))
    return encoded


def _decode(settings: ExtractionSettings, limits: DecodeLimits, item: Item) -> Square | BadItem:
    size = settings.size + crop_margin(settings.size, settings.views)
    return _or_bad(item, lambda: read_limited_square(item.path, size, settings.resize, limits))


def _encode_clip(
    item: Item, backbone: Backbone, settings: ExtractionSettings, limits: DecodeLimits
) -> VisualTokens | BadItem:
    squares = sample_limited_squares(item.path, item.span, backbone.size, settings.resize, limits)
    encode = partial(
        encode_clip,
        backbone,
        item.path,
        labels=settings.labels,
        batch_size=settings.batch_size,
        squares=squares,
    )
    return _or_bad(item, encode)


def _try_decoding(settings: ExtractionSettings, limits: DecodeLimits, item: Item) -> object:
    """Decode an item that was bad, without encoding it; returns a `BadItem` if it still is."""
    if item.video:
        squares = sample_limited_squares(
            item.path, item.span, settings.size, settings.resize, limits
        )
        return _or_bad(item, lambda: deque(squares, maxlen=0))
    return _decode(settings, limits, item)


def _or_bad(item: Item, read: Callable[[], T]) -> T | BadItem:
    """Return ``read()``, or why the item's file cannot be read."""
    if item.key.lower().startswith(("http://", "https://")):
        return BadItem("URLs are not fetched: download the pictures first and give their paths")
    try:
        return read()
    except DataError as error:  # the reason must not depend on the folder's path
        return BadItem(str(error).removeprefix(f"{item.path}: "))


@contextmanager
def _quiet_decoders() -> Iterator[None]:
    """Silence Pillow's warnings, which break the progress bar; what matters is in bad.txt."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield


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

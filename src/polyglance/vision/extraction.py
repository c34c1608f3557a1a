"""Extraction: pictures and clips through a backbone into a feature store.

Pictures are decoded by threads while the network computes. A run can be
interrupted or killed at any time; the same call goes on with the first shard
that is not there yet, and the finished store is the same to the byte (on the
same machine, with the same number of threads). Files that cannot be read are
named, skipped and counted; the same call, once they are mended, takes them in.
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
from polyglance.progress import Advance, progress
from polyglance.records import read_manifest
from polyglance.vision.ahead import ahead
from polyglance.vision.backbone import (
    SIZES,
    THREADS,
    Backbone,
    check_range,
    encode_squares,
    open_backbone,
)
from polyglance.vision.clips import SUFFIXES as CLIP_SUFFIXES
from polyglance.vision.clips import Span, can_read_clips, encode_clip, read_seconds, require_video
from polyglance.vision.devices import check_device
from polyglance.vision.labelled_by import LabelledBy
from polyglance.vision.pictures import SUFFIXES, Resize, Square, read_square
from polyglance.vision.regions import Regions, open_regions
from polyglance.vision.store import StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import Bad, StoreWriter
from polyglance.vision.tokens import VisualTokens, feature_key
from polyglance.vision.views import Views, averaged, margin, seen_from

MAX_GRID = 64
"""Cells a side: more than any backbone's map has at the largest size."""
MAX_BATCH = 1024


T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class ExtractionSettings:
    """What decides the bytes of a store, next to the pictures themselves."""

    backbone: str = "efficientnet-lite2"
    size: int = 224
    """Side of the square that pictures are resized to; 224 gives a map of 7 x 7."""
    resize: Resize = "squash"
    views: Views = "one"
    """How often a picture is looked at; several views are averaged into one vector (grid 1)."""
    grid: int = 7
    labels: int = 10
    """Classes kept of each token's distribution; 0 for none."""
    labels_by: str | None = None
    """Another network that tells classes; None for the backbone itself."""
    dtype: StoredDtype = "int8"
    shard_size: int = 256
    """Items a file: what an interruption costs at most, and a reader keeps each file open."""
    batch_size: int = 16


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """What an extraction did."""

    store: Path
    items: int
    """Pictures and clips in all."""
    bad: dict[str, str]
    """Why some are not in the store, by key."""
    done_before: int
    """How many an earlier run had finished."""
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
    quiet: bool = False,
) -> ExtractionResult:
    """Encode the pictures and clips of ``source`` into the feature store ``out``.

    ``source`` is a manifest, a picture, a clip or a folder, which is walked for
    pictures and, where PyAV is installed, clips. ``threads`` compute (all cores
    by default); malformed lines of a manifest go to ``problems``, and without it
    the first is an error.
    """
    began = time.monotonic()
    settings = settings or ExtractionSettings()
    threads = _cores() if threads is None else threads
    _check(settings, threads)
    check_device(device)
    items = find_items(source, problems)
    if any(item.video for item in items):
        require_video()
    opened = partial(open_backbone, size=settings.size, threads=threads, device=device)
    backbone = opened(settings.backbone)
    if settings.labels_by is not None:
        backbone = LabelledBy(backbone, opened(settings.labels_by))
    by_key = {item.key: item for item in items}
    keys = list(by_key)
    info = StoreInfo(
        made_by={**_settings_of(settings), "weights_sha256": backbone.fingerprint},
        width=backbone.width,
        dtype=settings.dtype,
        labels=min(settings.labels, backbone.classes),
        shard_size=settings.shard_size,
        items=len(items),
        keys_sha256=hash_keys(keys),
    )
    writer = StoreWriter(out, info, keys)
    with writer.alone(), _quiet_decoders():
        again = writer.mended(lambda key: _look(settings, by_key[key]))
        pending = sorted([*writer.pending, *again])
        size = settings.shard_size
        shards = [items[number * size : (number + 1) * size] for number in pending]
        before = len(items) - sum(map(len, shards))
        with progress("Extracting features", len(items), done=before, quiet=quiet) as advance:
            encoded = _encode(shards, backbone, settings, advance)
            for number, tokens in zip(pending, encoded, strict=True):
                writer.write(number, tokens)
        bad = writer.finish()
    return ExtractionResult(Path(out), len(items), bad, before, time.monotonic() - began)


def import_regions(
    source: str | Path,
    out: str | Path,
    *,
    labels: int = 1,
    dtype: StoredDtype = "int8",
    shard_size: int = 256,
    quiet: bool = False,
) -> ExtractionResult:
    """Put the regions that a detector computed elsewhere (`open_regions`) into a feature store."""
    began = time.monotonic()
    check_range("labels", labels, 0)
    with open_regions(source) as regions:
        sample = _first_readable(regions, labels)
        labels = sample.label_ids.shape[1]
        info = StoreInfo(
            made_by={"regions": Path(source).name},
            width=sample.features.shape[1],
            dtype=dtype,
            labels=labels,
            shard_size=shard_size,
            items=len(regions.keys),
            keys_sha256=hash_keys(regions.keys),
        )
        writer = StoreWriter(out, info, regions.keys)
        with writer.alone():
            again = writer.mended(lambda key: _region_tokens(regions, key, info))
            pending = sorted([*writer.pending, *again])
            before = len(regions.keys) - sum(len(writer.keys_of(number)) for number in pending)
            total = len(regions.keys)
            with progress("Importing regions", total, done=before, quiet=quiet) as advance:
                for number in pending:
                    keys = writer.keys_of(number)
                    writer.write(number, [_region_tokens(regions, key, info) for key in keys])
                    advance(len(keys))
            bad = writer.finish()
    return ExtractionResult(Path(out), total, bad, before, time.monotonic() - began)


def find_items(source: str | Path, problems: Problems | None = None) -> list[Item]:
    """The pictures and clips of a manifest or below a folder, each once; or the one of a file."""
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
            items = [item for item in items if not item.video]  # of clips alone, extract complains
    elif suffix in SUFFIXES | CLIP_SUFFIXES:
        items = [Item(source.name, source, suffix in CLIP_SUFFIXES)]
    else:
        items = list(_listed(source, problems))
    unique = {item.key: item for item in items}
    if not unique:
        linked = source.is_dir() and any(p.is_symlink() and p.is_dir() for p in source.iterdir())
        hint = ", and folders that are linked are not looked into" if linked else ""
        raise PolyglanceError(f"{name}: there is no picture or clip in it{hint}")
    return list(unique.values())


def _walk(folder: Path) -> Iterator[Item]:
    """What lies below a folder in the order of the names, hidden files left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(place, name)
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
    advance: Advance,
) -> Iterator[list[VisualTokens | Bad]]:
    """The tokens of each shard's items, the pictures decoded ahead of time."""
    pictures = (item for shard in shards for item in shard if not item.video)
    with ahead(partial(_decode, settings), pictures, 2 * settings.batch_size) as decoded:
        for shard in shards:
            # Batches end with the shard: what is in it depends on its own items alone.
            done = _encode_pictures(shard, decoded, backbone, settings, advance)
            for item in shard:
                if item.video:
                    done[item.key] = _encode_clip(item, backbone, settings)
                    advance(1)
            yield [done[item.key] for item in shard]


def _encode_pictures(
    shard: Sequence[Item],
    decoded: Iterator[Square | Bad],
    backbone: Backbone,
    settings: ExtractionSettings,
    advance: Advance,
) -> dict[str, VisualTokens | Bad]:
    done: dict[str, VisualTokens | Bad] = {}
    keys = [item.key for item in shard if not item.video]
    for start in range(0, len(keys), settings.batch_size):
        batch = dict(zip(keys[start : start + settings.batch_size], decoded, strict=False))
        squares = {key: square for key, square in batch.items() if isinstance(square, Square)}
        seen = [seen_from(square, settings.size, settings.views) for square in squares.values()]
        views = max(map(len, seen), default=1)
        tokens = encode_squares(
            backbone,
            [view for views in seen for view in views],
            batch_size=settings.batch_size * views,
            grid=settings.grid,
            labels=settings.labels,
        )
        tokens = [averaged(tokens[i : i + views]) for i in range(0, len(tokens), views)]
        done |= {key: bad for key, bad in batch.items() if isinstance(bad, Bad)}
        done |= dict(zip(squares, tokens, strict=True))
        advance(len(batch))
    return done


def _decode(settings: ExtractionSettings, item: Item) -> Square | Bad:
    size = settings.size + margin(settings.size, settings.views)
    return _or_bad(item, lambda: read_square(item.path, size, settings.resize))


def _encode_clip(
    item: Item, backbone: Backbone, settings: ExtractionSettings
) -> VisualTokens | Bad:
    encode = partial(
        encode_clip,
        backbone,
        item.path,
        span=item.span,
        labels=settings.labels,
        resize=settings.resize,
        batch_size=settings.batch_size,
    )
    return _or_bad(item, encode)


def _look(settings: ExtractionSettings, item: Item) -> object:
    """Whether an item that was `Bad` still is; nothing is encoded for it."""
    if item.video:
        return _or_bad(item, lambda: deque(read_seconds(item.path, item.span), maxlen=0))
    return _decode(settings, item)


def _or_bad(item: Item, read: Callable[[], T]) -> T | Bad:
    """What ``read`` makes of an item's file, or why it cannot be read."""
    if item.key.lower().startswith(("http://", "https://")):
        return Bad("addresses are not fetched: download the pictures first and name their files")
    try:
        return read()
    except DataError as error:  # where the folder lies is no part of the reason
        return Bad(str(error).removeprefix(f"{item.path}: "))


def _first_readable(regions: Regions, labels: int) -> VisualTokens:
    first: DataError | None = None
    for key in regions.keys:
        try:
            return regions.read(key, labels)
        except DataError as error:
            first = first or error
    raise first or DataError("there are no regions in it")


def _region_tokens(regions: Regions, key: str, info: StoreInfo) -> VisualTokens | Bad:
    try:
        tokens = regions.read(key, info.labels)
    except DataError as error:
        return Bad(str(error))
    if tokens.features.shape[1] != info.width or tokens.label_ids.shape[1] != info.labels:
        return Bad("its vectors or labels are not as many as those of the first picture")
    return tokens


@contextmanager
def _quiet_decoders() -> Iterator[None]:
    """Pillow's warnings about odd files would tear the progress bar; what matters is in bad.txt."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield


def _check(settings: ExtractionSettings, threads: int) -> None:
    """Refuse what cannot work before anything is loaded or written."""
    check_range("threads", threads, *THREADS)
    check_range("size", settings.size, *SIZES)
    check_range("grid", settings.grid, 1, MAX_GRID)
    check_range("labels", settings.labels, 0)
    check_range("shard_size", settings.shard_size, 1)
    check_range("batch_size", settings.batch_size, 1, MAX_BATCH)
    if settings.views != "one" and (settings.grid, settings.labels) != (1, 0):
        raise PolyglanceError(
            "several views of a picture are averaged into one vector: set grid to 1 and labels to 0"
        )
    kinds_of = {"resize": Resize, "dtype": StoredDtype, "views": Views}
    for name, kinds in ((name, get_args(kind)) for name, kind in kinds_of.items()):
        if getattr(settings, name) not in kinds:
            value = getattr(settings, name)
            raise PolyglanceError(f"{name} must be {' or '.join(kinds)}, not {value!r}")


def _settings_of(settings: ExtractionSettings) -> dict[str, object]:
    """The settings that `StoreInfo` does not name itself; some go without saying."""
    without_saying = {"views": "one", "labels_by": None}
    return {
        name: value
        for name, value in asdict(settings).items()
        if name not in ("dtype", "labels", "shard_size")
        and (name not in without_saying or value != without_saying[name])
    }


def _cores() -> int:
    """Those this process may use, as many as can be used."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return min(len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1, THREADS[1])

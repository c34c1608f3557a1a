"""Extraction: pictures and clips through a backbone into a feature store.

Pictures are decoded by threads while the network computes. A run can be
interrupted or killed at any time; the same call goes on with the first shard
that is not there yet, and the finished store is the same to the byte (on the
same machine, with the same number of threads). Files that cannot be read are
named, skipped and counted.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.progress import Advance, progress
from polyglance.records import read_manifest
from polyglance.vision.backbone import Backbone, encode_squares, open_backbone
from polyglance.vision.clips import Span, encode_clip, require_video
from polyglance.vision.pictures import SUFFIXES, Resize, Square, read_square
from polyglance.vision.regions import Regions, open_regions
from polyglance.vision.store import StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import Bad, StoreWriter
from polyglance.vision.tokens import VisualTokens, feature_key


@dataclass(frozen=True, slots=True)
class ExtractionSettings:
    """What decides the bytes of a store, next to the pictures themselves."""

    backbone: str = "efficientnet-lite2"
    size: int = 224
    """Side of the square that pictures are resized to; 224 gives a map of 7 x 7."""
    resize: Resize = "squash"
    grid: int = 7
    labels: int = 10
    """Classes kept of each token's distribution; 0 for none."""
    dtype: StoredDtype = "int8"
    shard_size: int = 256
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

    ``source`` is a manifest or a folder, which is walked for pictures.
    ``threads`` compute (all cores by default); malformed lines of a manifest go
    to ``problems``, and without it the first is an error.
    """
    began = time.monotonic()
    settings = settings or ExtractionSettings()
    _check(settings)
    items = find_items(source, problems)
    if any(item.video for item in items):
        require_video()
    backbone = open_backbone(
        settings.backbone, size=settings.size, threads=threads or _cores(), device=device
    )
    keys = [item.key for item in items]
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
        pending = writer.pending
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
            pending = writer.pending
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
    """The pictures and clips of a manifest, or the pictures below a folder, each once."""
    source = Path(source)
    items = _walk(source) if source.is_dir() else _listed(source, problems)
    unique = {item.key: item for item in items}
    if not unique:
        raise PolyglanceError(f"{source}: there is no picture or clip in it")
    return list(unique.values())


def _walk(folder: Path) -> Iterator[Item]:
    """Pictures below a folder in the order of their names, hidden ones left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(place, name)
            if not name.startswith(".") and path.suffix.lower() in SUFFIXES:
                yield Item(path.relative_to(folder).as_posix(), path)


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
    with _ahead(partial(_decode, settings), pictures, 2 * settings.batch_size) as decoded:
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
        tokens = encode_squares(
            backbone,
            list(squares.values()),
            batch_size=settings.batch_size,
            grid=settings.grid,
            labels=settings.labels,
        )
        done |= {key: bad for key, bad in batch.items() if isinstance(bad, Bad)}
        done |= dict(zip(squares, tokens, strict=True))
        advance(len(batch))
    return done


def _decode(settings: ExtractionSettings, item: Item) -> Square | Bad:
    try:
        return read_square(item.path, settings.size, settings.resize)
    except DataError as error:
        return _bad(item, error)


def _encode_clip(
    item: Item, backbone: Backbone, settings: ExtractionSettings
) -> VisualTokens | Bad:
    try:
        return encode_clip(
            backbone,
            item.path,
            span=item.span,
            labels=settings.labels,
            resize=settings.resize,
            batch_size=settings.batch_size,
        )
    except DataError as error:
        return _bad(item, error)


def _bad(item: Item, error: DataError) -> Bad:
    return Bad(str(error).removeprefix(f"{item.path}: "))  # where the folder lies is no part of it


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


T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def _ahead(work: Callable[[T], U], jobs: Iterable[T], depth: int) -> Iterator[Iterator[U]]:
    """Results of ``work`` in the order of the jobs, up to ``depth`` of them ready in advance.

    Leaving early, by Ctrl-C too, drops what has not begun.
    """
    pool = ThreadPoolExecutor(2, thread_name_prefix="decode")
    waiting: deque[Future[U]] = deque()

    def results() -> Iterator[U]:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield results()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _quiet_decoders() -> Iterator[None]:
    """Pillow's warnings about odd files would tear the progress bar; what matters is in bad.txt."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield


def _check(settings: ExtractionSettings) -> None:
    for name, least in (("grid", 1), ("labels", 0), ("shard_size", 1), ("batch_size", 1)):
        if getattr(settings, name) < least:
            raise PolyglanceError(f"{name} must be {least} or more, not {getattr(settings, name)}")


def _settings_of(settings: ExtractionSettings) -> dict[str, object]:
    """The settings that `StoreInfo` does not name itself."""
    return {
        name: value
        for name, value in asdict(settings).items()
        if name not in ("dtype", "labels", "shard_size")
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

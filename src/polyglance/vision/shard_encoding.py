"""Encode the pictures and clips of a feature store, shard by shard, in one process or several."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from polyglance.errors import DataError, PolyglanceError
from polyglance.utils.child_processes import SpawnPool
from polyglance.utils.prefetch import THREADS, prefetch
from polyglance.utils.progress import Advance
from polyglance.vision.backbone import Backbone, encode_squares, open_backbone
from polyglance.vision.clips import Span, encode_clip
from polyglance.vision.labelled_backbone import LabelledBackbone
from polyglance.vision.limited_decoding import (
    DecodeLimits,
    read_limited_square,
    sample_limited_squares,
)
from polyglance.vision.pictures import Resize, Square
from polyglance.vision.store import StoredDtype, StoreInfo
from polyglance.vision.store_writer import BadItem, write_items
from polyglance.vision.test_time_augmentation import Views, average_views, crop_margin, crops
from polyglance.vision.tokens import VisualTokens

T = TypeVar("T")
Encoded = VisualTokens | BadItem


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
class Item:
    """A picture or clip to be encoded."""

    key: str
    path: Path
    video: bool = False
    span: Span | None = None


class ShardEncoder:
    """Encodes the items of whole shards with a backbone that is opened once."""

    def __init__(
        self, settings: ExtractionSettings, limits: DecodeLimits, *, threads: int, device: str
    ) -> None:
        """Open the backbone.

        Args:
            settings: Backbone, size and layout of the features.
            limits: What decoding a file may take.
            threads: Number of CPU threads.
            device: Torch's device.
        """
        self.settings, self.limits = settings, limits
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
        self.backbone: Backbone = backbone
        # An accelerator leaves the cores to the decoders.
        self._decoders = threads if device != "cpu" else THREADS

    def encode(self, shards: Sequence[Sequence[Item]], advance: Advance) -> Iterator[list[Encoded]]:
        """Yield the tokens of each shard's items, decoding pictures in the background."""
        pictures = (item for shard in shards for item in shard if not item.video)
        depth = max(2 * self.settings.batch_size, 4 * self._decoders)
        decode = partial(_decode, self.settings, self.limits)
        with prefetch(decode, pictures, depth, threads=self._decoders) as decoded:
            for shard in shards:
                # Batches end with the shard, so that it depends on its own items alone.
                tokens = _encode_pictures(shard, decoded, self.backbone, self.settings, advance)
                for item in shard:
                    if item.video:
                        tokens[item.key] = _encode_clip(
                            item, self.backbone, self.settings, self.limits
                        )
                        advance(1)
                yield [tokens[item.key] for item in shard]


@dataclass(frozen=True, slots=True)
class StoreJob:
    """What a worker needs to write shards of a store."""

    out: Path
    info: StoreInfo
    settings: ExtractionSettings
    limits: DecodeLimits
    threads: int
    device: str


def write_in_workers(
    job: StoreJob, shards: Mapping[int, Sequence[Item]], workers: int, advance: Advance
) -> None:
    """Write shards in so many new processes, each of which opens the backbone once.

    Args:
        job: The store, and how its items are encoded.
        shards: The items of each shard that is to be written, by its number.
        workers: Number of processes.
        advance: Called with the number of items of each shard that was written.
    """
    with SpawnPool(workers) as pool:
        try:
            written = [pool.submit(_write_shard, job, *shard) for shard in shards.items()]
            for future in as_completed(written):
                advance(future.result())
        except BrokenProcessPool as error:
            raise PolyglanceError(
                f"a process that extracts features ended; is memory short? {job.out} keeps what is"
                " written: run again with fewer workers"
            ) from error


_encoder: ShardEncoder | None = None
"""Of this process, if it is a worker that has written a shard."""


def _write_shard(job: StoreJob, number: int, items: Sequence[Item]) -> int:
    """Encode and write a shard in a worker; return the number of its items."""
    global _encoder
    if _encoder is None:
        _encoder = ShardEncoder(job.settings, job.limits, threads=job.threads, device=job.device)
    with quiet_decoders():
        (tokens,) = _encoder.encode([items], lambda _: None)
    write_items(job.out, job.info, number, [item.key for item in items], tokens)
    return len(items)


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


def try_decoding(settings: ExtractionSettings, limits: DecodeLimits, item: Item) -> object:
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
def quiet_decoders() -> Iterator[None]:
    """Silence Pillow's warnings, which break the progress bar; what matters is in bad.txt."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield

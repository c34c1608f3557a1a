"""Where training reads pixels from: image files or tars, in memory or while training.

Up to ``pixels_memory`` the pixels of a corpus lie on the device and images are sampled at random. A
larger corpus stays on disk, and training goes through its images in shuffled order. The choice of
the order depends on the recipe and the corpus alone, never on the machine, so that a run resumed
elsewhere continues exactly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol, overload

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.inputs import ImagePixels, PixelTable, read_pixels
from polyglance.batches.order import Shuffle, Streaming
from polyglance.batches.streamed_pixels import StreamedPixels
from polyglance.config import validate_fields
from polyglance.data.tars import TarImages, check_images, open_tars
from polyglance.errors import DataError
from polyglance.records import Record
from polyglance.training.distributed import barrier, rank, world_size
from polyglance.vision.decoding import DecodePool, Source, default_workers
from polyglance.vision.shard_files import CACHE_BYTES

_DEFAULT_WINDOW_GB = 2.0
_MANY_IMAGES = 10_000
"""From so many on, images are decoded by processes instead of threads."""


@dataclass(frozen=True)
class PixelStreaming:
    """How image corpora larger than memory are read; the memory is in gigabytes."""

    pixels_memory: float = 16.0
    """Pixels of training images up to this size lie on the device (if half of its free memory
    suffices); those of larger corpora are decoded while training."""
    shuffle_memory: float | None = None
    """Images of a corpus on disk are shuffled within windows of this size, as files. None for the
    whole corpus on a local disk, where any image is read as fast as the next, and 2 from an
    address."""
    shard_cache: float = CACHE_BYTES / 1e9
    """Copies of tars from an address occupy at most so much."""
    cache_dir: str = "cache"
    """Folder inside the data folder for copies of tars, and indices of those from an address."""
    decode_workers: int | None = None
    """Processes that decode images; 0 for threads, None for one a core. Batches are the same."""
    damaged_images: Literal["error", "skip"] = "error"
    """Whether an image that cannot be decoded stops the run or is left out; ``skip`` decodes all
    images once before training, where tars do not say yet."""

    def __post_init__(self) -> None:
        names = ("pixels_memory", "shuffle_memory", "shard_cache")
        validate_fields(self, lambda value: value >= 0, "0 or more gigabytes", *names)
        validate_fields(self, lambda value: value >= 0, "0 or more", "decode_workers")

    def open_pool(self) -> DecodePool:
        """Return what decodes images, one for all corpora; processes start at the first use."""
        workers = self.decode_workers
        return _shared_pool(default_workers(world_size()) if workers is None else workers)


@cache
def _shared_pool(workers: int) -> DecodePool:
    return DecodePool(workers)


@dataclass(frozen=True, eq=False)
class ImageCollection:
    """Records and their images, as files or in tars."""

    records: Sequence[Record]
    sources: Sequence[Source]


class ImageFiles(Sequence[Path]):
    """The image files of records, made when they are asked for."""

    def __init__(self, parts: Sequence[tuple[Path, Sequence[Record]]]) -> None:
        """``parts`` are folders and the records of their images."""
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(records) for _, records in self._parts)

    @overload
    def __getitem__(self, item: int) -> Path: ...
    @overload
    def __getitem__(self, item: slice) -> list[Path]: ...
    def __getitem__(self, item: int | slice) -> Path | list[Path]:
        """Return a file, or a list of them."""
        if isinstance(item, slice):
            return [self[number] for number in range(*item.indices(len(self)))]
        for folder, records in self._parts:
            if item < len(records):
                record = records[item]
                return folder / str(record.image or record.video)
            item -= len(records)
        raise IndexError(item)


class JoinedImages(Sequence[Source]):
    """The images of several corpora, numbered through."""

    def __init__(self, parts: Sequence[Sequence[Source]]) -> None:
        self.parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def is_local(self) -> bool:
        """Whether any image can be read at any time at little cost."""
        return all(getattr(part, "is_local", True) for part in self.parts)

    @overload
    def __getitem__(self, item: int) -> Source: ...
    @overload
    def __getitem__(self, item: slice) -> list[Source]: ...
    def __getitem__(self, item: int | slice) -> Source | list[Source]:
        """Return an image, or a list of them."""
        if isinstance(item, slice):
            return [self[number] for number in range(*item.indices(len(self)))]
        if not 0 <= item < len(self):
            raise IndexError(item)
        part = int(np.searchsorted(self._ends, item, side="right"))
        return self.parts[part][item - int(self._ends[part]) + len(self.parts[part])]


def open_images(
    records: Sequence[Record],
    data: Path,
    manifest: str,
    tars: str | None,
    config: PixelStreaming,
) -> ImageCollection:
    """Find the images of records; damaged ones are left out if the recipe says so.

    Args:
        records: With images.
        data: The data folder.
        manifest: Of the records, beside which image files lie.
        tars: A folder, tar, pattern or address of tars instead; None for files.
        config: The bounds, and what becomes of damaged images.
    """
    skip = config.damaged_images == "skip"
    if tars is None:
        folder = (data / manifest).parent
        files = ImageFiles([(folder, records)])
        if skip and (damaged := config.open_pool().damaged(files)):
            records = [record for number, record in enumerate(records) if number not in damaged]
            _say_skipped(manifest, len(damaged))
        return ImageCollection(records, ImageFiles([(folder, records)]))
    images = open_tar_images(data, tars, config)
    numbers = images.find(records)
    bad = np.flatnonzero(numbers < 0)
    if len(bad) and not skip:
        raise DataError(
            f"{tars}: {len(bad):,} images are damaged, such as {records[int(bad[0])].key!r}:"
            " remove their records from the manifest, or set streaming.damaged_images to skip"
        )
    _say_skipped(tars, len(bad))
    if len(bad):
        records = [record for record, number in zip(records, numbers, strict=True) if number >= 0]
    return ImageCollection(records, images.select(numbers[numbers >= 0]))


def open_tar_images(data: Path, tars: str, config: PixelStreaming) -> TarImages:
    """Open tars on all processes; the first makes and checks their index."""
    address = tars if "://" in tars else str(data / tars)

    def opened() -> TarImages:
        return open_tars(
            address,
            cache_dir=data / config.cache_dir,
            cache_bytes=int(config.shard_cache * 1e9),
            quiet=rank() > 0,
        )

    if rank() == 0:
        images = opened()
        if config.damaged_images == "skip" and images.tar_index.damaged is None:
            check_images(images.tars, images.tar_index, workers=config.open_pool().workers)
    barrier()
    return opened()


class Backbone(Protocol):
    """An image backbone: its network, and how pixels are normalised for it."""

    network: Any
    mean: Tensor
    std: Tensor


def pool_for(images: int, workers: int | None = None) -> DecodePool:
    """Return what decodes so many images: processes for many, threads for others.

    Args:
        images: How many there are.
        workers: Processes; 0 for threads, None for one a core.
    """
    if images < _MANY_IMAGES:
        return DecodePool()
    return PixelStreaming(decode_workers=workers).open_pool()


def read_many_pixels(
    sources: Sequence[Source], size: int, config: PixelStreaming | None = None
) -> Tensor:
    """Decode images into squares, uint8 ``(n, size, size, RGB)``.

    Args:
        sources: The images.
        size: Pixels per side.
        config: Which processes decode many images; None for threads.
    """
    # Threads share one interpreter, which 16 cores wait for; processes take seconds to start.
    if config is not None and len(sources) >= _MANY_IMAGES:
        return torch.from_numpy(config.open_pool().squares(sources, size))
    return read_pixels(sources, size)


def place_pixels(
    sources: Sequence[Source],
    size: int,
    backbone: Backbone,
    *,
    min_crop_area: float,
    device: torch.device | str,
    config: PixelStreaming | None = None,
    name: str = "",
) -> ImagePixels:
    """Read pixels to the device if they are small, and say what was chosen.

    Args:
        sources: The images.
        size: Pixels per side.
        backbone: Encodes them.
        min_crop_area: Augmentation keeps at least this share of an image's area.
        device: Where images are encoded.
        config: The bounds; None to read all.
        name: Of the corpus, for the message.
    """
    network = backbone.network, backbone.mean, backbone.std
    total, free = pixels_size(len(sources), size), _free_memory(torch.device(device))
    if config is None or (total <= config.pixels_memory * 1e9 and total <= free / 2):
        pixels = read_many_pixels(sources, size, config)
        return PixelTable(pixels, *network, min_crop_area=min_crop_area, device=device)
    pool = config.open_pool()
    if rank() == 0:
        print(
            f"{name}: {total / 1e9:,.1f} GB of pixels are decoded while training, by"
            f" {f'{pool.workers} processes' if pool.workers else 'threads'} (pixels_memory is"
            f" {config.pixels_memory:g} GB, {free / 1e9:,.0f} GB are free)",
            file=sys.stderr,
        )
    return StreamedPixels(
        sources, size, *network, min_crop_area=min_crop_area, device=device, pool=pool
    )


def pixel_order(
    pixels: ImagePixels, size: int, config: PixelStreaming, *, per_batch: int, seed: int
) -> Streaming | None:
    """Return how training goes through a corpus, or None to sample images at random.

    Args:
        pixels: Of the corpus.
        size: Pixels per side.
        config: The bounds.
        per_batch: Images that a batch takes, on all processes together.
        seed: Of the order.
    """
    if pixels_size(len(pixels), size) <= config.pixels_memory * 1e9:
        return None
    assert isinstance(pixels, StreamedPixels)
    window = config.shuffle_memory
    if window is None and not pixels.is_local:
        window = min(_DEFAULT_WINDOW_GB, config.shard_cache / 2)
    shuffle = None
    if window is not None:
        shuffle = Shuffle.within(int(window * 1e9), pixels.image_bytes)
    return Streaming(per_batch, seed, shuffle)


def pixels_size(images: int, size: int) -> int:
    """Return the bytes of decoded images."""
    return images * size * size * 3


def _say_skipped(name: str, count: int) -> None:
    if count and rank() == 0:
        print(f"{name}: {count:,} damaged images are left out", file=sys.stderr)


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

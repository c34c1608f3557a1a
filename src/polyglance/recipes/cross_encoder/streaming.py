"""Training corpora larger than memory: where regions and captions lie, chosen by size.

Up to ``regions_memory`` regions lie on the device and images are sampled at random. A larger corpus
stays on disk, and training goes through each language's images in shuffled order. The choice of
the order depends on the recipe and the corpus alone, never on the machine, so that a run resumed
elsewhere continues exactly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.batches.order import Shuffle
from polyglance.batches.regions import RegionSource, RegionTable
from polyglance.batches.streamed_pixels import PixelRegions, StreamedPixels
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.config import validate_fields
from polyglance.cross_encoders.regions import ImageBackboneConfig, encode_regions
from polyglance.data.caption_files import build_captions, open_captions
from polyglance.data.captions import BatchTokenizer, CaptionTable
from polyglance.recipes.cross_encoder.captions import Streaming
from polyglance.recipes.image_sources import PixelStreaming
from polyglance.records import Record
from polyglance.training.distributed import barrier, rank
from polyglance.vision.decoding import Source
from polyglance.vision.shard_files import CACHE_BYTES
from polyglance.vision.store import find_key
from polyglance.vision.store_reader import StoreReader
from polyglance.vision.torch_backbone import TorchBackbone

Indices = NDArray[np.int64]

LARGE_MANIFEST = 256 << 20
"""Records of longer manifests stay on disk."""
_DEFAULT_WINDOW_GB = 2.0
_READ_BATCH = 256


@dataclass(frozen=True)
class StreamingConfig:
    """How training corpora larger than memory are read; the memory is in gigabytes."""

    regions_memory: float = 16.0
    """Stored regions of training images up to this size, as float16, lie on the device (if half of
    its free memory suffices); those of larger corpora stay on disk."""
    shuffle_memory: float | None = None
    """Images of a corpus on disk are shuffled within windows of this size. None for the whole
    corpus on a local disk, where any image is read as fast as the next, and 2 from an address."""
    shard_cache: float = CACHE_BYTES / 1e9
    """Copies of shards from an address occupy at most so much."""
    cache_dir: str = "cache"
    """Folder inside the data folder for tokenised captions and copies of shards."""
    decode_workers: int | None = None
    """Processes that decode images for an image backbone, where these are read while training; 0
    for threads, None for one a core."""
    damaged_images: Literal["error", "skip"] = "error"
    """Whether an image that cannot be decoded stops the run or is left out."""

    def __post_init__(self) -> None:
        names = ("regions_memory", "shuffle_memory", "shard_cache")
        validate_fields(self, lambda value: value >= 0, "0 or more gigabytes", *names)
        validate_fields(self, lambda value: value >= 0, "0 or more", "decode_workers")

    @property
    def pixels(self) -> PixelStreaming:
        """How images of an image backbone are read."""
        return PixelStreaming(
            shuffle_memory=self.shuffle_memory,
            shard_cache=self.shard_cache,
            cache_dir=self.cache_dir,
            decode_workers=self.decode_workers,
            damaged_images=self.damaged_images,
        )


def feature_address(data: Path, features: str) -> str | Path:
    """Return the folder of a store inside the data folder, or its fsspec address."""
    return features if "://" in features else data / features


def open_reader(data: Path, features: str, config: StreamingConfig) -> StoreReader:
    """Open a store for positioned reads."""
    folder = features.replace("://", "-").replace("/", "-")
    return StoreReader(
        feature_address(data, features),
        cache_dir=data / config.cache_dir / folder if "://" in features else None,
        cache_bytes=int(config.shard_cache * 1e9),
    )


class StoreKeys:
    """The keys of a store and their item numbers."""

    def __init__(self, reader: StoreReader) -> None:
        self.path = reader.files.name
        self.keys = {key: number for number, key in enumerate(reader.keys())}

    def find(self, record: Record) -> str | None:
        """Return the key of a record's picture or clip, or None if the store lacks it."""
        return find_key(record, self.keys)

    def items(self, keys: Sequence[str]) -> Indices:
        """Return the item numbers of keys."""
        return np.fromiter((self.keys[key] for key in keys), np.int64, len(keys))


def place_regions(regions: StreamedRegions, config: StreamingConfig) -> RegionSource:
    """Read regions to the device if they are small, and say what was chosen."""
    size = int(regions.lengths.sum()) * regions.width * 2
    free = _free_memory(regions.device)
    fits = size <= config.regions_memory * 1e9
    where = "read from disk while training"
    if fits and size <= free / 2:
        where = f"kept on {regions.device}"
    if rank() == 0:
        print(
            f"{size / 1e9:,.1f} GB of regions are {where} (regions_memory is"
            f" {config.regions_memory:g} GB, {free / 1e9:,.0f} GB are free)",
            file=sys.stderr,
        )
    return load_regions(regions) if where.startswith("kept") else regions


def load_regions(regions: StreamedRegions) -> RegionTable:
    """Read all regions into a table on the device."""
    blocks = np.array_split(np.arange(len(regions)), -(-len(regions) // _READ_BATCH))
    parts = [regions.take(block) for block in blocks]
    return RegionTable(
        torch.cat([batch.features.half() for batch, _ in parts]),
        torch.cat([batch.boxes for batch, _ in parts]),
        torch.cat([labels for _, labels in parts]),
        regions.lengths,
        regions.device,
        prepend_global=regions.prepend_global,
    )


def place_pixel_regions(
    images: Sequence[Source],
    backbone: TorchBackbone,
    settings: ImageBackboneConfig,
    config: StreamingConfig,
    *,
    seed: int,
) -> RegionSource:
    """Encode training images once if their regions are small, or else in every step.

    Args:
        images: Files, or images in tars.
        backbone: Encodes them.
        settings: How.
        config: The bounds.
        seed: Of the augmentations.
    """
    pixels = StreamedPixels(
        images,
        settings.size,
        backbone.network,
        backbone.mean,
        backbone.std,
        min_crop_area=settings.min_crop_area,
        device=backbone.device,
        pool=config.pixels.open_pool(),
    )
    regions = PixelRegions(pixels, views=settings.views, grid=settings.grid)
    size = int(regions.lengths.sum()) * regions.width * 2 * settings.views
    if size <= config.regions_memory * 1e9:
        return encode_regions(images, backbone, settings, views=settings.views, seed=seed)
    if rank() == 0:
        print(
            f"{size / 1e9:,.1f} GB of regions are computed while training (regions_memory is"
            f" {config.regions_memory:g} GB)",
            file=sys.stderr,
        )
    return regions


def streaming_of(
    regions: RegionSource, config: StreamingConfig, *, per_batch: int, seed: int, orders: int
) -> Streaming | None:
    """Return how training goes through a corpus, or None to sample images at random.

    Args:
        regions: Of the corpus.
        config: The bounds.
        per_batch: Captions that a batch takes, on all processes together.
        seed: Of the order.
        orders: Languages, each with an order of its own.
    """
    size = int(regions.lengths.sum()) * regions.width * 2
    on_disk = isinstance(regions, StreamedRegions | PixelRegions)
    if size * regions.views <= config.regions_memory * 1e9 or not on_disk:
        return None
    assert isinstance(regions, StreamedRegions | PixelRegions)
    window = config.shuffle_memory
    if window is None and not regions.is_local:
        window = min(_DEFAULT_WINDOW_GB, config.shard_cache / 2)
    shuffle = None
    if window is not None:
        shuffle = Shuffle.within(int(window * 1e9), regions.image_bytes, orders=orders)
    return Streaming(per_batch, seed, shuffle)


def cached_captions(
    records: Iterable[Record],
    tokenizer: BatchTokenizer,
    folder: Path,
    key: str,
    *,
    max_tokens: int,
) -> CaptionTable:
    """Build memory-mapped captions on the first process, and open them on all.

    Args:
        records: The corpus.
        tokenizer: Of all languages.
        folder: Where the captions are kept.
        key: A digest of the corpus and the tokenizer.
        max_tokens: Maximum length.
    """
    if rank() == 0:
        build_captions(records, tokenizer, folder, key, max_tokens=max_tokens)
    barrier()
    captions = open_captions(folder, key)
    assert captions is not None
    return captions


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

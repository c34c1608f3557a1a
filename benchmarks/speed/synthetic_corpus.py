"""A synthetic corpus of Conceptual Captions' shape: a feature store and captions on disk."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.cross_encoder_step import NUM_LABELS, caption_lengths
from polyglance.data.caption_files import CaptionWriter, open_captions
from polyglance.data.captions import CaptionTable
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.cross_encoder.captions import Streaming
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions, FlatLinks
from polyglance.utils.ragged import ragged_arange
from polyglance.vision.shards import write_shard
from polyglance.vision.store import StoreInfo, hash_keys, read_info, shard_path
from polyglance.vision.store_writer import StoreWriter

LANGUAGES = ("en", "de", "fr", "cs", "ja", "zh")
TILE_ROWS = 8192
"""Random vectors that the features of all shards are taken from."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of corpus and model; those of Conceptual Captions and XLM-R base by default."""

    encoder: EncoderConfig
    images: int
    regions: int = 36
    width: int = 2048
    shard_size: int = 1000
    batch: int = 1024

    @classmethod
    def of(cls, gigabytes: float) -> Sizes:
        """Return sizes with a corpus of so many gigabytes of regions."""
        sizes = cls(EncoderConfig(), 0)
        images = int(gigabytes * 1e9 / (sizes.regions * sizes.width))
        return replace(sizes, images=max(images, 2 * sizes.batch))

    @classmethod
    def tiny(cls) -> Sizes:
        """Return sizes for any machine."""
        encoder = EncoderConfig(
            vocab_size=1000, hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64
        )
        return cls(encoder, images=300, regions=5, width=16, shard_size=50, batch=12)


def write_corpus(folder: Path, sizes: Sizes) -> int:
    """Write store and captions in parallel, unless they are there; return the seconds it took."""
    start = time.monotonic()
    keys = [f"{number:08d}" for number in range(sizes.images)]
    info = StoreInfo(
        {"corpus": "synthetic"}, sizes.width, "int8", 1, sizes.shard_size, len(keys),
        hash_keys(keys),
    )  # fmt: skip
    writer = StoreWriter(folder / "regions", info, keys)
    if pending := writer.pending:
        print(f"writing {len(pending):,} shards of {sizes.shard_size:,} images ...", flush=True)
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
            list(pool.map(_write_shard, pending, [folder / "regions"] * len(pending),
                          [sizes.regions] * len(pending), chunksize=1))  # fmt: skip
        writer.finish()
    if open_captions(folder / "captions") is None:
        with CaptionWriter(folder / "captions") as captions:
            for first in range(0, sizes.images, 50_000):
                count = min(50_000, sizes.images - first)
                captions.append_table(_random_captions(first, count, sizes.encoder.vocab_size))
    return round(time.monotonic() - start)


def _write_shard(number: int, store: Path, regions: int) -> None:
    """Write a shard of regions taken from a tile of random vectors."""
    info = read_info(store)
    first = number * info.shard_size
    count = min(info.shard_size, info.items - first)
    generator = np.random.default_rng([1, number])
    tile = np.random.default_rng(0).integers(-127, 128, (TILE_ROWS, info.width), np.int8)
    rows = count * regions
    arrays: dict[str, Any] = {
        "features": tile[generator.integers(TILE_ROWS, size=rows)],
        "scales": generator.uniform(0.01, 0.05, rows).astype(np.float32),
        "boxes": np.sort(generator.random((rows, 2, 2), np.float32), axis=1).reshape(rows, 4),
        "spans": np.zeros((rows, 2), np.float32),
        "label_ids": generator.integers(NUM_LABELS, size=(rows, 1)).astype(np.uint16),
        "label_probs": np.ones((rows, 1), np.float16),
        "wholes": np.zeros((count, info.width), np.int8),
        "whole_scales": np.ones(count, np.float32),
        "lengths": np.full(count, regions, np.int64),
    }
    keys = [f"{item:08d}" for item in range(first, first + count)]
    write_shard(shard_path(store, number), arrays, {"keys": keys, "bad": {}})


def _random_captions(first: int, count: int, vocab_size: int) -> CaptionTable:
    lengths = caption_lengths(count * len(LANGUAGES))
    ids = np.random.default_rng([2, first]).integers(4, vocab_size - 1, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    images = np.repeat(np.arange(count), len(LANGUAGES))
    languages = np.tile(np.arange(len(LANGUAGES)), count)
    return CaptionTable(ids.astype(np.int32), offsets, images, languages, LANGUAGES, count)


def align_half(table: CaptionTable, streaming: Streaming) -> AlignedCaptions:
    """Pair every caption with the English one, with every second word aligned."""
    second = np.flatnonzero(table.language_ids > 0)
    first = second - table.language_ids[second]
    lengths = np.diff(table.offsets)
    sizes = np.maximum(0, np.minimum(lengths[first], lengths[second]) - 2) // 2
    positions = (2 * ragged_arange(np.zeros_like(sizes), sizes) + 1).astype(np.int16)
    links = FlatLinks(sizes, np.stack([positions, positions], axis=1))
    return AlignedCaptions(table, first, second, links, streaming=streaming)

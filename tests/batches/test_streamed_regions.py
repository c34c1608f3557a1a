"""Regions read from disk equal those of a table in memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.random_store import write_random_store
from polyglance.batches.regions import RegionTable
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.store import FeatureStore, StoredDtype
from polyglance.vision.store_reader import StoreReader

LENGTHS = {f"i{n}": 1 + n * 7 % 5 for n in range(23)}


def keys_of(store: FeatureStore) -> list[str]:
    return [key for key in reversed(store.keys) if key != "i4"]


def items_of(reader: StoreReader, keys: list[str]) -> np.ndarray[Any, Any]:
    numbers = {key: number for number, key in enumerate(reader.keys())}
    return np.array([numbers[key] for key in keys])


@pytest.mark.parametrize("dtype", ["int8", "float16"])
@pytest.mark.parametrize("prepend_global", [False, True])
@pytest.mark.parametrize("resident", [0, 1 << 20])
def test_batches_equal_those_of_a_table_in_memory(
    tmp_path: Path, dtype: StoredDtype, prepend_global: bool, resident: int
) -> None:
    store = write_random_store(tmp_path, LENGTHS, dtype=dtype, shard_size=4, bad=("i6", "i20"))
    keys, reader = keys_of(store), StoreReader(tmp_path, threads=2)
    assert list(reader.keys()) == list(store.keys)
    settings: dict[str, Any] = {"max_regions": 3, "prepend_global": prepend_global}
    table = RegionTable.from_store(store, keys, **settings)
    streamed = StreamedRegions(
        [(reader, items_of(reader, keys))], **settings, resident_bytes=resident
    )
    assert (len(streamed), streamed.width) == (len(table), table.width)
    assert streamed.lengths.tolist() == table.lengths.tolist()
    assert streamed.has_labels
    images = np.array([0, 7, 3, 3, len(keys) - 1, 11])
    (regions, labels), (expected, expected_labels) = streamed.take(images), table.take(images)
    assert torch.equal(regions.features, expected.features)
    assert torch.equal(regions.boxes, expected.boxes)
    assert torch.equal(regions.packing.cu_seqlens, expected.packing.cu_seqlens)
    assert torch.equal(labels, expected_labels)
    ours, theirs = streamed.select(images).global_rows, table.select(images).global_rows
    assert (ours is None and theirs is None) or torch.equal(ours, theirs)  # type: ignore[arg-type]


def test_several_stores_are_numbered_through(tmp_path: Path) -> None:
    first = write_random_store(tmp_path / "a", {"x": 2, "y": 3}, labels=1)
    second = write_random_store(tmp_path / "b", {"u": 1, "v": 4, "w": 2}, labels=0)
    readers = [StoreReader(tmp_path / name) for name in "ab"]
    streamed = StreamedRegions([(readers[0], np.array([1, 0])), (readers[1], np.array([2, 0, 1]))])
    tables = [
        RegionTable.from_store(first, ["y", "x"]),
        RegionTable.from_store(second, ["w", "u", "v"]),
    ]
    table, images = RegionTable.concat(tables), np.array([4, 0, 2, 1, 3])
    for part, other in zip(streamed.take(images), table.take(images), strict=True):
        if isinstance(part, torch.Tensor):
            assert torch.equal(part, other)
        else:
            assert torch.equal(part.features, other.features)


def test_remote_stores_are_read_through_a_bounded_cache(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = write_random_store(tmp_path / "store", LENGTHS, shard_size=3, width=400)
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "store"), "/corpus/regions", recursive=True)
    largest = max(f.stat().st_size for f in (tmp_path / "store" / "shards").iterdir())
    cache, bound = tmp_path / "cache", int(2.5 * largest)
    reader = StoreReader("memory://corpus/regions", cache_dir=cache, cache_bytes=bound)
    assert not list(cache.iterdir())  # headers alone have been read
    keys = list(store.keys)
    streamed = StreamedRegions([(reader, items_of(reader, keys))], resident_bytes=0)
    assert not streamed.is_local
    shutil.rmtree(tmp_path / "store")
    table_keys = np.random.default_rng(0).permutation(len(keys))
    whole = streamed.take(table_keys)[0].features
    again = [streamed.take(np.array([image]))[0].features for image in table_keys]
    assert torch.equal(whole, torch.cat(again))
    assert sum(f.stat().st_size for f in cache.iterdir()) <= bound
    with pytest.raises(PolyglanceError, match="raise its bound"):
        StreamedRegions(
            [(StoreReader("memory://corpus/regions", cache_bytes=10), np.array([0]))]
        ).take(np.array([0]))
    with pytest.raises(DataError, match="is not a feature store"):
        StoreReader("memory://nowhere")


def test_damaged_stores_are_named(tmp_path: Path) -> None:
    write_random_store(tmp_path, LENGTHS, shard_size=4)
    reader = StoreReader(tmp_path)
    shard = tmp_path / "shards" / "00002.safetensors"
    whole = shard.read_bytes()
    streamed = StreamedRegions([(reader, np.arange(23))], resident_bytes=0)
    with shard.open("r+b") as file:
        file.truncate(len(whole) - 200)
    with pytest.raises(DataError, match=r"00002\.safetensors: is cut off"):
        streamed.select(np.arange(23))
    shard.write_bytes(whole[:9] + b"?" + whole[10:])
    with pytest.raises(DataError, match=r"00002\.safetensors: is damaged"):
        StoreReader(tmp_path)
    shard.unlink()
    with pytest.raises(DataError, match=r"00002\.safetensors is missing"):
        StoreReader(tmp_path)

"""Tables of regions read from a feature store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from polyglance.batches.regions import RegionTable
from polyglance.errors import PolyglanceError
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.vision.store import FeatureStore, StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans

LENGTHS = {"a": 3, "b": 1, "c": 4}


def write_store(folder: Path, dtype: StoredDtype, labels: int) -> FeatureStore:
    generator = np.random.default_rng(0)
    keys = list(LENGTHS)
    info = StoreInfo({"backbone": "test"}, 5, dtype, labels, 2, len(keys), hash_keys(keys))
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        writer.write(
            number,
            [
                VisualTokens(
                    features=generator.standard_normal((LENGTHS[key], 5)).astype(np.float32),
                    boxes=generator.random((LENGTHS[key], 4)).astype(np.float32),
                    global_feature=generator.standard_normal(5).astype(np.float32),
                    label_ids=generator.integers(0, 9, (LENGTHS[key], labels)).astype(np.uint16),
                    label_probs=np.ones((LENGTHS[key], labels), np.float16),
                    spans=zero_spans(LENGTHS[key]),
                )
                for key in writer.keys_of(number)
            ],
        )
    writer.finish()
    return FeatureStore(folder)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_regions_equal_those_of_the_store(dtype: StoredDtype, tmp_path: Path) -> None:
    store = write_store(tmp_path, dtype, labels=2)
    order = ["c", "a", "b"]
    table = RegionTable.from_store(store, order, max_regions=3)
    assert (len(table), table.width) == (3, 5)
    images = np.array([1, 0, 1])
    regions, labels = table.take(images)
    assert regions.packing.lengths.tolist() == [3, 3, 3]
    tokens = [store[order[image]] for image in images]
    for values, name in ((regions.features, "features"), (regions.boxes, "boxes")):
        expected = np.concatenate([np.asarray(getattr(t, name), np.float32)[:3] for t in tokens])
        torch.testing.assert_close(values, torch.from_numpy(expected), rtol=2e-3, atol=2e-3)
    assert labels.tolist() == [int(label) for t in tokens for label in t.label_ids[:3, 0]]


def test_global_region_can_come_first(tmp_path: Path) -> None:
    store = write_store(tmp_path, "float16", labels=1)
    plain = RegionTable.from_store(store, ["a", "c"])
    table = RegionTable.from_store(store, ["a", "c"], prepend_global=True, max_regions=4)
    assert table.lengths.tolist() == [4, 4]
    global_rows = RegionTable.concat([table, table]).select(np.array([2, 1])).global_rows
    assert global_rows is not None
    assert global_rows.tolist() == [0, 0, 0, 0, 4, 4, 4, 4]
    assert plain.select(np.array([0])).global_rows is None
    with pytest.raises(ValueError, match="concatenated only with equal views"):
        RegionTable.concat([table, plain])
    for image, key in enumerate(["a", "c"]):
        regions, labels = table.take(np.array([image]))
        assert regions.features[0].tolist() == store[key].global_feature.tolist()
        assert regions.boxes[0].tolist() == [0, 0, 1, 1]
        assert labels[0] == NO_LABEL
        cells, cell_labels = plain.take(np.array([image]))
        assert torch.equal(regions.features[1:], cells.features[:3])
        assert torch.equal(regions.boxes[1:], cells.boxes[:3])
        assert torch.equal(labels[1:], cell_labels[:3])


def test_stores_without_labels_or_images(tmp_path: Path) -> None:
    store = write_store(tmp_path, "float16", labels=0)
    labels = RegionTable.from_store(store, ["b", "c"]).take(np.array([0, 1]))[1]
    assert labels.tolist() == [NO_LABEL] * 5
    with pytest.raises(PolyglanceError, match="no image of the corpus"):
        RegionTable.from_store(store, [])
    with pytest.raises(ValueError, match="image 1 has no regions"):
        RegionTable(torch.zeros(2, 5), torch.zeros(2, 4), torch.zeros(2), np.array([2, 0]))

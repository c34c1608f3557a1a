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


def store(folder: Path, dtype: StoredDtype, labels: int) -> FeatureStore:
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
def test_regions_come_out_as_the_store_has_them(dtype: StoredDtype, tmp_path: Path) -> None:
    found = store(tmp_path, dtype, labels=2)
    order = ["c", "a", "b"]
    table = RegionTable.from_store(found, order, max_regions=3)
    assert (len(table), table.width) == (3, 5)
    items = np.array([1, 0, 1])
    regions, labels = table.take(items)
    assert regions.packing.lengths.tolist() == [3, 3, 3]
    tokens = [found[order[item]] for item in items]
    for got, name in ((regions.features, "features"), (regions.boxes, "boxes")):
        wanted = np.concatenate([np.asarray(getattr(t, name), np.float32)[:3] for t in tokens])
        torch.testing.assert_close(got, torch.from_numpy(wanted), rtol=2e-3, atol=2e-3)
    assert labels.tolist() == [int(label) for t in tokens for label in t.label_ids[:3, 0]]


def test_the_whole_picture_can_be_the_first_region(tmp_path: Path) -> None:
    found = store(tmp_path, "float16", labels=1)
    plain = RegionTable.from_store(found, ["a", "c"])
    table = RegionTable.from_store(found, ["a", "c"], prepend_global=True, max_regions=4)
    assert table.lengths.tolist() == [4, 4]
    wholes = RegionTable.concat([table, table]).global_rows(np.array([2, 1]))
    assert wholes is not None
    assert wholes.tolist() == [0, 0, 0, 0, 4, 4, 4, 4]
    assert plain.global_rows(np.array([0])) is None
    with pytest.raises(ValueError, match="cannot be joined"):
        RegionTable.concat([table, plain])
    for item, key in enumerate(["a", "c"]):
        regions, labels = table.take(np.array([item]))
        assert regions.features[0].tolist() == found[key].global_feature.tolist()
        assert regions.boxes[0].tolist() == [0, 0, 1, 1]
        assert labels[0] == NO_LABEL
        rest, own = plain.take(np.array([item]))
        assert torch.equal(regions.features[1:], rest.features[:3])
        assert torch.equal(regions.boxes[1:], rest.boxes[:3])
        assert torch.equal(labels[1:], own[:3])


def test_a_store_without_labels_and_one_without_pictures(tmp_path: Path) -> None:
    found = store(tmp_path, "float16", labels=0)
    labels = RegionTable.from_store(found, ["b", "c"]).take(np.array([0, 1]))[1]
    assert labels.tolist() == [NO_LABEL] * 5
    with pytest.raises(PolyglanceError, match="no picture of the corpus"):
        RegionTable.from_store(found, [])
    with pytest.raises(ValueError, match="picture 1 has no regions"):
        RegionTable(torch.zeros(2, 5), torch.zeros(2, 4), torch.zeros(2), np.array([2, 0]))

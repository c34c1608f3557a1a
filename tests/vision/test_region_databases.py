"""UNITER's LMDB and M3P's flat HDF5, laid out as published."""

from __future__ import annotations

import builtins
import io
import json
from pathlib import Path
from typing import Any

import h5py
import lmdb
import msgpack
import numpy as np
import pytest

from polyglance.errors import PolyglanceError
from polyglance.records import Record
from polyglance.vision.region_import import import_regions
from polyglance.vision.regions import RegionError, open_regions
from polyglance.vision.store import FeatureStore

RNG = np.random.default_rng(0)
COUNT, WIDTH, CLASSES = 40, 6, 9
FEATURES = RNG.normal(size=(COUNT, WIDTH)).astype(np.float16)
CORNERS = RNG.uniform(0, 0.5, (COUNT, 2))
BOXES = np.concatenate([CORNERS, CORNERS + 0.4], axis=1)
LABELS = RNG.integers(CLASSES, size=COUNT)
SOFT_LABELS = np.eye(CLASSES, dtype=np.float16)[LABELS]
CONFIDENCE = np.where(np.arange(COUNT) < 15, 0.5, 0.1).astype(np.float16)
"""15 regions are above UNITER's threshold of 0.2."""
UNITER = {
    "features": FEATURES,
    "norm_bb": np.concatenate([BOXES, np.full((COUNT, 2), 0.4)], axis=1).astype(np.float16),
    "conf": CONFIDENCE,
    "soft_labels": SOFT_LABELS,
}
NAMES = ("flickr30k_000000000007.npz", "flickr30k_000000000012.npz")


def packed(array: np.ndarray, text_keys: bool) -> dict[Any, Any]:
    """Return what msgpack-numpy makes of an array; old versions have text for keys."""
    fields = {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape}
    fields[b"data"] = array.tobytes()
    return {key.decode(): value for key, value in fields.items()} if text_keys else fields


def value(form: str) -> bytes:
    if form == "npz":
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **UNITER)
        return buffer.getvalue()
    fields = {name: packed(array, form == "text") for name, array in UNITER.items()}
    return msgpack.packb(fields, use_bin_type=True)


def write_lmdb(folder: Path, content: bytes, *, listed: bool = True) -> Path:
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), map_size=1 << 22) as database, database.begin(write=True) as write:
        for name in NAMES:
            write.put(name.encode(), content)
        if listed:
            write.put(b"__keys__", json.dumps(NAMES).encode())
    return folder


@pytest.mark.parametrize("form", ["npz", "bytes", "text"])
def test_uniters_database_is_read_up_to_the_published_number_of_regions(
    tmp_path: Path, form: str
) -> None:
    suffix = "_compressed" if form == "npz" else ""
    folder = write_lmdb(tmp_path / f"feat_th0.2_max100_min10{suffix}", value(form))
    with open_regions(folder) as regions:
        assert regions.keys == ("flickr30k_000000000007", "flickr30k_000000000012")
        tokens = regions.read("flickr30k_000000000012")
        with pytest.raises(RegionError, match="no regions of 'elsewhere'"):
            regions.read("elsewhere")
    assert np.array_equal(tokens.features, FEATURES[:15].astype(np.float32))
    assert np.allclose(tokens.boxes, BOXES[:15], atol=1e-3)
    assert tokens.label_ids[:, 0].tolist() == LABELS[:15].tolist()
    # The folder that holds the database will do, and its list of numbers comes first.
    (tmp_path / "nbb_th0.2_max100_min10.json").write_text(json.dumps({NAMES[0]: 12}))
    with open_regions(tmp_path) as regions:
        assert len(regions.read("flickr30k_000000000007")) == 12
        assert len(regions.read("flickr30k_000000000012")) == 15


def test_other_databases_of_uniter(tmp_path: Path) -> None:
    whole = write_lmdb(tmp_path / "a" / "all", value("bytes"), listed=False)
    with open_regions(whole) as regions:
        assert len(regions.read("flickr30k_000000000007")) == 15
    with open_regions(write_lmdb(tmp_path / "b" / "feat_numbb36", value("npz"))) as regions:
        assert len(regions.read("flickr30k_000000000007")) == 36
    few = write_lmdb(tmp_path / "c" / "feat_th0.6_max100_min10", value("npz"))
    with open_regions(few) as regions:
        assert len(regions.read("flickr30k_000000000007")) == 10
    write_lmdb(tmp_path / "a" / "feat_numbb36", value("npz"))
    with pytest.raises(RegionError, match=r"several databases \(all, feat_numbb36\): name one"):
        open_regions(tmp_path / "a")


def test_an_imported_database_is_found_by_the_datasets_own_file_names(tmp_path: Path) -> None:
    folder = write_lmdb(tmp_path / "feat_th0.2_max100_min10", value("bytes"))
    assert import_regions(folder, tmp_path / "store", dtype="float16", quiet=True).bad == {}
    store = FeatureStore(tmp_path / "store")
    assert store.find(Record(image="flickr30k-images/12.jpg")) == "flickr30k_000000000012"


def test_damaged_values_are_named_and_nothing_is_unpickled(tmp_path: Path) -> None:
    pickled = {"nd": True, "type": "|O", "kind": "O", "shape": (1,), "data": b"cos\nsystem\n."}
    folder = write_lmdb(tmp_path / "objects", msgpack.packb({"features": pickled}))
    with open_regions(folder) as regions, pytest.raises(RegionError, match="not read"):
        regions.read("flickr30k_000000000007")
    with (
        open_regions(write_lmdb(tmp_path / "noise", b"\xc1nothing")) as regions,
        pytest.raises(RegionError, match="flickr30k_000000000007: cannot be read"),
    ):
        regions.read("flickr30k_000000000007")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "data.mdb").write_bytes(b"nothing of the kind" * 300)
    with pytest.raises(RegionError, match="cannot be read as LMDB"):
        open_regions(tmp_path / "broken")


@pytest.mark.parametrize("package", ["lmdb", "h5py"])
def test_missing_packages_are_named(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def importing(name: str, *rest: Any, **named: Any) -> Any:
        if name == package:
            raise ModuleNotFoundError(name)
        return original(name, *rest, **named)

    path = tmp_path / "m3p.h5"
    if package == "lmdb":
        path = write_lmdb(tmp_path / "all", value("bytes"))
    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(PolyglanceError, match=r"pip install 'polyglance\[regions\]'"):
        open_regions(path)


@pytest.mark.parametrize("layout", ["objects", "object", "distribution"])
def test_m3ps_arrays_are_read(tmp_path: Path, layout: str) -> None:
    """Three pictures 640 wide and 480 high; the second has fewer boxes than the rest."""
    path, shape = tmp_path / "train_0.h5", (3, COUNT)
    with h5py.File(path, "w") as file:
        file["image_id"] = np.array([b"1000092795", b"10002456", b"1000268201"])
        file["wh"] = np.tile([480, 640], (3, 1))
        file["num_boxes"] = np.array([COUNT, 25, COUNT])
        file["features"] = np.tile(FEATURES, (3, 1, 1))
        pixels = np.tile(BOXES * [640, 480, 640, 480], (3, 1, 1)).astype(np.float32)
        file["boxes" if layout == "object" else "bbox"] = pixels
        if layout == "distribution":
            file["distribution"] = np.tile(SOFT_LABELS, (3, 1, 1))
        else:
            file[layout] = np.broadcast_to(LABELS, shape)
    with open_regions(path) as regions:
        assert regions.keys == ("1000092795", "10002456", "1000268201")
        tokens = regions.read("10002456")
        assert len(regions.read("1000268201")) == COUNT
        with pytest.raises(RegionError, match="no regions of 'features'"):
            regions.read("features")
    assert np.array_equal(tokens.features, FEATURES[:25].astype(np.float32))
    assert np.allclose(tokens.boxes, BOXES[:25], atol=1e-5)
    assert tokens.label_ids[:, 0].tolist() == LABELS[:25].tolist()


def test_m3ps_boxes_outside_the_picture_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "train_0.h5", "w") as file:
        file["image_id"], file["wh"] = np.array([b"7"]), np.array([[640, 200]])
        file["features"], file["bbox"] = FEATURES[None], BOXES[None] * [640, 200, 640, 200]
    with (
        open_regions(tmp_path / "train_0.h5") as regions,
        pytest.raises(RegionError, match="outside the picture"),
    ):
        regions.read("7")

"""Precomputed regions in all supported layouts."""

from __future__ import annotations

import base64
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.published.regions import write_region_npz, write_region_tsv
from helpers.published.sentences import rows
from polyglance.errors import PolyglanceError
from polyglance.vision.region_import import import_regions
from polyglance.vision.regions import RegionError, open_regions
from polyglance.vision.store import FeatureStore

WIDTH, HEIGHT, COUNT = 200, 100, 3
BOXES = np.array([[0, 0, 200, 100], [50, 25, 100, 50], [-1, 90, 201, 100]], np.float32)
FRACTIONS = [[0, 0, 1, 1], [0.25, 0.25, 0.5, 0.5], [0, 0.9, 1, 1]]
FEATURES = np.random.default_rng(0).normal(size=(COUNT, 8)).astype(np.float32)
IDS = np.array([7, 1600, 0], np.int64)
CONFIDENCE = np.array([0.5, 0.25, 1], np.float32)


def text(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def bottom_up_line(key: str = "42") -> str:
    return "\t".join([key, str(WIDTH), str(HEIGHT), str(COUNT), text(BOXES), text(FEATURES)])


def lxmert_line(key: str = "42") -> str:
    labels = [text(IDS), text(CONFIDENCE), text(IDS), text(CONFIDENCE)]
    return "\t".join(
        [key, str(HEIGHT), str(WIDTH), *labels, str(COUNT), text(BOXES), text(FEATURES)]
    )


def write_tsv(path: Path, line) -> Path:
    path = path / "regions.tsv"
    path.write_text("\n".join([line("41"), line("42"), line("43")]) + "\n")
    return path


def write_npz(path: Path, **arrays) -> Path:
    folder = path / "npz"
    folder.mkdir()
    for key in ("41", "42", "43"):
        np.savez(folder / f"{key}.npz", **arrays)
    return folder


def soft_labels() -> np.ndarray:
    distribution = np.full((COUNT, 1601), 1e-6, np.float32)
    distribution[np.arange(COUNT), IDS] = CONFIDENCE
    return distribution


UNIT = np.concatenate([FRACTIONS, np.ones((COUNT, 2))], axis=1).astype(np.float16)


def write(layout: str, path: Path) -> Path:
    sizes = {"image_w": WIDTH, "image_h": HEIGHT}
    match layout:
        case "bottom-up":
            return write_tsv(path, bottom_up_line)
        case "lxmert":
            return write_tsv(path, lxmert_line)
        case "bottom-up-pytorch":  # with its pickled dict, which must not be opened
            info = np.array({"objects_id": IDS}, dtype=object)
            return write_npz(path, x=FEATURES, bbox=BOXES, num_bbox=COUNT, info=info, **sizes)
        case "named":
            return write_npz(path, features=FEATURES, boxes=BOXES, objects_id=IDS,
                             objects_conf=CONFIDENCE, **sizes)  # fmt: skip
        case "uniter":
            return write_npz(path, features=FEATURES.astype(np.float16), norm_bb=UNIT,
                             conf=CONFIDENCE, soft_labels=soft_labels())  # fmt: skip
        case "volta":
            place = path / "regions.h5"
            with h5py.File(place, "w") as file:
                for key in ("41", "42", "43"):
                    group = file.create_group(key)
                    group["features"], group["boxes"] = FEATURES, BOXES
                    group["obj_id"], group["obj_conf"] = IDS, CONFIDENCE
                    group["attr_id"], group["attr_conf"] = IDS, CONFIDENCE
                    group["img_w"], group["img_h"] = WIDTH, HEIGHT
            return place
    raise AssertionError(layout)


LAYOUTS = ["bottom-up", "lxmert", "bottom-up-pytorch", "named", "uniter", "volta"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_tokens(tmp_path, layout):
    with open_regions(write(layout, tmp_path)) as regions:
        assert regions.keys == ("41", "42", "43")
        tokens = regions.read("42")
    assert np.allclose(tokens.features, FEATURES, atol=2e-3)
    assert np.allclose(tokens.boxes, FRACTIONS, atol=1e-3)
    assert np.allclose(tokens.global_feature, FEATURES.mean(0), atol=2e-3)
    assert not tokens.spans.any()
    if layout.startswith("bottom-up"):
        assert tokens.label_ids.shape == (COUNT, 0)
    else:
        assert tokens.label_ids.tolist() == [[7], [1600], [0]]
        assert tokens.label_probs.tolist() == [[0.5], [0.25], [1]]


def test_the_most_likely_classes_of_a_distribution_are_kept(tmp_path):
    with open_regions(write("uniter", tmp_path)) as regions:
        tokens = regions.read("41", labels=3)
    assert tokens.label_ids.shape == (COUNT, 3)
    assert tokens.label_ids[:, 0].tolist() == IDS.tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_unknown_key_raises_a_region_error(tmp_path, layout):
    with open_regions(write(layout, tmp_path)) as regions, pytest.raises(RegionError):
        regions.read("44")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"features": FEATURES[:2]}, "each of the 2 regions"),
        ({"features": FEATURES[0]}, "one vector"),
        ({"features": np.full((COUNT, 8), np.nan)}, "numbers"),
        ({"features": np.array(["a"])}, "numbers"),
        ({"boxes": BOXES[:, :3]}, "four numbers"),
        ({"boxes": BOXES * 10}, "outside"),
        ({"image_w": 0}, "width and height"),
        ({"image_w": np.array([1, 2])}, "width and height"),
        ({"objects_id": IDS[:1]}, "label for each"),
        ({"objects_id": IDS - 1}, "0 to 65535"),
        ({"objects_conf": CONFIDENCE * np.nan}, "label for each"),
    ],
)
def test_inconsistent_arrays_are_refused(tmp_path, change, complaint):
    arrays = {"features": FEATURES, "boxes": BOXES, "image_w": WIDTH, "image_h": HEIGHT,
              "objects_id": IDS, "objects_conf": CONFIDENCE}  # fmt: skip
    folder = write_npz(tmp_path, **(arrays | change))
    with pytest.raises(RegionError, match=complaint) as caught:
        open_regions(folder).read("42")
    assert "42.npz" in str(caught.value)


def test_a_malformed_line_is_named_by_its_number(tmp_path):
    path = tmp_path / "regions.tsv"
    broken = bottom_up_line("2").replace(text(BOXES), "no base64!")
    path.write_text("\n".join([bottom_up_line("1"), "", broken, "3\tx", "4\t1\t1\t-1\t\t"]))
    with open_regions(path) as regions:
        assert regions.keys == ("1", "2", "3", "4")
        assert len(regions.read("1")) == COUNT
        with pytest.raises(RegionError, match=r"regions\.tsv:3: column 'boxes'"):
            regions.read("2")
        with pytest.raises(RegionError, match=r"regions\.tsv:4: expected 6 or 10 columns, found 2"):
            regions.read("3")
        with pytest.raises(RegionError, match=r"regions\.tsv:5"):
            regions.read("4")


def test_other_files_raise_a_region_error(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"no HDF5")
    for name in ("a.h5", "missing.h5", "missing.tsv", "a.csv", "."):
        with pytest.raises(RegionError):
            open_regions(tmp_path / name)


LINE = lxmert_line().encode()


@settings(max_examples=100, deadline=None)
@given(
    layout=st.sampled_from(["tsv", "npz", "h5"]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
    keep=st.floats(0, 1),
)
def test_a_mangled_file_gives_tokens_or_a_region_error(tmp_path_factory, layout, changes, keep):
    folder = Path(tmp_path_factory.mktemp("mangled"))
    if layout == "tsv":
        path = source = folder / "regions.tsv"
        path.write_bytes(LINE)
    elif layout == "npz":
        source = write("named", folder)
        path = source / "42.npz"
    else:
        path = source = write("volta", folder)
    data = bytearray(path.read_bytes())
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path.write_bytes(data[: int(keep * len(data)) + 1])
    try:
        with open_regions(source) as regions:
            key = "42" if layout == "npz" else regions.keys[0] if regions.keys else "none"
            width = regions.read(key).boxes.shape[1]
    except RegionError:
        width = 4
    assert width == 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_regions_are_imported_into_a_store(tmp_path, layout):
    result = import_regions(write(layout, tmp_path), tmp_path / "store", dtype="float16")
    store = FeatureStore(tmp_path / "store")
    assert store.keys == ("41", "42", "43")
    assert result.items == 3
    assert np.allclose(store["43"].features, FEATURES, atol=3e-3)
    assert np.allclose(store["43"].boxes, FRACTIONS, atol=1e-3)


def test_bad_regions_are_named_and_skipped(tmp_path):
    folder = write("named", tmp_path)
    np.savez(folder / "42.npz", features=FEATURES[:, :5], boxes=BOXES, image_w=WIDTH,
             image_h=HEIGHT, objects_id=IDS)  # fmt: skip
    (folder / "43.npz").write_bytes(b"")
    result = import_regions(folder, tmp_path / "store")
    assert set(result.bad) == {"42", "43"}
    assert FeatureStore(tmp_path / "store").keys == ("41",)
    (folder / "41.npz").write_bytes(b"")
    (folder / "42.npz").write_bytes(b"")
    with pytest.raises(RegionError, match=r"41\.npz"):
        import_regions(folder, tmp_path / "another")


def test_repaired_regions_are_added(tmp_path):
    folder = write("named", tmp_path)
    sound = (folder / "43.npz").read_bytes()
    (folder / "43.npz").write_bytes(b"")
    assert set(import_regions(folder, tmp_path / "store").bad) == {"43"}
    assert import_regions(folder, tmp_path / "store").done_before == 3
    (folder / "43.npz").write_bytes(sound)
    assert import_regions(folder, tmp_path / "store").bad == {}
    assert FeatureStore(tmp_path / "store").keys == ("41", "42", "43")
    assert not (tmp_path / "store" / "bad.txt").exists()


def test_invalid_import_settings_are_refused(tmp_path):
    folder = write("named", tmp_path)
    with pytest.raises(PolyglanceError, match="labels must be 0 or more, not -1"):
        import_regions(folder, tmp_path / "store", labels=-1)
    with pytest.raises(PolyglanceError, match="int8 or float16, not 'int4'"):
        import_regions(folder, tmp_path / "store", dtype="int4")
    assert not (tmp_path / "store").exists()
    with pytest.raises(PolyglanceError, match="cannot be written"):
        import_regions(folder, folder / "41.npz" / "store")


def test_several_files_become_one_store(tmp_path: Path) -> None:
    first = write_region_tsv(tmp_path / "train.tsv", ["1", "2"])
    second = write_region_npz(tmp_path / "val", ["2", "3"], classes=4)
    result = import_regions([first, second], tmp_path / "store", labels=0, dtype="float16")
    assert result.bad == {}
    store = FeatureStore(tmp_path / "store")
    assert store.keys == ("1", "2", "3")
    # The first file that has a picture counts.
    assert np.allclose(store["2"].features, rows("2", 3, 8), atol=1e-2)
    assert store.info.made_by == {"regions": "train.tsv, val"}

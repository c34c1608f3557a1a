"""Reading and writing the feature store."""

from __future__ import annotations

import json
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record
from polyglance.vision.store import FeatureStore, StoreInfo, hash_keys, shard_path
from polyglance.vision.store_writer import BadItem, StoreWriter, quantise
from polyglance.vision.tokens import VisualTokens, feature_key, zero_spans

WIDTH, LABELS = 24, 3


def tokens(seed: int, count: int) -> VisualTokens:
    random = np.random.default_rng(seed)
    return VisualTokens(
        features=random.normal(size=(count, WIDTH)).astype(np.float32),
        boxes=random.random((count, 4), np.float32),
        global_feature=random.normal(size=WIDTH).astype(np.float32),
        label_ids=random.integers(0, 1000, (count, LABELS)).astype(np.uint16),
        label_probs=random.random((count, LABELS)).astype(np.float16),
        spans=random.random((count, 2), np.float32),
    )


# Items of different lengths, one of them without tokens and one that could not be read.
ITEMS = {f"{i}.jpg": tokens(i, (i * 7) % 5) for i in range(11)} | {"bad.jpg": BadItem("is empty")}
KEYS = list(ITEMS)
GOOD = {key: item for key, item in ITEMS.items() if isinstance(item, VisualTokens)}


def info(**changes) -> StoreInfo:
    fields = {
        "made_by": {"backbone": "b", "grid": 7},
        "width": WIDTH,
        "dtype": "int8",
        "labels": LABELS,
        "shard_size": 4,
        "items": len(KEYS),
        "keys_sha256": hash_keys(KEYS),
    }
    return StoreInfo(**(fields | changes))


def write(path: Path, **changes) -> FeatureStore:
    writer = StoreWriter(path, info(**changes), KEYS)
    for number in writer.pending:
        writer.write(number, [ITEMS[key] for key in writer.keys_of(number)])
    assert writer.finish() == {"bad.jpg": "is empty"}
    return FeatureStore(path)


@pytest.fixture(params=["int8", "float16"])
def store(request, tmp_path) -> FeatureStore:
    return write(tmp_path / "store", dtype=request.param)


def test_keys_do_not_include_bad_files(store):
    assert store.keys == tuple(GOOD)
    assert len(store) == 11
    assert store.bad == {"bad.jpg": "is empty"}
    assert store.missing(["3.jpg", "bad.jpg", "other"]) == ["bad.jpg", "other"]
    assert "3.jpg" in store
    assert "bad.jpg" not in store
    assert (store.path / "bad.txt").read_text() == "bad.jpg\tis empty\n"


def close(ours, theirs, dtype) -> bool:
    """Whether values agree within the rounding of int8 (1/254 of a vector's maximum) or float16."""
    step = np.abs(theirs).max(-1, keepdims=True, initial=0) / (253 if dtype == "int8" else 2000)
    return bool((np.abs(ours - theirs) <= step).all())


def test_tokens_are_read_as_written_up_to_rounding(store):
    for key, item in GOOD.items():
        out = store[key]
        assert len(out) == len(item)
        assert close(out.features, item.features, store.info.dtype)
        assert close(out.global_feature, item.global_feature, store.info.dtype)
        for name in ("boxes", "label_ids", "label_probs", "spans"):
            assert np.array_equal(getattr(out, name), getattr(item, name))
            assert getattr(out, name).dtype == getattr(item, name).dtype


def test_gather_equals_concatenated_items(store):
    wanted = ["9.jpg", "2.jpg", "5.jpg", "2.jpg", "10.jpg", "0.jpg"]
    packed = store.gather(wanted)
    one_by_one = [store[key] for key in wanted]
    assert packed.lengths.tolist() == [len(item) for item in one_by_one]
    assert packed.features.dtype == np.dtype(store.info.dtype)
    features = np.concatenate([item.features for item in one_by_one])
    assert np.array_equal(packed.dense(), features.astype(np.float32))
    global_features = np.stack([item.global_feature for item in one_by_one])
    assert np.array_equal(packed.dense_global(), global_features.astype(np.float32))
    for name in ("boxes", "label_ids", "label_probs", "spans"):
        joined = np.concatenate([getattr(item, name) for item in one_by_one])
        assert np.array_equal(getattr(packed, name), joined)


def test_gather_without_keys_is_empty(store):
    packed = store.gather([])
    assert packed.features.shape == (0, WIDTH)
    assert packed.global_features.shape == (0, WIDTH)
    assert packed.lengths.shape == (0,)


def test_float16_features_are_views_of_the_file(tmp_path):
    store = write(tmp_path / "store", dtype="float16")
    assert not store["3.jpg"].features.flags.owndata
    assert not store["3.jpg"].boxes.flags.owndata


def test_a_missing_key_says_why(store):
    with pytest.raises(PolyglanceError, match=r"'other'.*is not in the store"):
        store["other"]
    with pytest.raises(PolyglanceError, match="is empty"):
        store.gather(["0.jpg", "bad.jpg"])


def test_a_pickled_store_maps_the_files_again(store):
    parcel = pickle.dumps(store)
    assert len(parcel) < 1000
    again = pickle.loads(parcel)
    assert np.array_equal(again["3.jpg"].features, store["3.jpg"].features)


def test_records_find_their_features(tmp_path):
    keys = ["images/a.jpg", "clip.mp4#t=1.5,4", "COCO_val_42", "77"]
    plain = info(items=4, keys_sha256=hash_keys(keys))
    writer = StoreWriter(tmp_path / "store", plain, keys)
    writer.write(0, [tokens(i, 2) for i in range(4)])
    store = FeatureStore(tmp_path / "store")
    assert store.find(Record(image="images/a.jpg", id="x")) == "images/a.jpg"
    assert store.find(Record(video="clip.mp4", span=(1.5, 4.0))) == "clip.mp4#t=1.5,4"
    assert store.find(Record(video="clip.mp4")) is None
    assert store.find(Record(image="val/COCO_val_42.jpg")) == "COCO_val_42"
    assert store.find(Record(image="b.jpg", id="77")) == "77"
    assert store.find(Record()) is None
    assert feature_key(Record()) == ""


def test_quantise_by_hand():
    values, scales = quantise(np.array([[1.27, -0.635, 0.004], [0, 0, 0]], np.float32))
    assert values.tolist() == [[127, -64, 0], [0, 0, 0]]
    assert scales == pytest.approx([0.01, 0])


def test_large_values_stay_finite_in_float16(tmp_path):
    item = tokens(0, 1)
    item.features[0, 0] = 1e6
    one = info(dtype="float16", items=1, keys_sha256=hash_keys(["a"]))
    StoreWriter(tmp_path / "store", one, ["a"]).write(0, [item])
    assert np.isfinite(FeatureStore(tmp_path / "store")["a"].features).all()


def same_bytes(one: Path, other: Path) -> bool:
    def files(path: Path) -> dict[str, bytes]:
        files = (file for file in path.rglob("*") if file.is_file())
        return {str(file.relative_to(path)): file.read_bytes() for file in files}

    return files(one) == files(other)


def test_a_store_written_in_several_runs_is_the_same(tmp_path):
    write(tmp_path / "one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "store.json.partial").write_bytes(b"killed")
    first = StoreWriter(tmp_path / "two", info(), KEYS)
    first.write(1, [ITEMS[key] for key in first.keys_of(1)])
    (tmp_path / "two" / "shards" / "00002.safetensors.partial").write_bytes(b"killed")
    with pytest.raises(DataError, match="not finished"):
        FeatureStore(tmp_path / "two")
    assert StoreWriter(tmp_path / "two", info(), KEYS).pending == [0, 2]
    write(tmp_path / "two")
    assert same_bytes(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"made_by": {"backbone": "c", "grid": 7}}, "made with backbone 'b', not 'c'"),
        ({"made_by": {"backbone": "b", "grid": 3}}, "made with grid 7, not 3"),
        ({"dtype": "float16"}, "made with dtype 'int8'"),
        ({"shard_size": 5}, "made with shard_size 4"),
        ({"keys_sha256": hash_keys(["x"])}, "another list of pictures"),
    ],
)
def test_other_settings_are_refused(tmp_path, changes, complaint):
    write(tmp_path / "store")
    with pytest.raises(PolyglanceError, match=complaint):
        StoreWriter(tmp_path / "store", info(**changes), KEYS)


def test_folders_with_other_files_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(PolyglanceError, match="other files"):
        StoreWriter(tmp_path, info(), KEYS)
    with pytest.raises(PolyglanceError, match="other files"):
        StoreWriter(tmp_path / "thesis.tex", info(), KEYS)


def test_a_second_writer_is_refused(tmp_path):
    one, other = (StoreWriter(tmp_path / "store", info(), KEYS) for _ in range(2))
    with (
        one.exclusive(),
        pytest.raises(PolyglanceError, match="another process"),
        other.exclusive(),
    ):
        pass
    with other.exclusive():
        assert other.pending


@pytest.mark.parametrize("changes", [{"dtype": "int4"}, {"shard_size": 0}])
def test_invalid_settings_are_refused(tmp_path, changes):
    with pytest.raises(PolyglanceError):
        StoreWriter(tmp_path / "store", info(**changes), KEYS)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 1}', '{"version": 9}', "\xff"],
)
def test_a_folder_that_is_not_a_store_raises_a_data_error(tmp_path, text):
    with pytest.raises(DataError, match=r"has no store\.json"):
        FeatureStore(tmp_path)
    (tmp_path / "store.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError):
        FeatureStore(tmp_path)


@pytest.mark.parametrize("changes", [{"shard_size": "4"}, {"items": None}, {"made_by": []}])
def test_invalid_store_json_raises_a_data_error(tmp_path, changes):
    write(tmp_path / "store")
    place = tmp_path / "store" / "store.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))
    with pytest.raises(DataError):
        FeatureStore(tmp_path / "store")


def test_a_damaged_or_foreign_shard_is_refused_on_opening(tmp_path):
    write(tmp_path / "store")
    place = shard_path(tmp_path / "store", 1)
    data = place.read_bytes()
    place.write_bytes(data[:-1])
    with pytest.raises(DataError, match="damaged"):
        FeatureStore(tmp_path / "store")
    write(tmp_path / "other", dtype="float16")
    place.write_bytes(shard_path(tmp_path / "other", 1).read_bytes())
    with pytest.raises(DataError, match="does not fit"):
        FeatureStore(tmp_path / "store")
    place.unlink()
    write(tmp_path / "store")
    assert place.read_bytes() == data


@pytest.mark.parametrize(
    ("image", "key"),
    [
        ("val2014/COCO_val2014_000000391895.jpg", "391895"),
        ("COCO_val2014_000000391895.jpg", "coco_val2014_000000391895"),
        ("1000092795.jpg", "flickr30k_001000092795"),
        ("dog_391895.jpg", None),
    ],
)
def test_published_regions_are_found_under_their_own_names(
    tmp_path: Path, image: str, key: str | None
) -> None:
    keys = [key or "391895"]
    info = StoreInfo({"regions": "x.tsv"}, 2, "float16", 0, 4, 1, hash_keys(keys))
    writer = StoreWriter(tmp_path, info, keys)
    vector = np.zeros((1, 2), np.float16)
    none = np.zeros((1, 0))
    tokens = VisualTokens(
        vector,
        np.zeros((1, 4), np.float32),
        vector[0],
        none.astype(np.uint16),
        none.astype(np.float16),
        zero_spans(1),
    )
    writer.write(0, [tokens])
    writer.finish()
    assert FeatureStore(tmp_path).find(Record(image=image)) == key


def test_store_may_have_more_files_than_may_be_open_by_default(tmp_path: Path) -> None:
    keys = [f"v{number}" for number in range(40)]
    settings = info(shard_size=1, items=len(keys), keys_sha256=hash_keys(keys))
    writer = StoreWriter(tmp_path / "store", settings, keys)
    for number in writer.pending:
        writer.write(number, [tokens(number, 1)])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 20, limits[1]))
    try:
        store = FeatureStore(tmp_path / "store")
        assert len(store["v39"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

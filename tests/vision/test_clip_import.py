"""Features of video networks, in the files that extractors write, imported into a store."""

from __future__ import annotations

import io
import pickle
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record
from polyglance.vision.clip_features import open_clip_features
from polyglance.vision.clip_import import import_clip_features
from polyglance.vision.feature_sources import open_features
from polyglance.vision.store import FeatureStore

WIDTH = 6


@pytest.fixture
def features() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    lengths = {"video0": 3, "-4wsuPCjDBc_5_15": 1, "video10": 7}
    return {name: random.normal(size=(n, WIDTH)).astype("f4") for name, n in lengths.items()}


def write(path: Path, form: str, features: dict[str, np.ndarray]) -> Path:
    """Lay features out as extractors publish them."""
    if form == "one.h5":
        with h5py.File(path.with_suffix(".h5"), "w") as file:
            for name, rows in features.items():
                file[name] = rows
        return path.with_suffix(".h5")
    if form == "groups.h5":
        with h5py.File(path.with_suffix(".h5"), "w") as file:
            for name, rows in features.items():
                file[f"{name}/features"], file[f"{name}/times"] = rows, np.arange(len(rows))
        return path.with_suffix(".h5")
    path.mkdir()
    for number, (name, rows) in enumerate(features.items()):
        file = path / (f"part{number}/{name}" if form == "nested.npy" else name)
        file.parent.mkdir(exist_ok=True)
        target = file.with_name(f"{file.name}.{form.rpartition('.')[2]}")
        if form.endswith("npy"):
            np.save(target, rows.astype("f2") if form == "half.npy" else rows)
        elif form == "npz":
            np.savez(target, features=rows, fps=30)
        elif form == "pt":
            torch.save({"features": torch.from_numpy(rows)[:, :, None, None]}, target)
        elif form == "tensor.pt":
            torch.save(torch.from_numpy(rows)[None], target)
        else:
            with h5py.File(target, "w") as opened:
                opened["s3d"] = rows
    return path


@pytest.mark.parametrize(
    "form", ["npy", "half.npy", "nested.npy", "npz", "pt", "tensor.pt", "h5", "one.h5", "groups.h5"]
)
def test_all_layouts_give_the_same_store(
    form: str, features: dict[str, np.ndarray], tmp_path: Path
) -> None:
    source = write(tmp_path / "source", form, features)
    result = import_clip_features(source, tmp_path / "store", dtype="float16", quiet=True)
    assert (result.items, result.bad) == (3, {})
    store = FeatureStore(tmp_path / "store")
    assert set(store) == set(features)
    for name, rows in features.items():
        np.testing.assert_allclose(store[name].features, rows, atol=4e-3)
        np.testing.assert_allclose(store[name].global_feature, rows.mean(0), atol=4e-3)
        assert store[name].spans.tolist() == [[n, n + 1] for n in range(len(rows))]


def test_command_imports_what_recipes_find_by_file_name(
    features: dict[str, np.ndarray], tmp_path: Path
) -> None:
    source = write(tmp_path / "source", "npy", features)
    np.save(source / "empty.npy", np.zeros((0, WIDTH)))
    np.save(source / "wide.npy", np.zeros((2, WIDTH + 1)))
    np.save(source / "nan.npy", np.full((2, WIDTH), np.nan))
    (source / "torn.npy").write_bytes(b"\x93NUMPY")
    arguments = ["features", "import", source, "--out", tmp_path / "store"]
    done = CliRunner().invoke(app, [*map(str, arguments), "--features-per-second", "2", "-q"])
    assert done.exit_code == 0, done.output
    assert "3 of 7 stored" in done.output
    store = FeatureStore(tmp_path / "store")
    assert set(store.bad) == {"empty", "wide", "nan", "torn"}
    assert "expected finite numbers" in store.bad["nan"]
    assert "width of 7, those of the first 6" in store.bad["wide"]
    assert store["video0"].spans.tolist() == [[0, 0.5], [0.5, 1], [1, 1.5]]
    opened = open_features([tmp_path / "store"])
    name = opened.find(Record(video="TrainValVideo/video10.mp4"))
    assert name == "video10"
    assert opened.rows(name).shape == (7, WIDTH)


def test_interrupted_import_continues(features: dict[str, np.ndarray], tmp_path: Path) -> None:
    source = write(tmp_path / "source", "npy", features)
    import_clip_features(source, tmp_path / "store", shard_size=1, quiet=True)
    shards = sorted((tmp_path / "store" / "shards").iterdir())
    content = shards[1].read_bytes()
    shards[1].unlink()
    result = import_clip_features(source, tmp_path / "store", shard_size=1, quiet=True)
    assert (result.items, result.done_before) == (3, 2)
    assert shards[1].read_bytes() == content


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "harm",)  # type: ignore[return-value]

    source = tmp_path / "source"
    source.mkdir()
    torch.save(Harmful(), source / "a.pt")
    np.save(source / "b.npy", np.array([Harmful()]), allow_pickle=True)
    buffer = io.BytesIO()
    pickle.dump(Harmful(), buffer)
    (source / "c.npz").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="none of 3 videos can be read"):
        import_clip_features(source, tmp_path / "store", quiet=True)
    assert not (tmp_path / "harm").exists()


def test_wrong_sources_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice").mkdir()
    np.save(tmp_path / "twice" / "a.npy", np.ones((1, 2)))
    torch.save(torch.ones(1, 2), tmp_path / "twice" / "a.pt")
    (tmp_path / "torn.h5").write_bytes(b"no")
    for name, message in {
        "empty": "holds no features; expected one file a video",
        "twice": "of the same video 'a': import the features of one network at a time",
        "torn.h5": "cannot be read as HDF5",
        "missing": "expected a folder with one file a video",
    }.items():
        with pytest.raises(DataError, match=message):
            open_clip_features(tmp_path / name)
    with pytest.raises(PolyglanceError, match="features_per_second is 0: give a number above 0"):
        import_clip_features(tmp_path / "twice", tmp_path / "out", features_per_second=0)


def test_memory_depends_on_a_shard_and_not_on_the_number_of_videos(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rows = np.zeros((128, 512), np.float32)
    for number in range(64):
        np.save(source / f"v{number}.npy", rows)
    tracemalloc.start()
    try:
        import_clip_features(source, tmp_path / "store", shard_size=2, quiet=True)
        store = FeatureStore(tmp_path / "store")
        assert sum(len(store[key]) for key in store) == 64 * 128
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * rows.nbytes  # two videos and copies of them, of 64

"""Features by record, from a store or an .npz file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.toy_clips import write_store
from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.mmp.feature_sources import feature_table, open_features
from polyglance.records import Record

A, B = Record(video="clips/a.mp4"), Record(video="x.mp4", id="b", span=(1, 2))


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    features = np.arange(2 * 3 * 4, dtype=np.int8).reshape(2, 3, 4)
    return {"ids": np.array(["a", "b"]), "features": features}


def test_npz_features_are_scaled_and_cut_to_length(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    scale = np.array([[[0.5], [1], [2]], [[1], [1], [1]]], np.float16)
    np.savez(tmp_path / "f.npz", **arrays, scale=scale, lengths=np.array([2, 3]))
    source = open_features([tmp_path / "f.npz"])
    assert source.width == 4
    assert source.find(Record(video="c.mp4")) is None
    name = source.find(A)  # by its file's name
    assert name == "a"
    assert source.rows(name).tolist() == [[0, 0.5, 1, 1.5], [4, 5, 6, 7]]
    assert source.find(B) == "b"  # by its id
    assert source.rows("b").tolist() == arrays["features"][1].tolist()


def test_store_features_with_and_without_global_vector(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = {"clips/a.mp4": random.normal(size=(3, 4)), "x.mp4#t=1,2": random.normal(size=(2, 4))}
    write_store(tmp_path / "store", rows)
    source = open_features([tmp_path / "store"])
    for record, wanted in zip((A, B), rows.values(), strict=True):
        name = source.find(record)
        assert name is not None
        np.testing.assert_allclose(source.rows(name), wanted, atol=2e-3)
    whole = open_features([tmp_path / "store"], prepend_global=True)
    first, *others = whole.rows("clips/a.mp4")
    np.testing.assert_allclose(first, rows["clips/a.mp4"].mean(0), atol=2e-3)
    np.testing.assert_allclose(others, rows["clips/a.mp4"], atol=2e-3)


def test_features_of_two_networks_are_concatenated(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    np.savez(tmp_path / "one.npz", **arrays)
    two = {"ids": np.array(["b", "a"]), "features": -np.ones((2, 2, 5), np.float32)}
    np.savez(tmp_path / "two.npz", **two)
    source = open_features([tmp_path / "one.npz", tmp_path / "two.npz"])
    assert source.width == 9
    name = source.find(A)
    assert name is not None
    assert source.rows(name).tolist() == [[0, 1, 2, 3] + [-1] * 5, [4, 5, 6, 7] + [-1] * 5]
    np.savez(tmp_path / "two.npz", ids=two["ids"][:1], features=two["features"][:1])
    source = open_features([tmp_path / "one.npz", tmp_path / "two.npz"])
    assert source.find(A) is None
    assert source.find(B) is not None


def test_records_without_features_are_skipped_and_counted(
    tmp_path: Path, arrays: dict[str, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    source = open_features([tmp_path / "f.npz"])
    records, table = feature_table([B, Record(video="c"), A], source, max_tokens=2)
    assert records == [B, A]
    assert table.lengths.tolist() == [2, 2]
    rows, _ = table.rows(np.array([1]), None)
    assert rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert "1 of 3 records have no features" in capsys.readouterr().err
    with pytest.raises(PolyglanceError, match="none of 1 records has features, such as 'c'"):
        feature_table([Record(video="c")], source)


def test_invalid_feature_files_are_rejected(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(DataError, match=r"no such features; 'polyglance features extract'"):
        open_features([tmp_path / "none"])
    with pytest.raises(PolyglanceError, match="needs features"):
        open_features([])
    path = tmp_path / "f.npz"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        open_features([path])
    np.savez(path, ids=arrays["ids"])
    with pytest.raises(DataError, match="expected arrays 'ids' and 'features'"):
        open_features([path])
    np.savez(path, ids=arrays["ids"][:1], features=arrays["features"])
    with pytest.raises(DataError, match="expected features of shape"):
        open_features([path])
    np.save(tmp_path / "f.npy", arrays["features"])
    (tmp_path / "f.npy").rename(path)
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        open_features([path])

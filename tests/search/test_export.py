from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.colour_encoder import write_clip, write_random_images
from polyglance.errors import PolyglanceError
from polyglance.search import sql_store
from polyglance.search.library import Library


@pytest.fixture
def filled(library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """A library of five pictures and a clip of two spans, read in several blocks."""
    monkeypatch.setattr(sql_store, "READ_BLOCK", 3)
    write_random_images(photos, 5)
    write_clip(photos / "clip.mp4", [("red", 5), ("blue", 5)])
    library.add(photos)
    return library


def test_vectors_as_npy_with_lines_that_say_what_they_are_of(
    filled: Library, tmp_path: Path
) -> None:
    written = filled.export(tmp_path / "out" / "vectors.npy")
    vectors = np.load(tmp_path / "out" / "vectors.npy")
    lines = (tmp_path / "out" / "vectors.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    assert written.files == (tmp_path / "out" / "vectors.npy", tmp_path / "out" / "vectors.jsonl")
    assert vectors.shape == (written.vectors, written.width) == (len(items), 12)
    assert vectors.dtype == np.float32
    assert {item["path"] for item in items} == {str(item.path) for item in filled}
    for row, item in zip(vectors, items, strict=True):
        media = filled.get(item["id"])
        assert media is not None
        assert (str(media.path), media.kind) == (item["path"], item["kind"])
        assert media.span == (None if item["start"] is None else (item["start"], item["end"]))
        np.testing.assert_array_equal(row, filled.vector(media))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "vectors.jsonl", "vectors.npy",
    ]  # fmt: skip


def test_vectors_as_parquet(filled: Library, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    filled.export(tmp_path / "vectors.npy")
    filled.export(tmp_path / "vectors.parquet")
    table = parquet.read_table(tmp_path / "vectors.parquet")
    expected = (tmp_path / "vectors.jsonl").read_text(encoding="utf-8").splitlines()
    rows = table.drop(["vector"]).to_pylist()
    assert [{**row, "taken": row["taken"].isoformat()} for row in rows] == [
        json.loads(line) for line in expected
    ]
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    np.testing.assert_array_equal(vectors, np.load(tmp_path / "vectors.npy"))
    assert table.schema.metadata[b"model"] == b"colours"


def test_nothing_is_replaced_unasked(filled: Library, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("mine")
    with pytest.raises(PolyglanceError, match=r"a\.jsonl exists: give another name"):
        filled.export(tmp_path / "a.npy")
    assert not (tmp_path / "a.npy").exists()
    assert (tmp_path / "a.jsonl").read_text() == "mine"
    filled.export(tmp_path / "a.npy", overwrite=True)
    assert (tmp_path / "a.jsonl").read_text() != "mine"
    with pytest.raises(PolyglanceError, match=r"ends in \.npy or \.parquet"):
        filled.export(tmp_path / "vectors.csv")

"""Shards are safetensors files, deterministic and written atomically."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.shards import atomic_write, read_shard, write_shard

ARRAYS = {
    "bytes": np.arange(-3, 4, dtype=np.int8),
    "halves": np.array([[0.5, -2]], np.float16),
    "ids": np.array([0, 65535], np.uint16),
    "floats": np.array([[1.5], [np.pi]], np.float32),
    "lengths": np.array([3, 2**40], np.int64),
    "nothing": np.zeros((4, 0), np.float32),
}
NOTES = {"keys": ["é\t", "\udcff"], "bad": {"b": "why", "a": "why not"}}


def test_the_safetensors_library_reads_a_shard(tmp_path):
    path = tmp_path / "shard.safetensors"
    write_shard(path, ARRAYS, NOTES)
    theirs = load_file(path)
    assert set(theirs) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert theirs[name].dtype == array.dtype
        assert np.array_equal(theirs[name], array)
    with safe_open(path, "numpy") as file:
        assert set(file.metadata()) == {"keys", "bad"}


def test_arrays_are_read_as_views_of_the_file(tmp_path):
    path = tmp_path / "shard.safetensors"
    write_shard(path, ARRAYS, NOTES)
    shard = read_shard(path)
    assert shard.metadata == NOTES
    for name, array in ARRAYS.items():
        assert shard.arrays[name].dtype == array.dtype
        assert np.array_equal(shard.arrays[name], array)
        assert shard.arrays[name].flags.aligned
        assert not shard.arrays[name].flags.owndata
        assert not shard.arrays[name].flags.writeable


def test_bytes_do_not_depend_on_the_order_of_arrays(tmp_path):
    write_shard(tmp_path / "a", ARRAYS, NOTES)
    other = {"bad": dict(reversed(NOTES["bad"].items())), "keys": NOTES["keys"]}
    write_shard(tmp_path / "b", dict(reversed(ARRAYS.items())), other)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_is_written_atomically(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    (tmp_path / "file.partial").write_bytes(b"left by a process that was killed")
    with pytest.raises(TypeError), atomic_write(path) as out:
        out.writelines([b"half", None])
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with atomic_write(path) as out:
        out.write(b"new")
    assert path.read_bytes() == b"new"


@settings(max_examples=150, deadline=None)
@given(place=st.floats(0, 1), value=st.binary(max_size=12), keep=st.floats(0, 1))
def test_a_mangled_shard_is_read_or_raises_a_data_error(tmp_path_factory, place, value, keep):
    path = Path(tmp_path_factory.getbasetemp()) / "shard"
    write_shard(path, ARRAYS, NOTES)
    data = bytearray(path.read_bytes())
    start = int(place * len(data))
    data[start : start + len(value)] = value
    path.write_bytes(data[: int(keep * len(data)) + 1])
    try:
        names = set(read_shard(path).arrays)
    except DataError as error:
        names = {str(error)[: len(str(path))]}
    assert names


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(28, "Full")])
def test_a_failed_write_raises_a_polyglance_error(tmp_path, monkeypatch, error):
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("polyglance.vision.shards.os.fsync", refuse)
    complaint = rf"a\.bin: cannot be written \({error.strerror}\)"
    with pytest.raises(PolyglanceError, match=complaint), atomic_write(tmp_path / "a.bin"):
        pass
    assert list(tmp_path.iterdir()) == []

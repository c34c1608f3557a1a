"""Many parts of files are read at once, as if one by one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polyglance.utils import positioned_reads
from polyglance.utils.positioned_reads import read_parts


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    contents = np.random.default_rng(0).integers(0, 256, (5, 10_000), np.uint8)
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content.tobytes())
    descriptors = [os.open(tmp_path / str(number), os.O_RDONLY) for number in range(5)]
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.fixture(params=["at once", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "one by one":
        monkeypatch.setattr(positioned_reads, "_library", lambda: None)
    elif positioned_reads._library() is None:
        pytest.skip("the C library is not glibc")
    return str(request.param)


def test_parts_go_to_their_places(files: list[int], way: str) -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 400, 300)
    offsets, which = rng.integers(0, 9_000, 300), rng.integers(0, 5, 300)
    starts = (np.cumsum(sizes) - sizes)[rng.permutation(300)]
    sizes = np.minimum(sizes, np.append(np.sort(starts), sizes.sum())[
        np.searchsorted(np.sort(starts), starts, side="right")] - starts)  # fmt: skip
    out = np.zeros(int((starts + sizes).max()) + 8, np.uint8)
    counts = read_parts(np.array(files)[which], offsets, sizes, out, starts)
    expected = np.zeros_like(out)
    for file, offset, size, start in zip(which, offsets, sizes, starts, strict=True):
        part = os.pread(files[file], int(size), int(offset))
        expected[start : start + size] = np.frombuffer(part, np.uint8)
    assert (counts == sizes).all()
    assert (out == expected).all()


def test_the_end_of_a_file_is_told(files: list[int], way: str) -> None:
    out = np.zeros((3, 50), np.int16)
    counts = read_parts(
        np.array(files[:3]), np.array([0, 9_990, 20_000]), np.full(3, 100), out, np.arange(3) * 100
    )
    assert counts.tolist() == [100, 10, 0]


def test_what_cannot_be_read_is_an_error(files: list[int], way: str, tmp_path: Path) -> None:
    write_only = os.open(tmp_path / "0", os.O_WRONLY)
    out = np.zeros(200, np.uint8)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_parts(np.array([files[0], write_only]), np.zeros(2, int), np.full(2, 100), out,
                   np.array([0, 100]))  # fmt: skip
    os.close(write_only)


def test_nothing_is_written_outside_the_array(files: list[int], way: str) -> None:
    out = np.zeros(100, np.uint8)
    for start in (-1, 60):
        with pytest.raises(ValueError, match="does not fit"):
            read_parts(np.array(files[:1]), np.array([0]), np.array([50]), out, np.array([start]))
    with pytest.raises(ValueError, match="contiguous"):
        read_parts(np.array(files[:1]), np.array([0]), np.array([5]), out[::2], np.array([0]))


def test_a_signal_does_not_end_reads(files: list[int]) -> None:
    """The wait for the reads ends with a signal, and the reads go on into the array."""
    if positioned_reads._library() is None:
        pytest.skip("the C library is not glibc")
    source, target = os.pipe()
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    main = threading.main_thread().ident
    assert main is not None

    def disturb() -> None:
        for _ in range(50):
            signal.pthread_kill(main, signal.SIGUSR1)
        os.write(target, b"late")

    out = np.zeros(10_004, np.uint8)
    try:
        threading.Thread(target=disturb).start()
        counts = read_parts(np.array([source, files[0]]), np.zeros(2, int), np.array([4, 10_000]),
                            out, np.array([0, 4]))  # fmt: skip
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(source)
        os.close(target)
    assert seen
    assert counts.tolist() == [4, 10_000]
    assert out.tobytes() == b"late" + os.pread(files[0], 10_000, 0)

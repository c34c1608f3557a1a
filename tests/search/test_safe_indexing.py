"""Files that change, vanish or are too much while they are indexed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.colour_encoder import ColourEncoder, write_clip, write_image, write_random_images
from polyglance.search import encoding, indexing, limited_decoding, scan
from polyglance.search.files import content_hash, read_content
from polyglance.search.indexing import Indexer, IndexReport
from polyglance.search.library import Library
from polyglance.search.store import BadFile, Entry, FileSignature
from polyglance.utils import worker_pool
from polyglance.utils.worker_pool import WorkerPool
from polyglance.vision.limited_decoding import DecodeLimits

TRIED_AGAIN = "the next run tries it again"


def index(library: Library, folder: Path, between: Callable[[], object]) -> IndexReport:
    """Index a folder; ``between`` is called once, when the first file was read.

    Threads ask for the encoder before they decode a file: until ``between`` is done, all wait.
    """
    store, pending, lock = library._store(create=True), [between], threading.Lock()

    def encoder() -> ColourEncoder:
        with lock:
            while pending:
                pending.pop()()
        return ColourEncoder()

    store.add_place("walked", str(folder))
    return Indexer(store, encoder).run([str(folder)])


def swap(one: Path, other: Path) -> None:
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)


def assert_vectors_match_hashes(library: Library, files: list[Path]) -> None:
    """Check that each item has the vectors of the file whose hash it has."""
    hashes = {content_hash(str(path)): path for path in files}
    for entry in library._store().entries():
        path = hashes[entry.item.content_hash]
        if entry.item.kind == "picture":
            expected = ColourEncoder().encode_pictures([path])
            np.testing.assert_allclose(entry.vectors, expected, atol=1e-3)


@pytest.mark.parametrize("held", [encoding.MAX_HELD_BYTES, 0], ids=["read once", "read again"])
def test_pictures_that_swap_names_keep_their_own_vectors(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(encoding, "MAX_HELD_BYTES", held)
    files = write_random_images(photos, 20)

    def swap_all() -> None:
        for one, other in zip(files[::2], files[1::2], strict=True):
            swap(one, other)

    index(library, photos, swap_all)
    assert_vectors_match_hashes(library, files)
    library.update()  # a file that had another's name for a moment may have been left for this run
    assert len(library) == 20
    assert_vectors_match_hashes(library, files)
    assert library.verify(files=True) == []


def test_clips_that_swap_names_keep_their_own_vectors(library: Library, photos: Path) -> None:
    red = write_clip(photos / "a.mp4", [("red", 1)])
    blue = write_clip(photos / "b.mp4", [("blue", 1)])
    index(library, photos, lambda: swap(red, blue))
    library.update()
    assert library.search("blue", k=1)[0].path == red
    assert library.search("red", k=1, off=["names"])[0].path == blue
    assert library.verify(files=True) == []


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    sizes = []

    def keep(size: int) -> bool:
        sizes.append(size)
        if len(sizes) == 1:
            path.write_bytes(b"new content")
        return True

    content = read_content(str(path), keep)
    assert content.data == b"new content"
    assert content.signature == FileSignature(11, path.stat().st_mtime_ns)
    with pytest.raises(OSError, match="changes while it is read"):
        read_content(str(path), lambda size: bool(path.write_bytes(b"x" * (size + 1))))


def put_wrong_vectors(library: Library, one: Path, other: Path) -> None:
    """Store each file with the vector of the other, as older versions could."""
    store = library._store()
    entries = [store.entry(str(path)) for path in (one, other)]
    assert entries[0] is not None
    assert entries[1] is not None
    store.delete([str(one), str(other)])
    store.put([replace(entries[0], vectors=entries[1].vectors)])
    store.put([replace(entries[1], vectors=entries[0].vectors)])


def test_wrong_vectors_of_older_versions_are_noticed_and_replaced(
    library: Library, photos: Path
) -> None:
    red, blue = write_image(photos / "a.png", "red"), write_image(photos / "b.png", "blue")
    green = write_image(photos / "c.png", "green")
    library.add(photos)
    put_wrong_vectors(library, red, blue)
    problems = library.verify(files=True)
    assert [problem.split(":")[0] for problem in problems] == [str(red), str(blue)]
    assert "`polyglance index --again`" in problems[0]
    assert library.add(red, blue, again=True).changed == 2
    assert library.verify(files=True) == []
    assert library.search("red", k=1, off=["names"])[0].path == red
    assert library.search("green", k=1)[0].path == green


def test_swapped_files_do_not_copy_wrong_vectors_from_each_other(
    library: Library, photos: Path
) -> None:
    red, blue = write_image(photos / "a.png", "red"), write_image(photos / "b.png", "blue")
    os.utime(red, ns=(1, 1))
    library.add(photos)
    put_wrong_vectors(library, red, blue)
    swap(red, blue)
    library.update()
    assert library.verify(files=True) == []
    assert library.search("blue", k=1)[0].path == red


def test_files_of_one_size_and_time_that_swap_names_between_runs_are_noticed(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    red, blue = (write_image(photos / name, name[:-4]) for name in ("red.bmp", "blue.bmp"))
    for path in (red, blue):
        os.utime(path, ns=(1, 1))
    library.add(photos)
    before = content_hash(str(red))
    swap(red, blue)
    assert FileSignature(red.stat().st_size, 1) == FileSignature(blue.stat().st_size, 1)
    library.update()
    assert library.search("red", k=1, off=["names"])[0].path == blue
    assert library.verify(files=True) == []
    assert content_hash(str(blue)) == before
    read: list[str] = []
    monkeypatch.setattr(indexing.FileEncoder, "read_files", reading(read))
    assert library.update().unchanged == 2
    assert read == []


def test_swaps_after_a_run_that_could_not_read_everything_are_noticed(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    red, blue = (write_image(photos / name, name[:-4]) for name in ("red.bmp", "blue.bmp"))
    for path in (red, blue, write_image(photos / "x.bmp", "green", (9, 9))):
        os.utime(path, ns=(1, 1))

    def fail(path: str, keep: Any) -> Any:
        if path.endswith("x.bmp"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return read_content(path, keep)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "read_content", fail)
        assert library.add(photos).added == 2
    swap(red, blue)
    assert library.update().added == 1
    assert library.search("red", k=1, off=["names"])[0].path == blue
    assert library.verify(files=True) == []


def reading(read: list[str]) -> Any:
    """Note which files are read, and read none."""

    @contextmanager
    def read_files(self: object, files: Iterable[scan.ScannedFile]) -> Iterator[Iterator[Any]]:
        read.extend(file.path for file in files)
        yield iter(())

    return read_files


# ------------------------------------------------------------------ files that cannot be read now


def test_a_disk_that_goes_while_files_are_decoded_loses_none(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "MAX_HELD_BYTES", 0)  # so that pictures are read again
    disk, away = photos / "disk", photos / "away"
    write_random_images(disk, 5)
    write_clip(disk / "a.mp4", [("red", 1)])
    report = index(library, disk, lambda: disk.rename(away))
    assert len(report.bad) == 6
    assert all("No such file" in bad.reason for bad in report.bad)
    assert all(bad.reason.endswith(TRIED_AGAIN) for bad in report.bad)
    away.rename(disk)
    assert library.update().added == 6


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM]
)
def test_a_passing_error_is_reported_and_tried_again(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_image(photos / "a.png", "red")
    changed = write_image(photos / "b.png", "green")
    library.add(photos)
    write_image(changed, "blue", (9, 9))

    def fail(path: str, keep: object) -> None:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "read_content", fail)
        [bad] = library.update().bad
    assert bad.path == str(changed)
    assert bad.reason == f"cannot be read ({os.strerror(number)}): {TRIED_AGAIN}"
    assert len(library) == 2  # what is on record stays
    assert library.update().changed == 1
    assert library.search("blue")[0].path == changed


def test_passing_errors_that_older_versions_recorded_are_tried_again(
    library: Library, photos: Path
) -> None:
    picture = write_image(photos / "a.png", "red")
    clip = write_clip(photos / "a.mp4", [("red", 1)])
    broken = photos / "b.png"
    broken.write_bytes(b"no picture")
    library.add(photos)
    store = library._store()
    for path, reason in (
        (picture, "cannot be read (Permission denied)"),
        (clip, "cannot be read as a video (Input/output error)"),
        (broken, "cannot be read (broken data stream when reading image file)"),
    ):
        status = path.stat()
        signature = FileSignature(status.st_size, status.st_mtime_ns)
        store.put_bad_files([BadFile(str(path), reason, signature)])
    report = library.update()
    assert report.added == 2
    assert [bad.reason[:36] for bad in report.bad] == ["cannot be read (broken data stream w"]


def test_a_named_pipe_in_a_file_s_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(OSError, match="is not a file"):
        read_content(str(tmp_path / "a.png"))


def test_files_of_a_folder_that_cannot_be_listed_stay(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(photos / "sub", 3)
    write_image(photos / "a.png", "red")
    library.add(photos)
    scandir = os.scandir

    def fail(path: str) -> object:
        if str(path).endswith("sub"):
            (photos / "sub").rename(photos / ".gone")
            raise OSError(errno.EIO, "Input/output error")
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        report = library.update()
    assert "Input/output error" in report.bad[0].reason
    assert (report.removed, len(library)) == (0, 4)


def test_a_disk_inside_an_added_folder_keeps_its_files_while_it_is_away(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, away = photos / "disk", photos.parent / "away"
    write_random_images(disk, 3)
    write_random_images(photos / "other", 2, seed=1)
    mounted = {str(disk)}
    for module in (scan, indexing):
        monkeypatch.setattr(module, "is_mount", lambda path: path in mounted)
    library.add(photos)
    disk.rename(away)
    mounted.clear()
    (photos / "other" / "0000.png").unlink()
    report = library.update()
    assert (report.removed, len(library)) == (1, 4)
    assert f"{disk}: is empty or missing" in [
        f"{bad.path}: {bad.reason}"[: len(str(disk)) + 21] for bad in report.bad
    ]
    disk.mkdir()  # an empty mount point
    assert library.update().removed == 0
    disk.rmdir()
    away.rename(disk)
    mounted.add(str(disk))
    assert (library.update().unchanged, len(library)) == (4, 4)
    (disk / "0000.png").unlink()
    assert library.update().removed == 1


# ------------------------------------------------------------------ limits


def test_a_file_beyond_a_limit_is_skipped_until_the_limit_is_raised(
    tmp_path: Path, photos: Path
) -> None:
    write_image(photos / "a.png", "red", (300, 200))
    write_image(photos / "small.png", "blue")
    clip = write_clip(photos / "a.mp4", [("red", 1)])
    path, model = tmp_path / "my.polyglance", ColourEncoder()
    tight = DecodeLimits(max_pixels=59_999, max_frame_pixels=1000)
    with Library(path, model=model, limits=tight) as library:
        for _ in range(2):
            report = library.add(photos)
            assert sorted((Path(bad.path).name, bad.reason) for bad in report.bad) == [
                ("a.mp4", "frames of 64 x 48 pixels are more than the limit of 1,000"),
                ("a.png", "300 x 200 pixels are more than the limit of 59,999"),
            ]
        assert len(library) == 1
    with Library(path, model=model) as library:
        assert library.update().added == 2
        assert library.search("red", kind="clip")[0].path == clip


def test_a_file_that_takes_too_much_memory_costs_only_itself(tmp_path: Path, photos: Path) -> None:
    Image.new("RGB", (4000, 4000)).save(photos / "large.png")
    write_random_images(photos, 3)
    limits = DecodeLimits(max_memory=30_000_000)
    with Library(tmp_path / "my.polyglance", model=ColourEncoder(), limits=limits) as library:
        report = library.add(photos)
    assert report.added == 3
    assert [bad.reason for bad in report.bad] == ["takes more than the limit of 30 MB to decode"]


@pytest.mark.parametrize(("task", "added"), [("crash", 0), ("vanish", 1)])
def test_a_decoder_that_crashes_or_is_killed_costs_one_file(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch, task: str, added: int
) -> None:
    """A crash is the file's fault; that the kernel ends a process is not."""
    write_random_images(photos, 3)
    write_image(photos / "hostile.png", "red")
    run_limited = limited_decoding.run_limited

    def run(name: str, path: str, *rest: Any, **options: Any) -> object:
        name = f"helpers.worker_tasks:{task}" if "hostile" in path else name
        return run_limited(name, path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        patch.setattr(worker_pool, "_shared", WorkerPool())
        patch.setattr(limited_decoding, "run_limited", run)
        report = library.add(photos)
        worker_pool.shared_pool().close()
    assert report.added == 3
    assert [Path(bad.path).name for bad in report.bad] == ["hostile.png"]
    assert library.update().added == added


def test_a_still_frame_is_encoded_once(library: Library, photos: Path) -> None:
    """A clip of one frame may claim to last for hours."""
    import av

    with av.open(str(photos / "a.mkv"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in (0, 600):
            frame = av.VideoFrame.from_image(Image.new("RGB", (64, 48), "red"))
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    library.add(photos)
    [entry] = list[Entry](library._store().entries())
    assert entry.item.seconds == pytest.approx(60, abs=0.5)
    assert library._model.num_encoded <= 2  # type: ignore[union-attr]

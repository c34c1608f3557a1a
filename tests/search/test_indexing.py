from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import polyglance
from helpers.colour_encoder import ColourEncoder, write_image, write_random_images
from helpers.index_process import IndexProcess
from polyglance.search import encoding
from polyglance.search.indexing import Indexer
from polyglance.search.library import Library

TESTS = Path(__file__).parents[1]
Contents = Callable[[Library], dict[str, tuple[object, ...]]]


def counts(library: Library, *folders: Path) -> dict[str, int]:
    """Index, and return the report's counts that are not 0."""
    report = library.add(*folders) if folders else library.update()
    names = ("added", "changed", "moved", "removed", "unchanged")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def test_new_changed_moved_and_deleted_files_are_noticed(library: Library, photos: Path) -> None:
    write_image(photos / "a.png", "red")
    write_image(photos / "b.png", "green")
    write_image(photos / "c.png", "blue")
    encoder = library._model
    assert isinstance(encoder, ColourEncoder)
    assert counts(library, photos) == {"added": 3}
    assert counts(library, photos) == {"unchanged": 3}
    assert encoder.num_encoded == 3

    write_image(photos / "a.png", "white")  # changed
    (photos / "sub").mkdir()
    (photos / "b.png").rename(photos / "sub" / "moved.png")
    (photos / "c.png").unlink()
    write_image(photos / "d.png", (9, 9, 200))
    assert counts(library) == {"added": 1, "changed": 1, "moved": 1, "removed": 1}
    assert encoder.num_encoded == 5  # moved files are not encoded again
    assert {hit.path.name for hit in library.search("red")} == {"a.png", "moved.png", "d.png"}
    assert library.search("green", k=1)[0].path == photos / "sub" / "moved.png"
    assert library.search("white", k=1)[0].path.name == "a.png"
    assert library.verify(files=True) == []


def test_a_touched_file_or_a_copy_is_not_encoded_again(library: Library, photos: Path) -> None:
    path = write_image(photos / "a.png", "red")
    library.add(photos)
    os.utime(path, ns=(1, 1))
    shutil.copyfile(path, photos / "copy.png")
    assert counts(library) == {"added": 1, "unchanged": 1}
    assert library._model.num_encoded == 1  # type: ignore[union-attr]
    assert counts(library) == {"unchanged": 2}
    assert len(library.search("red")) == 2


def test_a_move_from_one_folder_to_another_is_a_move(library: Library, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_image(one / "a.png", "red")
    write_image(one / "c.png", "green")
    write_image(two / "b.png", "blue")
    library.add(one)
    (one / "a.png").rename(two / "a.png")
    assert counts(library, two) == {"added": 1, "moved": 1}
    assert counts(library) == {"unchanged": 3}


def test_a_copy_of_a_file_on_an_unmounted_disk_is_not_a_move(
    library: Library, photos: Path
) -> None:
    disk, away, copies = photos / "disk", photos / "away", photos / "copies"
    write_random_images(disk, 3)
    write_image(photos / "alone.png", "red")
    library.add(disk, photos / "alone.png")
    shutil.copytree(disk, copies)
    (photos / "alone.png").rename(copies / "alone.png")  # added as a file, so no disk is unmounted
    disk.rename(away)
    assert counts(library, copies) == {"added": 3, "moved": 1}
    assert library._model.num_encoded == 4  # type: ignore[union-attr]
    away.rename(disk)
    assert counts(library) == {"unchanged": 7}


def test_a_renamed_folder_is_encoded_once_and_its_old_name_can_be_removed(
    library: Library, photos: Path
) -> None:
    write_random_images(photos / "old", 3)
    library.add(photos / "old")
    (photos / "old").rename(photos / "new")
    assert counts(library, photos / "new") == {"added": 3}
    assert library._model.num_encoded == 3  # type: ignore[union-attr]
    assert "3 files stay in the library" in library.update().bad[0].reason
    assert library.remove(photos / "old") == 3
    assert counts(library) == {"unchanged": 3}


def test_a_file_of_the_same_size_written_in_the_same_second_is_noticed(
    library: Library, photos: Path
) -> None:
    path = photos / "a.bmp"
    write_image(path, "red")
    library.add(photos)
    size, before = path.stat().st_size, path.stat().st_mtime_ns
    write_image(path, "blue")
    os.utime(path, ns=(before + 1, before + 1))
    assert path.stat().st_size == size
    assert counts(library) == {"changed": 1}
    assert library.search("blue")[0].score > 0.95


def test_bad_files_are_reported_every_time_and_indexed_once_repaired(
    library: Library, photos: Path
) -> None:
    write_image(photos / "good.png", "red")
    bad = photos / "bad.png"
    bad.write_bytes(b"no picture")
    (photos / "phone.heic").write_bytes(b"x")
    for _ in range(2):
        report = library.add(photos)
        assert {Path(one.path).name for one in report.bad} == {"bad.png", "phone.heic"}
        assert len(library) == 1
    write_image(bad, "blue")
    assert [Path(one.path).name for one in library.update().bad] == ["phone.heic"]
    assert len(library) == 2
    (photos / "good.png").write_bytes(b"broken now")
    assert len(library.update().bad) == 2
    assert [hit.path.name for hit in library.search("red")] == ["bad.png"]
    bad.unlink()
    (photos / "good.png").unlink()
    assert [Path(one.path).name for one in library.update().bad] == ["phone.heic"]


def test_a_bad_file_is_not_decoded_again(
    library: Library, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "bad.png").write_bytes(b"no picture")
    library.add(photos)
    monkeypatch.setattr(encoding, "read_content", None)
    assert len(library.update().bad) == 1


def test_a_disk_that_is_not_mounted_loses_nothing(library: Library, photos: Path) -> None:
    write_random_images(photos / "disk", 3)
    library.add(photos / "disk")
    away = photos / "away"
    (photos / "disk").rename(away)
    report = library.update()
    assert "not mounted" in report.bad[0].reason
    (photos / "disk").mkdir()  # an empty mount point
    assert "3 files stay in the library" in library.update().bad[0].reason
    assert len(library) == 3
    (photos / "disk").rmdir()
    away.rename(photos / "disk")
    assert counts(library) == {"unchanged": 3}


def test_a_single_file_may_be_added_and_deleted(library: Library, photos: Path) -> None:
    path = write_image(photos / "a.png", "red")
    write_image(photos / "b.png", "red")
    assert counts(library, path) == {"added": 1}
    path.unlink()
    assert counts(library) == {"removed": 1}


def test_thumbnails_can_be_added_later(library: Library, photos: Path) -> None:
    write_image(photos / "a.png", "red", (400, 200))
    library.add(photos)
    assert library.info().counts.thumbnails == 0
    library.update(thumbnails=True)
    assert library.info().counts.thumbnails == 1
    (photos / "a.png").unlink()
    [hit] = library.search("red")
    assert library.picture(hit).size == (256, 128)


def test_thumbnails_are_added_to_files_that_are_recognised_by_content(
    library: Library, photos: Path
) -> None:
    for name, colour in (("touched.png", "red"), ("moved.png", "blue"), ("copied.png", "green")):
        write_image(photos / name, colour, (400, 200))
    library.add(photos)
    os.utime(photos / "touched.png", (1, 1))
    (photos / "moved.png").rename(photos / "new place.png")
    shutil.copy(photos / "copied.png", photos / "copy.png")
    report = library.update(thumbnails=True)
    assert (report.unchanged, report.moved, report.added) == (2, 1, 1)
    assert library.info().counts.thumbnails == 4


def test_the_order_of_files_does_not_change_what_is_stored(
    tmp_path: Path, photos: Path, contents: Contents
) -> None:
    write_random_images(photos, 40)
    libraries = []
    for seed in (1, 2):
        with Library(tmp_path / f"{seed}.polyglance", model=ColourEncoder()) as library:
            store = library._store(create=True)
            Indexer(store, library._encoder, order=random.Random(seed)).run([str(photos)])
            libraries.append(contents(library))
    assert len(libraries[0]) == 40
    assert libraries[0] == libraries[1]


def test_large_pictures_are_encoded_like_small_ones(library: Library, photos: Path) -> None:
    Image.new("RGB", (5000, 4000), "blue").save(photos / "large.jpg")
    library.add(photos)
    [hit] = library.search("blue")
    assert hit.score > 0.95
    assert (hit.width, hit.height) == (5000, 4000)


def test_kills_at_any_moment_lose_at_most_a_batch(
    tmp_path: Path, photos: Path, contents: Contents
) -> None:
    write_random_images(photos, 150)
    path = tmp_path / "killed.polyglance"
    counts = []
    for batches in (0, 2, 4):  # of ten
        process = IndexProcess(path, photos, paced=True)
        process.allow_batches(batches)
        process.kill()  # while it starts, or while it encodes or stores its last batch
        if path.exists():
            with Library(path, model=ColourEncoder()) as library:
                assert library.verify(files=True) == []
                counts.append(len(library))
    assert counts == sorted(counts)
    assert 4 * 16 <= counts[-1] <= 6 * 16
    with Library(path, model=ColourEncoder()) as library:
        assert library.add(photos).unchanged == counts[-1]
        resumed = contents(library)
    with Library(tmp_path / "undisturbed.polyglance", model=ColourEncoder()) as library:
        library.add(photos)
        assert resumed == contents(library)


def test_two_processes_share_the_work_and_lose_nothing(
    tmp_path: Path, photos: Path, contents: Contents
) -> None:
    count = 768
    write_random_images(photos, count)
    path = tmp_path / "shared.polyglance"
    slow = IndexProcess(path, photos, paced=True)
    slow.allow_batches(2)
    slow.wait_for_batch()  # what it has decoded so far is encoded by both
    other = IndexProcess(path, photos)
    assert other.finish() == count - 2 * 16
    assert slow.finish() <= count // 4  # it skips what is on record by now
    with Library(path, model=ColourEncoder()) as library:
        assert len(library) == count
        assert library.info().counts.vectors == count
        assert library.verify() == []
        shared = contents(library)
    with Library(tmp_path / "alone.polyglance", model=ColourEncoder()) as library:
        library.add(photos)
        assert shared == contents(library)


def test_the_input_size_of_the_default_model_is_known() -> None:
    """The sizes at which images are decoded, and so their vectors, depend on it."""
    assert encoding.input_size(polyglance.load()) == 256

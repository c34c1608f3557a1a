from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from helpers.colour_encoder import ColourEncoder, write_clip, write_image, write_random_images
from polyglance.errors import PolyglanceError
from polyglance.search import encoding
from polyglance.search.bulk import encoding as bulk
from polyglance.search.bulk.encoding import Worker, encode
from polyglance.search.bulk.listing import list_files, resolve_sources, source_root
from polyglance.search.bulk.shards import ShardFolder, ShardPlan
from polyglance.search.files import FileContent
from polyglance.search.library import Library
from polyglance.search.store import BadFile

Contents = Callable[[Library], dict[str, tuple[object, ...]]]


def start_folder(
    out: Path, *sources: Path, thumbnails: bool = False, size: int = 16
) -> ShardFolder:
    """List files into a folder of shards of colours, none of them encoded."""
    model, paths = ColourEncoder(), resolve_sources(sources)
    roots = tuple(map(source_root, paths))
    folder = ShardFolder(out)
    plan = ShardPlan(
        model.name, "", model.fingerprint, model.width, thumbnails, paths, roots, shard_size=size
    )
    folder.start(plan, list_files(paths))
    return folder


def worker(folder: ShardFolder, encoder: ColourEncoder | None = None) -> Worker:
    return Worker(folder.path, 1, lambda source, threads: encoder or ColourEncoder())


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Ray by one worker in this process, which encodes colours."""

    def outcomes(folder: ShardFolder, pending: Sequence[int], *_: int):
        return map(worker(folder).encode, pending)

    monkeypatch.setattr(bulk, "import_ray", lambda alone: None)
    monkeypatch.setattr(bulk, "open_model", lambda model: ColourEncoder())
    monkeypatch.setattr(bulk, "cluster", lambda *_: nullcontext(1))
    monkeypatch.setattr(bulk, "_run_workers", outcomes)


def unreadable(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    """Make a file unreadable."""
    read_content = encoding.read_content

    def read(path: str, keep: Callable[[int], bool]) -> FileContent:
        if path.endswith(name):
            raise error
        return read_content(path, keep)

    monkeypatch.setattr(encoding, "read_content", read)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write pictures in two folders, a clip, broken files, and files of other kinds."""
    photos = tmp_path_factory.mktemp("mixed")
    write_random_images(photos / "a", 20)
    write_random_images(photos / "b", 20, seed=1)
    write_image(photos / "large.jpg", "red", (3000, 2000))
    write_clip(photos / "clip.mp4", [("red", 3), ("blue", 2)])
    (photos / "torn.jpg").write_bytes(b"no picture")
    (photos / "torn.mp4").write_bytes(b"no clip")
    (photos / "phone.heic").write_bytes(b"x")
    (photos / "notes.txt").write_bytes(b"x")
    return photos


@pytest.mark.parametrize("thumbnails", [False, True])
def test_shards_hold_what_indexing_stores(
    tmp_path: Path, mixed: Path, contents: Contents, thumbnails: bool
) -> None:
    folder = start_folder(tmp_path / "shards", mixed, thumbnails=thumbnails)
    outcomes = [worker(folder).encode(number) for number in folder.pending()]
    assert sum(outcome["files"] for outcome in outcomes) == 42
    assert sum(outcome["bad"] for outcome in outcomes) == 3
    with Library(tmp_path / "imported.polyglance", model=ColourEncoder()) as imported:
        imported.import_shards(folder.path, trust=True)
        with Library(tmp_path / "indexed.polyglance", model=ColourEncoder()) as indexed:
            indexed.add(mixed, thumbnails=thumbnails)
            assert contents(imported) == contents(indexed)
            stores = imported._store(), indexed._store()
            assert stores[0].bad_files() == stores[1].bad_files() != []
            assert stores[0].places("walked") == stores[1].places("walked")
            assert imported.verify(files=True) == []
        again = imported.update(thumbnails=thumbnails)  # as if it had been indexed
        assert (again.unchanged, again.added, again.changed) == (42, 0, 0)


def test_a_shard_has_a_row_per_file_in_order(tmp_path: Path, mixed: Path) -> None:
    folder = start_folder(tmp_path / "shards", mixed, size=7)
    assert folder.plan.files == 45
    assert folder.plan.shards == 7
    rows = []
    for number in folder.pending():
        made = worker(folder).encode(number)
        assert made["error"] == ""
        done = folder.read_shard(number)
        paths = [one.path if isinstance(one, BadFile) else one.item.path for one in done]
        assert paths == [file.path for file in folder.listed_files(number)]
        rows += paths
    assert rows == [found.path for found in list_files([str(mixed)])]


def test_the_same_files_make_the_same_shard_to_the_byte(tmp_path: Path, mixed: Path) -> None:
    made = []
    for name in ("one", "two"):
        folder = start_folder(tmp_path / name, mixed)
        for number in folder.pending():
            worker(folder).encode(number)
        made.append([path.read_bytes() for path in sorted((folder.path / "shards").iterdir())])
    assert made[0] == made[1]


def test_an_existing_shard_is_not_made_again(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos, 5)
    folder, encoder = start_folder(tmp_path / "shards", photos), ColourEncoder()
    batch = {"shard": [0]}
    assert worker(folder, encoder)(batch)["files"] == [5]
    assert worker(folder, encoder)(batch)["files"] == [0]
    assert encoder.num_encoded == 5


def test_a_worker_that_does_not_see_the_files_writes_nothing(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos / "disk", 5)
    folder = start_folder(tmp_path / "shards", photos / "disk")
    shutil.rmtree(photos / "disk")
    (photos / "disk").mkdir()  # where a disk would be mounted
    assert "is empty or missing for a worker" in worker(folder).encode(0)["error"]
    assert folder.pending() == [0]


def test_a_worker_without_permission_reports_it(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(photos, 2)
    folder = start_folder(tmp_path / "shards", photos)

    def deny(place: str) -> None:
        raise PermissionError(13, "Permission denied", place)

    monkeypatch.setattr(os, "scandir", deny)
    error = worker(folder).encode(0)["error"]
    assert f"{photos}: the folder cannot be read (Permission denied)" in error


@pytest.mark.usefixtures("without_ray")
def test_an_empty_folder_among_the_sources_is_accepted(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos / "full", 3)
    (photos / "empty").mkdir()
    report = encode(photos / "full", photos / "empty", out=tmp_path / "shards")
    assert (report.files, report.bad) == (3, 0)
    assert encode(photos / "empty", out=tmp_path / "nothing").shards == 0


@pytest.mark.usefixtures("without_ray")
def test_a_second_run_uses_the_first_list_if_settings_agree(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(photos, 5)
    for size in (1024, 2):
        out = tmp_path / f"shards{size}"

        def start_concurrently(paths: Sequence[str], out: Path = out, size: int = size):
            start_folder(out, photos, size=size)
            return list_files(paths)

        monkeypatch.setattr(bulk, "list_files", start_concurrently)
        if size == 1024:
            assert encode(photos, out=out).files == 5
        else:
            with pytest.raises(PolyglanceError, match="begun with shard size 2, not 1024"):
                encode(photos, out=out)


def test_a_worker_with_another_model_writes_nothing(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos, 5)
    folder = start_folder(tmp_path / "shards", photos)
    assert "cannot be used with other" in worker(folder, ColourEncoder("other")).encode(0)["error"]
    assert folder.pending() == [0]


def test_a_deleted_file_is_reported_and_the_others_are_kept(tmp_path: Path, photos: Path) -> None:
    paths = write_random_images(photos, 5)
    folder = start_folder(tmp_path / "shards", photos)
    paths[2].unlink()
    outcome = worker(folder).encode(0)
    assert (outcome["files"], outcome["bad"]) == (4, 1)
    assert "0002.png: cannot be read (No such file" in outcome["messages"]
    [bad] = [one for one in folder.read_shard(0) if isinstance(one, BadFile)]
    assert bad.signature is None  # so that a library does not take it for a broken file


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(116, "Stale file handle")]
)
def test_a_temporary_read_error_stops_the_shard(
    tmp_path: Path, photos: Path, error: OSError
) -> None:
    write_random_images(photos, 5)
    folder = start_folder(tmp_path / "shards", photos)
    with pytest.MonkeyPatch.context() as monkeypatch:
        unreadable(monkeypatch, "0002.png", error)
        message = worker(folder).encode(0)["error"]
    assert f"0002.png: cannot be read ({error.strerror}): mend this" in message
    assert folder.pending() == [0]
    assert worker(folder).encode(0)["files"] == 5


def test_a_worker_that_cannot_read_clips_stops_at_one(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clip(photos / "clip.mp4", [("red", 1)])
    folder = start_folder(tmp_path / "shards", photos)
    monkeypatch.setattr(encoding, "can_read_clips", lambda: False)
    assert "pip install 'polyglance[video]'" in worker(folder).encode(0)["error"]
    assert folder.pending() == [0]


def test_a_shard_whose_files_are_all_deleted_is_not_made(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos / "disk", 2)
    write_random_images(photos / "other", 2, seed=1)
    folder = start_folder(tmp_path / "shards", photos, size=2)
    shutil.rmtree(photos / "disk")  # but not their root
    assert "all other files of its shard are gone" in worker(folder).encode(0)["error"]
    assert worker(folder).encode(1)["files"] == 2
    assert folder.pending() == [0]


def test_a_disk_unmounted_during_encoding_is_noticed(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(photos / "disk", 5)
    folder = start_folder(tmp_path / "shards", photos / "disk")
    read_content = encoding.read_content

    def read(path: str, keep: Callable[[int], bool]) -> FileContent:
        if path.endswith("0004.png"):
            (photos / "disk").rename(photos / "away")
        return read_content(path, keep)

    monkeypatch.setattr(encoding, "read_content", read)
    assert "is empty or missing for a worker" in worker(folder).encode(0)["error"]
    assert folder.pending() == [0]


def test_the_model_is_loaded_once_before_threads_need_it(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos, 5)
    opened_by = []

    def load(source: str, threads: int) -> ColourEncoder:
        opened_by.append(threading.current_thread())
        return ColourEncoder()

    folder = start_folder(tmp_path / "shards", photos, size=2)
    one = Worker(folder.path, 1, load)
    assert [one.encode(number)["error"] for number in folder.pending()] == ["", "", ""]
    assert opened_by == [threading.current_thread()]


@pytest.mark.usefixtures("without_ray")
def test_other_settings_than_the_first_run_s_are_refused(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos / "a", 2)
    out = start_folder(tmp_path / "shards", photos, size=1024).path
    with pytest.raises(PolyglanceError, match="begun with thumbnails False, not True"):
        encode(photos, out=out, thumbnails=True)
    with pytest.raises(PolyglanceError, match="begun with shard size 1024, not 5"):
        encode(photos, out=out, shard_size=5)
    with pytest.raises(PolyglanceError, match="begun with places"):
        encode(photos / "a", out=out)


KILLED = """
import os, signal, sys
from helpers.colour_encoder import ColourEncoder
from polyglance.search.bulk.encoding import Worker

class Dying(ColourEncoder):
    def encode_pictures(self, pictures):
        if self.num_encoded >= 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_pictures(pictures)

encoder = Dying()
worker = Worker(sys.argv[1], 1, lambda source, threads: encoder)
for number in range(5):
    worker.encode(number)
"""


@pytest.mark.usefixtures("without_ray")
def test_a_killed_encoding_continues_with_the_missing_shards(
    tmp_path: Path, photos: Path, contents: Contents
) -> None:
    write_random_images(photos, 10)
    folder = start_folder(tmp_path / "shards", photos, size=2)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    killed = subprocess.run([sys.executable, "-c", KILLED, folder.path], env=environment)
    assert killed.returncode == -signal.SIGKILL
    assert folder.pending() == [2, 3, 4]
    made = {path: path.stat().st_mtime_ns for path in (folder.path / "shards").glob("*.parquet")}

    report = encode(out=folder.path)
    assert (report.previous_shards, report.shards, report.files) == (2, 5, 6)
    assert folder.pending() == []
    assert not list(folder.path.glob("*/*.partial"))
    assert all(path.stat().st_mtime_ns == time for path, time in made.items())
    assert encode(photos, out=folder.path, shard_size=2).files == 0
    with Library(tmp_path / "imported.polyglance", model=ColourEncoder()) as imported:
        assert imported.import_shards(folder.path).added == 10
        with Library(tmp_path / "indexed.polyglance", model=ColourEncoder()) as indexed:
            indexed.add(photos)
            assert contents(imported) == contents(indexed)


@pytest.mark.usefixtures("without_ray")
def test_a_worker_s_error_ends_the_run_in_a_sentence(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(photos, 2)
    folder = ShardFolder(tmp_path / "shards")
    plan = ShardPlan("m", "/no/such/model", "f", 8, False, (str(photos),), (str(photos),), 8)
    folder.start(plan, list_files([str(photos)]))
    run = Worker(folder.path, 1)
    monkeypatch.setattr(bulk, "_run_workers", lambda _, pending, *__: map(run.encode, pending))
    with pytest.raises(PolyglanceError, match="no model"):
        encode(out=folder.path)
    assert len(folder.pending()) == folder.plan.shards

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.search.bulk.shards import ShardFolder, ShardPlan
from polyglance.search.scan import ScannedFile
from polyglance.search.store import BadFile, Details, Entry, FileSignature, Item

FILES = [
    ScannedFile(f"/p/{number}.jpg", "picture", FileSignature(number, 10**18)) for number in range(5)
]
PLAN = ShardPlan("m", "m", "f", 3, True, ("/p",), ("/p",), shard_size=2)


@pytest.fixture
def folder(tmp_path: Path) -> ShardFolder:
    made = ShardFolder(tmp_path / "shards")
    made.start(PLAN, [*FILES, BadFile("/p/a.heic", "is not read")])
    return made


def test_files_are_listed_in_shards_and_the_plan_counts_them(folder: ShardFolder) -> None:
    assert (folder.plan.shards, folder.plan.files) == (3, 6)
    assert folder.listed_files(0) == FILES[:2]
    assert folder.listed_files(2) == [FILES[4], BadFile("/p/a.heic", "is not read")]
    assert ShardFolder(folder.path).plan == folder.plan
    assert folder.pending() == [0, 1, 2]


def test_shards_round_trip(folder: ShardFolder) -> None:
    picture = Item(
        "/p/ü \n.jpg", "picture", FileSignature(7, 8), "hash", "2024-07-31T18:05:00", 640, 480
    )
    clip = Item(
        "/p/c.mp4", "clip", FileSignature(1, 2), "other", "2023-01-01T00:00:00", 64, 48, 5.25
    )
    vectors = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    folder.write_shard(
        1,
        [
            BadFile("/p/gone.jpg", "cannot be read"),
            Entry(picture, vectors[:1], thumbnail=b"webp"),
            BadFile("/p/torn.jpg", "is no picture", FileSignature(3, 4)),
            Entry(clip, vectors[1:], ((0.0, 2.0), (2.0, 4.0), (4.0, 5.25))),
        ],
    )
    assert folder.pending() == [0, 2]
    missing, entry, broken, other = folder.read_shard(1)
    assert missing == BadFile("/p/gone.jpg", "cannot be read")
    assert broken == BadFile("/p/torn.jpg", "is no picture", FileSignature(3, 4))
    assert isinstance(entry, Entry)
    assert isinstance(other, Entry)
    assert (entry.item, entry.spans, entry.thumbnail) == (picture, (), b"webp")
    assert (other.item, other.thumbnail) == (clip, None)
    assert other.spans == ((0.0, 2.0), (2.0, 4.0), (4.0, 5.25))
    rounded = vectors.astype(np.float16).astype(np.float32)
    assert np.array_equal(entry.vectors, rounded[:1])
    assert np.array_equal(other.vectors, rounded[1:])


@pytest.mark.parametrize("files", [[], [BadFile("/p/a.jpg", "no"), BadFile("/p/b.jpg", "no")]])
def test_a_shard_may_have_no_items(folder: ShardFolder, files: list[BadFile]) -> None:
    folder.write_shard(0, files)
    assert folder.read_shard(0) == files


def test_a_shard_is_plain_parquet(folder: ShardFolder) -> None:
    item = Item("/p/a.jpg", "picture", FileSignature(7, 8), "hash", "2024-07-31T18:05:00", 640, 480)
    folder.write_shard(0, [Entry(item, np.array([[0.5, 0.25, 1.0]], np.float32))])
    table = pyarrow.parquet.read_table(folder.path / "shards" / "000000.parquet")
    [row] = table.to_pylist()
    assert row["vectors"] == [[0.5, 0.25, 1.0]]
    assert row["taken"] == "2024-07-31T18:05:00"
    assert json.loads(table.schema.metadata[b"polyglance"])["model"] == "m"


def test_what_a_camera_wrote_is_kept(folder: ShardFolder) -> None:
    item = Item("/p/a.jpg", "picture", FileSignature(7, 8), "hash", "2024-07-31T18:05:00", 640, 480)
    details = Details(latitude=48.1, longitude=11.5, camera="Canon EOS R5")
    folder.write_shard(0, [Entry(item, np.array([[0.5, 0.25, 1.0]], np.float32), details=details)])
    [entry] = folder.read_shard(0)
    assert isinstance(entry, Entry)
    assert entry.details == details
    path = folder.path / "shards" / "000000.parquet"  # as an earlier version wrote it
    table = pyarrow.parquet.read_table(path).drop_columns(["latitude", "longitude", "camera"])
    pyarrow.parquet.write_table(table, path, write_page_checksum=True)
    [entry] = folder.read_shard(0)
    assert isinstance(entry, Entry)
    assert entry.details == Details()


def test_an_unfinished_list_is_made_again(tmp_path: Path) -> None:
    def fail():
        yield from FILES[:3]
        raise KeyboardInterrupt

    folder = ShardFolder(tmp_path / "shards")
    with pytest.raises(KeyboardInterrupt):
        folder.start(PLAN, fail())
    assert not folder.is_started
    assert folder.start(PLAN, FILES).files == 5


def test_of_two_concurrent_first_runs_one_lists_for_both(tmp_path: Path) -> None:
    quicker, slower = ShardFolder(tmp_path / "shards"), ShardFolder(tmp_path / "shards")

    def start_concurrently():
        yield from FILES[:3]
        quicker.start(PLAN, FILES[3:])
        yield BadFile("/p/new.heic", "was not there before")

    assert slower.start(PLAN, start_concurrently()).files == 2
    assert slower.plan == quicker.plan
    assert slower.listed_files(0) == FILES[3:]
    assert [entry.name for entry in slower.path.iterdir()] == ["files"]
    names = sorted(entry.name for entry in (slower.path / "files").iterdir())
    assert names == ["000000.parquet", "plan.json"]


def test_a_folder_with_other_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "shards" / "files").mkdir(parents=True)
    (tmp_path / "shards" / "files" / "letter.txt").write_text("dear")
    with pytest.raises(PolyglanceError, match="contains other files"):
        ShardFolder(tmp_path / "shards").start(PLAN, FILES)


def test_other_users_may_read_the_list(folder: ShardFolder) -> None:
    listing = folder.path / "files"
    assert listing.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in listing.iterdir()} == {0o644}


def test_a_failed_write_leaves_no_shard(
    folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(table: object, where: Path, **_: object) -> None:
        where.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", fail)
    with pytest.raises(PolyglanceError, match=r"cannot be written \(No space left"):
        folder.write_shard(0, [])
    assert folder.pending() == [0, 1, 2]
    assert list((folder.path / "shards").iterdir()) == []


def test_partial_shards_of_killed_processes_are_removed(folder: ShardFolder) -> None:
    folder.write_shard(0, [])
    (folder.path / "shards" / "000001.parquet.x7.partial").write_bytes(b"PAR1")
    assert folder.pending() == [1, 2]
    folder.remove_partial_files()
    assert [path.name for path in (folder.path / "shards").iterdir()] == ["000000.parquet"]


def test_a_shard_written_by_another_run_meanwhile_is_kept(
    folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = pyarrow.parquet.write_table

    def start_concurrently(table: object, where: Path, **options: object) -> None:
        written(table, where, **options)
        where.rename(folder.path / "shards" / "000000.parquet")  # whole, and no .partial is left

    monkeypatch.setattr(pyarrow.parquet, "write_table", start_concurrently)
    folder.write_shard(0, [])
    assert folder.read_shard(0) == []


def test_partial_lists_of_killed_runs_are_removed(folder: ShardFolder) -> None:
    left = folder.path / "files.x7.partial"
    left.mkdir()
    (left / "000000.parquet").write_bytes(b"PAR1")
    folder.remove_partial_files()
    assert [entry.name for entry in folder.path.iterdir()] == ["files"]


def test_damage_is_noticed(folder: ShardFolder) -> None:
    item = Item("/p/a.jpg", "picture", FileSignature(7, 8), "hash", "2024-07-31T18:05:00", 640, 480)
    rng = np.random.default_rng(0)
    entries = [Entry(item, rng.standard_normal((1, 3)).astype(np.float32)) for _ in range(500)]
    folder.write_shard(0, entries)
    place = folder.path / "shards" / "000000.parquet"
    whole = place.read_bytes()
    middle = whole.index(b"PAR1", 4) // 2
    for damaged in (whole[:-100], b"", whole[:middle] + bytes(8) + whole[middle + 8 :]):
        place.write_bytes(damaged)
        with pytest.raises(DataError, match="is damaged: move it away, and encode again"):
            folder.read_shard(0)
    other = ShardFolder(folder.path.with_name("other"))
    other.start(ShardPlan("m", "m", "another", 3, True, ("/p",), ("/p",), shard_size=2), FILES)
    place.write_bytes(whole)
    (other.path / "shards").mkdir()
    place.rename(other.path / "shards" / place.name)
    with pytest.raises(DataError, match="another folder or model"):
        other.read_shard(0)


def test_folders_without_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="there are no shards here"):
        _ = ShardFolder(tmp_path / "nothing").plan
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(PolyglanceError, match="contains other files"):
        ShardFolder(tmp_path).start(PLAN, FILES)
    (tmp_path / "files").mkdir()
    for text, message in (("{", "is damaged"), ("{}", "is damaged"), ('{"format": 2}', "newer")):
        (tmp_path / "files" / "plan.json").write_text(text)
        with pytest.raises(DataError, match=message):
            _ = ShardFolder(tmp_path).plan

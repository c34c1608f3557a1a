from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.search.bulk.shards import ShardFolder, ShardPlan
from polyglance.search.scan import ScannedFile
from polyglance.search.store import BadFile, Entry, FileSignature, Item

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


def test_what_is_written_is_read_again(folder: ShardFolder) -> None:
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
    gone, one, torn, other = folder.read_shard(1)
    assert gone == BadFile("/p/gone.jpg", "cannot be read")
    assert torn == BadFile("/p/torn.jpg", "is no picture", FileSignature(3, 4))
    assert isinstance(one, Entry)
    assert isinstance(other, Entry)
    assert (one.item, one.spans, one.thumbnail) == (picture, (), b"webp")
    assert (other.item, other.thumbnail) == (clip, None)
    assert other.spans == ((0.0, 2.0), (2.0, 4.0), (4.0, 5.25))
    kept = vectors.astype(np.float16).astype(np.float32)
    assert np.array_equal(one.vectors, kept[:1])
    assert np.array_equal(other.vectors, kept[1:])


@pytest.mark.parametrize("done", [[], [BadFile("/p/a.jpg", "no"), BadFile("/p/b.jpg", "no")]])
def test_a_shard_without_an_item_is_a_shard(folder: ShardFolder, done: list[BadFile]) -> None:
    folder.write_shard(0, done)
    assert folder.read_shard(0) == done


def test_others_can_read_a_shard(folder: ShardFolder) -> None:
    item = Item("/p/a.jpg", "picture", FileSignature(7, 8), "hash", "2024-07-31T18:05:00", 640, 480)
    folder.write_shard(0, [Entry(item, np.array([[0.5, 0.25, 1.0]], np.float32))])
    table = pyarrow.parquet.read_table(folder.path / "shards" / "000000.parquet")
    [row] = table.to_pylist()
    assert row["vectors"] == [[0.5, 0.25, 1.0]]
    assert row["taken"] == "2024-07-31T18:05:00"
    assert json.loads(table.schema.metadata[b"polyglance"])["model"] == "m"


def test_a_list_that_was_never_finished_is_made_again(tmp_path: Path) -> None:
    def killed():
        yield from FILES[:3]
        raise KeyboardInterrupt

    folder = ShardFolder(tmp_path / "shards")
    with pytest.raises(KeyboardInterrupt):
        folder.start(PLAN, killed())
    assert not folder.is_started
    assert folder.start(PLAN, FILES).files == 5


def test_of_two_runs_that_begin_together_one_lists_for_both(tmp_path: Path) -> None:
    quicker, slower = ShardFolder(tmp_path / "shards"), ShardFolder(tmp_path / "shards")

    def overtaken():
        yield from FILES[:3]
        quicker.start(PLAN, FILES[3:])
        yield BadFile("/p/new.heic", "was not there before")

    assert slower.start(PLAN, overtaken()).files == 2
    assert slower.plan == quicker.plan
    assert slower.listed_files(0) == FILES[3:]
    assert [entry.name for entry in slower.path.iterdir()] == ["files"]
    names = sorted(entry.name for entry in (slower.path / "files").iterdir())
    assert names == ["000000.parquet", "plan.json"]


def test_a_list_is_not_taken_for_anothers(tmp_path: Path) -> None:
    (tmp_path / "shards" / "files").mkdir(parents=True)
    (tmp_path / "shards" / "files" / "letter.txt").write_text("dear")
    with pytest.raises(PolyglanceError, match="contains other files"):
        ShardFolder(tmp_path / "shards").start(PLAN, FILES)


def test_others_may_read_the_list(folder: ShardFolder) -> None:
    listing = folder.path / "files"
    assert listing.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in listing.iterdir()} == {0o644}


def test_a_shard_that_fails_half_way_is_not_there(
    folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(table: object, where: Path, **_: object) -> None:
        where.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", torn)
    with pytest.raises(PolyglanceError, match=r"cannot be written \(No space left"):
        folder.write_shard(0, [])
    assert folder.pending() == [0, 1, 2]
    assert list((folder.path / "shards").iterdir()) == []


def test_what_a_killed_process_left_is_no_shard_and_is_tidied_up(folder: ShardFolder) -> None:
    folder.write_shard(0, [])
    (folder.path / "shards" / "000001.parquet.x7.partial").write_bytes(b"PAR1")
    assert folder.pending() == [1, 2]
    folder.remove_partial_files()
    assert [path.name for path in (folder.path / "shards").iterdir()] == ["000000.parquet"]


def test_a_shard_that_another_run_made_meanwhile_is_there(
    folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = pyarrow.parquet.write_table

    def overtaken(table: object, where: Path, **options: object) -> None:
        written(table, where, **options)
        where.rename(folder.path / "shards" / "000000.parquet")  # whole, and no .partial is left

    monkeypatch.setattr(pyarrow.parquet, "write_table", overtaken)
    folder.write_shard(0, [])
    assert folder.read_shard(0) == []


def test_lists_of_killed_runs_are_tidied_up(folder: ShardFolder) -> None:
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
        with pytest.raises(DataError, match="is damaged: delete it and encode again"):
            folder.read_shard(0)
    other = ShardFolder(folder.path.with_name("other"))
    other.start(ShardPlan("m", "m", "another", 3, True, ("/p",), ("/p",), shard_size=2), FILES)
    place.write_bytes(whole)
    (other.path / "shards").mkdir()
    place.rename(other.path / "shards" / place.name)
    with pytest.raises(DataError, match="another folder or model"):
        other.read_shard(0)


def test_folders_that_are_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="there are no shards here"):
        _ = ShardFolder(tmp_path / "nothing").plan
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(PolyglanceError, match="contains other files"):
        ShardFolder(tmp_path).start(PLAN, FILES)
    (tmp_path / "files").mkdir()
    for text, told in (("{", "is damaged"), ("{}", "is damaged"), ('{"format": 2}', "newer")):
        (tmp_path / "files" / "plan.json").write_text(text)
        with pytest.raises(DataError, match=told):
            _ = ShardFolder(tmp_path).plan

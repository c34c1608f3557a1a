from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.search import model_info
from polyglance.search.bulk import shard_import
from polyglance.search.bulk.shard_import import import_shards
from polyglance.search.bulk.shards import EncodedFile, ShardFolder, ShardPlan
from polyglance.search.library import Library
from polyglance.search.scan import ScannedFile
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import BadFile, Entry, FileRecord, FileSignature, Item

LATE = 2 * 10**18


def entry(name: str, *, written: int = 10**18, content: str = "c", small: bytes | None = None):
    stamp = FileSignature(10, written)
    item = Item(f"/p/{name}", "picture", stamp, f"{content}{name}", "2024-01-01T00:00:00", 6, 4)
    return Entry(item, np.array([[0.6, 0.8, 0.0]], np.float32), thumbnail=small)


def write_shards(path: Path, *shards: list[EncodedFile], fingerprint: str = "f") -> ShardFolder:
    """Write shards with the given files; None stands for a missing shard."""
    folder = ShardFolder(path)
    files = [ScannedFile("/p/x.jpg", "picture", FileSignature(1, 1))] * len(shards)
    folder.start(ShardPlan("m", "m", fingerprint, 3, False, ("/p",), ("/p",), shard_size=1), files)
    for number, files in enumerate(shards):
        if files:
            folder.write_shard(number, files)
    return folder


def counts(store: SqliteStore, folder: ShardFolder) -> dict[str, int]:
    report = import_shards(store, folder, "library")
    names = ("added", "changed", "unchanged", "moved", "removed")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def test_shards_are_imported_as_they_are_made_and_once(store: SqliteStore, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "s", [entry("a"), entry("b")], [])
    assert counts(store, folder) == {"added": 2}
    ids = store.ids()
    folder.write_shard(1, [entry("c")])
    assert counts(store, folder) == {"added": 1, "unchanged": 2}
    assert counts(store, folder) == {"unchanged": 3}
    assert store.ids()[:2].tolist() == ids.tolist()  # existing vectors are not written again
    assert store.places("walked") == []
    import_shards(store, folder, "library", folders=["/p", "/etc"])
    assert store.places("walked") == ["/p"]


def test_the_later_version_of_a_file_wins(store: SqliteStore, tmp_path: Path) -> None:
    store.put([entry("a", written=LATE, content="new"), entry("b")])
    folder = write_shards(tmp_path / "s", [entry("a"), entry("b", written=LATE, content="new")])
    assert counts(store, folder) == {"unchanged": 1, "changed": 1}
    for name in "ab":
        kept = store.entry(f"/p/{name}")
        assert kept is not None
        assert kept.item.content_hash == f"new{name}"


def test_bad_files_are_recorded_if_they_have_a_signature(
    store: SqliteStore, tmp_path: Path
) -> None:
    stamp = FileSignature(1, 10**18)
    store.put([entry("good"), entry("broken")])
    store.put_bad_files([BadFile("/p/mended", "was torn", stamp)])
    folder = write_shards(
        tmp_path / "s",
        [
            BadFile("/p/good", "cannot be read"),  # by a worker whose disk was not mounted
            BadFile("/p/broken", "is torn", FileSignature(1, LATE)),
            BadFile("/p/torn", "is torn", stamp),
            BadFile("/p/lost", "cannot be read"),
            entry("mended"),
        ],
    )
    report = import_shards(store, folder, "library")
    assert report.added == 1
    assert len(report.bad) == 4
    assert list(store.paths()) == ["/p/broken", "/p/good", "/p/mended", "/p/torn"]
    assert {bad.path for bad in store.bad_files()} == {"/p/broken", "/p/torn"}


def test_thumbnails_are_added_by_a_later_import(store: SqliteStore, tmp_path: Path) -> None:
    store.put([entry("a")])
    folder = write_shards(tmp_path / "s", [entry("a", small=b"webp")])
    assert counts(store, folder) == {"unchanged": 1}
    assert store.thumbnail("/p/a") == b"webp"
    assert store.records(["/p/a"]) == {
        "/p/a": FileRecord(FileSignature(10, 10**18), thumbnail=True)
    }


def test_files_removed_from_the_library_stay_out(store: SqliteStore, tmp_path: Path) -> None:
    store.add_place("left out", "/p/private")
    folder = write_shards(tmp_path / "s", [entry("private/a"), entry("privateer"), entry("b")])
    assert counts(store, folder) == {"added": 2}
    assert list(store.paths()) == ["/p/b", "/p/privateer"]


def test_files_removed_during_an_import_stay_out(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_import, "BATCH_SIZE", 2)
    folder = write_shards(tmp_path / "s", [entry(name) for name in "abcd"], [entry("d2")])
    put = store.put

    def meanwhile(entries: list[Entry]) -> None:
        put(entries)
        store.add_place("left out", "/p/d")

    monkeypatch.setattr(store, "put", meanwhile)
    assert counts(store, folder) == {"added": 4}
    assert list(store.paths()) == ["/p/a", "/p/b", "/p/c", "/p/d2"]


def test_an_interrupted_import_is_resumed(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_import, "BATCH_SIZE", 2)
    folder = write_shards(tmp_path / "s", [entry(name) for name in "abcde"])
    put, calls = store.put, []

    def interrupt(entries: list[Entry]) -> None:
        calls.append(len(entries))
        if len(calls) == 2:
            raise KeyboardInterrupt
        put(entries)

    monkeypatch.setattr(store, "put", interrupt)
    with pytest.raises(KeyboardInterrupt):
        import_shards(store, folder, "library")
    assert store.counts().pictures == 2
    assert counts(store, folder) == {"added": 3, "unchanged": 2}
    assert calls == [2, 2, 2, 1]


def test_shards_of_another_model_are_refused(store: SqliteStore, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "s", [entry("a")], fingerprint="another")
    with pytest.raises(PolyglanceError, match="only shards of a model"):
        import_shards(store, folder, "library")
    assert store.counts().pictures == 0


def test_shards_of_a_model_with_the_same_vectors_of_pictures_are_imported(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_shards(tmp_path / "s", [entry("a")], fingerprint="fine-tuned")
    known = {"fine-tuned": frozenset({"fine-tuned", "f"}), "f": frozenset({"f"})}
    monkeypatch.setattr(model_info, "picture_models", lambda info: known[info.fingerprint])
    assert counts(store, folder) == {"added": 1}


def test_only_folders_that_the_user_confirmed_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYGLANCE_CONFIG", str(tmp_path / "config"))
    folder = write_shards(tmp_path / "s", [entry("a")])
    with Library(tmp_path / "my.polyglance") as library:
        assert library.import_shards(folder.path).added == 1
        assert (library.folders, library.confirmed) == ((), frozenset())
        library.trust("/p")
        library.import_shards(folder.path)
        assert library.folders == ("/p",)
    with Library(tmp_path / "other.polyglance") as library:
        library.import_shards(folder.path, trust=True)
        assert (library.folders, library.confirmed) == (("/p",), {"/p"})


@pytest.mark.parametrize(
    "change",
    [{"places": ["etc"]}, {"places": [1]}, {"places": 1}, {"shards": "1"}, {"width": -3},
     {"model": None}, {"more": 1}],
)  # fmt: skip
def test_a_plan_of_a_stranger_is_refused_in_a_sentence(
    tmp_path: Path, change: dict[str, object]
) -> None:
    folder = write_shards(tmp_path / "s", [entry("a")])
    plan = tmp_path / "s" / "files" / "plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), **change}))
    with pytest.raises(DataError, match=r"plan.json: is damaged"):
        ShardFolder(folder.path).pending()


@pytest.mark.parametrize(
    "change",
    [{"path": "a.jpg"}, {"path": None}, {"kind": "x"}, {"spans": None}, {"spans": [[1.0, 2.0]] * 2},
     {"width": None}, {"taken": None}],
)  # fmt: skip
def test_rows_that_no_library_could_hold_are_refused(
    store: SqliteStore, tmp_path: Path, change: dict[str, object]
) -> None:
    folder = write_shards(tmp_path / "s", [entry("a")])
    path = tmp_path / "s" / "shards" / "000000.parquet"
    table = pq.read_table(path)
    for name, value in change.items():
        place = table.schema.get_field_index(name)
        column = pa.array([value], table.schema.field(name).type)
        table = table.set_column(place, table.schema.field(name), column)
    pq.write_table(table, path)
    with pytest.raises(DataError, match="is not a shard of this plan"):
        import_shards(store, folder, "library")
    pq.write_table(table.drop_columns(["vectors"]), path)
    with pytest.raises(DataError, match="is not a shard of this plan"):
        import_shards(store, folder, "library")

"""Libraries and shards that earlier versions wrote still open, with the same results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.first_edition import FirstEdition
from polyglance.errors import PolyglanceError
from polyglance.search.approximate import ApproximateIndex, graph_path
from polyglance.search.bulk.shards import ShardFolder
from polyglance.search.exact import ExactIndex
from polyglance.search.library import Library
from polyglance.search.sqlite_salvage import salvage
from polyglance.search.store import FORMAT, BadFile, Details, Entry

FIXTURES = Path(__file__).parents[1] / "fixtures" / "version_0_1"
FORMAT_2 = FIXTURES.parent / "format_2" / "library.polyglance"
EXPECTED: dict[str, Any] = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the fixtures."""
    return Path(shutil.copytree(FIXTURES, tmp_path / "old"))


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Return a library of version 0.1 with its model, for tests that only search."""
    copy = tmp_path_factory.mktemp("upgraded")
    for file in FIXTURES.glob("library.polyglance*"):
        shutil.copyfile(file, copy / file.name)
    with Library(copy / "library.polyglance", model=FirstEdition()) as library:
        yield library


def relative(path: str | Path) -> str:
    return Path(path).relative_to(EXPECTED["root"]).as_posix()


def entry_as_json(entry: Entry) -> dict[str, Any]:
    item = entry.item
    return {
        "path": relative(item.path),
        "kind": item.kind,
        "taken": item.taken,
        "width": item.width,
        "height": item.height,
        "seconds": item.seconds,
        "size": item.signature.size,
        "mtime_ns": item.signature.mtime_ns,
        "content": item.content_hash,
        "spans": [list(span) for span in entry.spans],
        "thumbnail": entry.thumbnail is not None,
    }


def test_a_library_of_version_0_1_holds_the_same_files(folder: Path) -> None:
    with Library(folder / "library.polyglance") as library:
        info = library.info()
        assert {
            "name": info.model_info.model,
            "source": info.model_info.source,
            "fingerprint": info.model_info.fingerprint,
            "width": info.model_info.width,
            "library": info.model_info.library,
            "counts": asdict(info.counts),
            "folders": list(info.folders),
            "left_out": list(info.excluded),
        } == EXPECTED["info"]
        assert [entry_as_json(entry) for entry in library._store().entries()] == EXPECTED["files"]
        assert library.verify() == []


@pytest.mark.parametrize("expected", EXPECTED["searches"])
def test_a_library_of_version_0_1_returns_the_same_hits(
    upgraded: Library, expected: dict[str, Any]
) -> None:
    hits = upgraded.search(**expected["search"])
    results = [(relative(hit.path), list(hit.span) if hit.span else None) for hit in hits]
    assert results == [(hit["path"], hit["span"]) for hit in expected["hits"]]
    scores = [hit["score"] for hit in expected["hits"]]
    assert [hit.score for hit in hits] == pytest.approx(scores, abs=2e-5)


def test_a_graph_of_version_0_1_is_usable(upgraded: Library) -> None:
    store, path = upgraded._store(), upgraded.path
    assert path is not None
    graph, exact = ApproximateIndex(store, graph_path(path)), ExactIndex(store)
    query = upgraded.vector(upgraded.search("a dog", k=1)[0])
    assert graph.search(query, 5).ids.tolist() == exact.search(query, 5).ids.tolist()


def test_a_library_of_version_0_1_takes_further_files(folder: Path) -> None:
    """The photographs lie elsewhere now, so they are copies of what is on record."""
    with Library(folder / "library.polyglance", model=FirstEdition()) as library:
        vectors = {relative(entry.item.path): entry.vectors for entry in library._store().entries()}
        report = library.add(folder / "photos", thumbnails=True)
        assert (report.added, report.moved, len(report.bad)) == (7, 0, 1)
        assert library.verify() == []
        for entry in library._store().entries():
            path = Path(entry.item.path)
            if path.parent == (folder / "photos").resolve() and path.name in vectors:
                assert (entry.vectors == vectors[path.name]).all()
        hits = library.search("a sandy beach by the blue sea", folder=folder / "photos")
        assert hits[0].path.name == "beach.webp"
        assert len(library) == 13


def test_a_library_of_the_first_edition_says_how_to_go_on(folder: Path) -> None:
    path = folder / "library.polyglance"
    with (
        Library(path) as library,
        pytest.raises(
            PolyglanceError,
            match=r"earlier edition of polyglance-small.*polyglance index /photos --library",
        ),
    ):
        library.search("a dog")
    with Library(path) as library:  # nothing is lost
        assert library.verify() == []
        assert len(library) == 6


def test_shards_of_version_0_1_are_imported(folder: Path, tmp_path: Path) -> None:
    shards = ShardFolder(folder / "shards")
    assert shards.pending() == []
    files = [file for number in (0, 1) for file in shards.read_shard(number)]
    [bad] = [file for file in files if isinstance(file, BadFile)]
    assert relative(bad.path) == "torn.jpg"
    with (
        Library(tmp_path / "new.polyglance", model=FirstEdition()) as imported,
        Library(folder / "library.polyglance") as old,
    ):
        assert imported.import_shards(shards.path, trust=True).added == 7
        assert imported.folders == old.folders
        assert imported.model_info.fingerprint == old.model_info.fingerprint
        entries = {entry.item.path: entry for entry in imported._store().entries()}
        for entry in old._store().entries():
            assert entries[entry.item.path].item == entry.item
            # Encoded apart, in other batches: the last bit of float16 may differ.
            np.testing.assert_allclose(entries[entry.item.path].vectors, entry.vectors, atol=1e-3)


def check_format_2(library: Library) -> None:
    store = library._store()
    entries = {relative_name(entry): entry for entry in store.entries()}
    assert list(entries) == ["a.jpg", "c.mp4", "trip/b.png"]
    assert entries["c.mp4"].spans == ((0.0, 2.0), (2.0, 4.0))
    assert entries["a.jpg"].thumbnail == b"webp"
    assert store.details([entry.item.path for entry in entries.values()]) == {}
    assert store.places("walked") == ["/photos"]
    assert [bad.reason for bad in store.bad_files()] == ["the file is cut off"]
    assert library.verify() == []


def relative_name(entry: Entry) -> str:
    return Path(entry.item.path).relative_to("/photos").as_posix()


def test_a_library_of_format_2_is_upgraded_and_takes_details(tmp_path: Path) -> None:
    path = tmp_path / "library.polyglance"
    shutil.copyfile(FORMAT_2, path)
    with Library(path) as library:
        check_format_2(library)
        assert library.model_info.format == FORMAT
        details = Details(latitude=48.2, longitude=16.4, camera="Canon EOS R5")
        library._store().put_details({"/photos/a.jpg": details})
    with Library(path) as library:
        assert library._store().details(["/photos/a.jpg"]) == {"/photos/a.jpg": details}
        assert library.verify() == []


def test_a_library_of_format_2_that_cannot_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library.polyglance"
    shutil.copyfile(FORMAT_2, path)
    monkeypatch.setattr("polyglance.search.sqlite_connection._is_writable", lambda path: False)
    with Library(path) as library:
        check_format_2(library)
    assert path.read_bytes() == FORMAT_2.read_bytes()


def test_a_damaged_library_of_format_2_is_salvaged(tmp_path: Path) -> None:
    path = tmp_path / "library.polyglance"
    content = bytearray(FORMAT_2.read_bytes())
    content[:100] = bytes(100)
    path.write_bytes(content)
    result = salvage(path, tmp_path / "new.polyglance")
    assert (result.items, result.complete) == (3, True)
    with Library(tmp_path / "new.polyglance") as library:
        check_format_2(library)
        assert library.model_info.format == FORMAT

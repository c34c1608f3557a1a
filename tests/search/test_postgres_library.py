"""Test `Library` on PostgreSQL, with concurrent processes and killed servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.postgres_server import Server
from helpers.colour_encoder import ColourEncoder, write_image, write_random_images
from helpers.index_process import IndexProcess
from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.search.postgres.store import PostgresStore

Contents = Callable[[Library], dict[str, tuple[object, ...]]]


def test_hits_equal_those_of_a_library_in_a_file(
    library: Library, photos: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(photos / "many", 60)
    write_image(photos / "red.png", "red")
    write_image(photos / "blue.png", "blue")

    def fail(*given: object) -> None:
        raise AssertionError("all vectors are read to find some")

    monkeypatch.setattr(PostgresStore, "rows_after", fail)
    library.add(photos, thumbnails=True)
    with Library(postgres.database(), model=ColourEncoder()) as other:
        assert other.path is None
        assert other.add(photos, thumbnails=True).added == 62
        assert other.add(photos).unchanged == 62
        for query in ({"text": "red"}, {"picture": photos / "blue.png"}):
            for filters in ({}, {"folder": photos / "many"}, {"kind": "clip"}, {"until": "1990"}):
                expected = library.search(**query, **filters)
                hits = other.search(**query, **filters)
                assert [hit.path for hit in hits] == [hit.path for hit in expected]
                assert [hit.score for hit in hits] == pytest.approx([h.score for h in expected])
        assert other.picture(hits[0] if hits else other.search("red", k=1)[0]).size[0] > 0
        info = other.info()
        assert (info.name, info.counts) == (other.name, library.info().counts)
        assert info.size > 100_000


def test_libraries_merge_between_files_and_servers(
    library: Library, photos: Path, postgres: Server, tmp_path: Path, contents: Contents
) -> None:
    write_random_images(photos, 30)
    library.add(photos, thumbnails=True)
    url = postgres.database()
    with Library(url) as there, Library(tmp_path / "back.polyglance") as back:
        assert there.merge(library) == 30
        assert there.merge(library) == 0
        assert contents(there) == contents(library)
        assert back.merge(there) == 30
        assert contents(back) == contents(library)
        assert there.remove(photos / "0003.png") == 1
        assert len(there) == 29
    with Library(url, model=ColourEncoder()) as there:
        assert there.verify(files=True) == []
    with pytest.raises(PolyglanceError, match="cannot be used with another"):
        Library(library.path, model=ColourEncoder("another"))


def test_two_processes_at_once_lose_nothing(
    library: Library, photos: Path, postgres: Server, contents: Contents
) -> None:
    count = 320
    write_random_images(photos, count)
    library.add(photos)
    url = postgres.database()
    processes = [IndexProcess(url, photos) for _ in range(2)]
    assert sum(process.finish() for process in processes) >= count
    with Library(url, model=ColourEncoder()) as shared:
        assert shared.info().counts.vectors == count
        assert shared.verify(files=True) == []
        assert contents(shared) == contents(library)


def test_indexing_survives_kills_of_the_server(
    library: Library, photos: Path, postgres: Server, contents: Contents
) -> None:
    write_random_images(photos, 200)
    library.add(photos)
    url = postgres.database()
    process = IndexProcess(url, photos, paced=True)
    counts = []
    for batches in (3, 4):  # of 13
        process.allow_batches(batches)
        postgres.kill()  # while it encodes or stores the last of them
        postgres.start()
        with Library(url, model=ColourEncoder()) as opened:  # committed writes are there
            assert opened.verify(files=True) == []
            counts.append(len(opened))
    assert 2 * 16 <= counts[0] <= counts[1] <= 7 * 16
    process.finish()
    with Library(url, model=ColourEncoder()) as opened:
        assert opened.verify(files=True) == []
        assert contents(opened) == contents(library)
        assert opened.add(photos).unchanged == 200

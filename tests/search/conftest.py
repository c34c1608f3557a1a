"""Fixtures for tests of libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.colour_encoder import ColourEncoder
from polyglance.search import indexing
from polyglance.search.library import Library
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import ModelInfo


@pytest.fixture(autouse=True)
def exact_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests write files moments before they index them: these would be read again otherwise."""
    monkeypatch.setattr(indexing, "CLOCK_NS", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Return an empty store of vectors of width 3."""
    store = SqliteStore(tmp_path / "store.polyglance", ModelInfo("m", "m", "f", 3, "l"))
    yield store
    store.close()


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """Return a library of colours that does not exist yet."""
    with Library(tmp_path / "my.polyglance", model=ColourEncoder()) as library:
        yield library


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return an empty folder."""
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder


@pytest.fixture
def contents() -> Callable[[Library], dict[str, tuple[object, ...]]]:
    """Return a function that lists all that a library holds, except ids."""

    def read(library: Library) -> dict[str, tuple[object, ...]]:
        entries = library._store().entries()
        return {
            entry.item.path: (entry.item, entry.vectors.tobytes(), entry.spans, entry.thumbnail)
            for entry in entries
        }

    return read

"""What tests of libraries share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.colour_encoder import ColourEncoder
from polyglance.search.library import Library
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import ModelInfo


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store of vectors of three numbers."""
    made = SqliteStore(tmp_path / "store.polyglance", ModelInfo("m", "m", "f", 3, "l"))
    yield made
    made.close()


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """A library of colours that does not exist yet, beside a folder for pictures."""
    with Library(tmp_path / "my.polyglance", model=ColourEncoder()) as made:
        yield made


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder for pictures."""
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder


@pytest.fixture
def contents() -> Callable[[Library], dict[str, tuple[object, ...]]]:
    """All that a library holds of each file, but the numbers it goes by."""

    def read(library: Library) -> dict[str, tuple[object, ...]]:
        entries = library._store().entries()
        return {
            entry.item.path: (entry.item, entry.vectors.tobytes(), entry.spans, entry.thumbnail)
            for entry in entries
        }

    return read

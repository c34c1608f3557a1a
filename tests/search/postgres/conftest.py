"""Fixtures for tests of libraries on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.postgres_server import Server
from helpers.store_entries import MODEL_INFO
from polyglance.search.postgres.store import PostgresStore


@pytest.fixture
def url(postgres: Server) -> str:
    """Return the address of an empty database."""
    return postgres.database()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    """Return an empty store of vectors of width 3."""
    store = PostgresStore(url, MODEL_INFO)
    yield store
    store.close()

"""Test what is particular to PostgreSQL; ../test_store.py tests all stores."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest
from psycopg import errors

from benchmarks.postgres_server import Server
from helpers.store_entries import MODEL_INFO, entry
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.search.backends import FileBackend, backend_for
from polyglance.search.postgres import database
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.store import (
    LibraryUnavailableError,
)

SECRET = "s3cr3t"


def walked(store: PostgresStore) -> list[str]:
    """Return the folders of a store, whether or not their checksums were written."""
    rows = store.fetch_all("SELECT path FROM places WHERE role = 'walked' ORDER BY path")
    return [path for (path,) in rows]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (f"postgresql://me:{SECRET}@host:5433/photos", "postgresql://me@host:5433/photos"),
        (f"postgres://host/photos?user=me&password={SECRET}", "postgresql://me@host/photos"),
        (f"postgresql:///p?host=/run/x&sslpassword={SECRET}", "postgresql:///p?host=/run/x"),
        (f"postgresql://a%40b:{SECRET}@[::1]/p%2Fq", "postgresql://a%40b@::1/p%2Fq"),
        ("postgresql://", "postgresql:///"),
    ],
)
def test_an_address_is_shown_without_the_password(address: str, name: str) -> None:
    assert backend_for(address).name == name


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:x@{SECRET}@host/p",
        f"postgresql://me:x/{SECRET}@host/p",
        f"postgresql://me:%{SECRET}@host/p",
        f"postgresql://host/p?{SECRET}=1",
        f"postgresql://me:{SECRET}@host:port/p",
        f"postgresql://me:{SECRET}@127.0.0.1:1/p",
        f"mysql://me:{SECRET}@host/p",
        f"postgresql+asyncpg://me:{SECRET}@host/p",
    ],
)
def test_a_bad_address_is_an_error_without_the_password(address: str) -> None:
    with pytest.raises(PolyglanceError) as raised:
        backend_for(address).open()
    error: BaseException | None = raised.value
    while error is not None and not isinstance(error, psycopg.Error):
        assert SECRET not in str(error)
        error = error.__cause__
    assert ":" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_may_have_any_name() -> None:
    for name in ("my.polyglance", "./a/b://c", "C:\\photos.polyglance", "postgresql"):
        assert isinstance(backend_for(name), FileBackend)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "polyglance.search.postgres.address")
    with pytest.raises(MissingExtraError, match=r"polyglance\[postgres\]"):
        backend_for("postgresql://host/p")


def test_a_library_created_while_it_is_opened_is_opened(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = PostgresStore._exists

    def made_just_now(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        monkeypatch.setattr(PostgresStore, "_exists", staticmethod(exists))
        PostgresStore(url, MODEL_INFO).close()
        return exists(connection)

    monkeypatch.setattr(PostgresStore, "_exists", staticmethod(made_just_now))
    opened = PostgresStore(url)
    opened.put([entry("/a")])
    assert opened.counts().pictures == 1
    opened.close()


def test_the_server_s_message_is_shown_without_the_password(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._address.parts["password"] = SECRET

    def fails(connection: object) -> None:
        raise psycopg.errors.DiskFull(f"no room for {SECRET}\nand so on")

    store._away_since = None
    with pytest.raises(LibraryUnavailableError, match=r"cannot be used \(no room for \*\*\*\)$"):
        store.transaction(fails)


def test_a_statement_timeout_makes_the_library_unavailable(store: PostgresStore) -> None:
    store.fetch_all("SELECT set_config('statement_timeout', '50ms', false)")
    with pytest.raises(LibraryUnavailableError, match=r"cannot be used .*statement timeout"):
        store.fetch_all("SELECT pg_sleep(2)::text")


def test_a_transaction_that_timed_out_while_idle_is_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database._SESSION, "idle_in_transaction_session_timeout", "100ms")
    monkeypatch.setattr(database, "TIMEOUT", 0.2)
    store = PostgresStore(url, MODEL_INFO)
    pauses = [0.5, 0.5, 0.0]

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        connection.execute("INSERT INTO places VALUES ('walked', %s)", (f"/{len(pauses)}",))
        time.sleep(pauses.pop(0))
        connection.execute("SELECT 1")

    store.transaction(work)
    assert walked(store) == ["/1"]
    monkeypatch.setattr(database, "MAX_LOST_CONNECTIONS", 0)
    pauses = [0.5, 0.0]
    with pytest.raises(LibraryUnavailableError, match=r"cannot be used .*idle-in-transaction"):
        store.transaction(work)
    store.close()


def test_long_work_does_not_block_others(store: PostgresStore) -> None:
    started, end = threading.Event(), threading.Event()

    def work(connection: psycopg.Connection[tuple[str]]) -> str:
        started.set()
        assert end.wait(300)
        [[timeout]] = connection.execute("SHOW lock_timeout").fetchall()
        return timeout

    with ThreadPoolExecutor() as pool:
        long = pool.submit(store.run_outside_transaction, work)
        try:
            assert started.wait(300)
            other = pool.submit(store.put, [entry("/a")])
            other.result()
        finally:
            end.set()
        assert long.result() == "0"
    assert store.fetch_all("SHOW lock_timeout") == [("1min",)]
    assert store.counts().pictures == 1


def test_a_server_that_comes_back_is_used_again(store: PostgresStore, postgres: Server) -> None:
    store.put([entry("/a")])
    postgres.kill()
    back = threading.Timer(0.5, postgres.start)
    back.start()
    store.put([entry("/b", "d")])
    back.join()
    postgres.kill()
    postgres.start()
    assert [one.item.path for one in store.entries()] == ["/a", "/b"]
    assert store.ids().tolist() == [1, 2]
    assert list(store.find_damage()) == []


def test_a_server_that_stays_away_is_an_error(
    store: PostgresStore, url: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(database, "TIMEOUT", 0.4)
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    postgres.kill()
    try:
        for waits in (True, False):  # once the timeout is over, nobody waits again
            pauses.clear()
            with pytest.raises(
                LibraryUnavailableError, match=r"does not answer .*is the server running"
            ):
                store.put([entry("/a")])
            assert bool(pauses) == waits
        with pytest.raises(PolyglanceError, match="does not answer"):
            PostgresStore(url)
    finally:
        postgres.start()
    store.put([entry("/a")])
    assert store.counts().pictures == 1


def test_a_transaction_is_repeated_after_a_lost_connection(store: PostgresStore, url: str) -> None:
    cut = []

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        connection.execute("INSERT INTO places VALUES ('walked', %s)", (f"/{len(cut)}",))
        if len(cut) < 2:
            cut.append(1)
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        connection.execute("SELECT 1")

    store.transaction(work)
    assert walked(store) == ["/2"]


def test_a_server_that_shuts_down_is_waited_for(store: PostgresStore) -> None:
    """The error may arrive before the connection is closed, which then seems open."""
    leaves: list[type[psycopg.OperationalError]] = [errors.AdminShutdown, errors.CrashShutdown]

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        connection.execute("INSERT INTO places VALUES ('walked', %s)", (f"/{len(leaves)}",))
        if leaves:
            raise leaves.pop()("terminating connection due to unexpected postmaster exit")

    store.transaction(work)
    assert walked(store) == ["/0"]


def test_work_that_keeps_killing_the_server_is_given_up(store: PostgresStore, url: str) -> None:
    calls = []

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        calls.append(1)
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(PolyglanceError, match="does not answer"):
        store.transaction(work)
    assert 2 < len(calls) < 10


def test_a_writer_that_blocks_others_is_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database._SESSION, "lock_timeout", "200ms")
    store = PostgresStore(url, MODEL_INFO)
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM polyglance.state FOR UPDATE")
        assert len(store.ids()) == 0  # readers do not wait
        with pytest.raises(PolyglanceError, match="another process has been writing"):
            store.put([entry("/a")])
    store.put([entry("/a")])
    store.close()


def test_a_newer_library_or_an_older_pgvector_is_refused(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIN_PGVECTOR", (99, 0))
        with pytest.raises(
            PolyglanceError, match=r"has pgvector 0\.\d+\.\d+: install 0\.8 or later"
        ):
            PostgresStore(url)
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("UPDATE polyglance.manifest SET value = '99' WHERE name = 'format'")
        with pytest.raises(DataError, match="newer version of Polyglance"):
            PostgresStore(url)
        raw.execute("DELETE FROM polyglance.manifest WHERE name = 'width'")
        raw.execute("UPDATE polyglance.manifest SET value = '1' WHERE name = 'format'")
        with pytest.raises(DataError, match="does not say which model"):
            PostgresStore(url)


def test_a_read_only_user_gets_an_error(url: str, store: PostgresStore) -> None:
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("DROP ROLE IF EXISTS guest")
        raw.execute("CREATE ROLE guest LOGIN")
        raw.execute("GRANT USAGE ON SCHEMA polyglance TO guest")
        raw.execute("GRANT SELECT ON ALL TABLES IN SCHEMA polyglance TO guest")
    store.put([entry("/a")])
    guest = PostgresStore(url.replace("postgres:", "guest:"))
    assert guest.counts().pictures == 1
    with pytest.raises(PolyglanceError, match="does not permit this"):
        guest.put([entry("/b")])
    guest.close()

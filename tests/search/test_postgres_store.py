"""What only a library on PostgreSQL can do, or suffer; what all stores do is in test_store.py."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors

from benchmarks.postgres_server import Server
from helpers.store_entries import MODEL_INFO, entry
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.search.backends import FileBackend, backend_for
from polyglance.search.postgres import database
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.store import LibraryUnavailableError

SECRET = "s3cr3t"


@pytest.fixture
def url(postgres: Server) -> str:
    """The address of an empty database."""
    return postgres.database()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    """An empty store of vectors of three numbers."""
    made = PostgresStore(url, MODEL_INFO)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"postgresql://me:{SECRET}@host:5433/photos", "postgresql://me@host:5433/photos"),
        (f"postgres://host/photos?user=me&password={SECRET}", "postgresql://me@host/photos"),
        (f"postgresql:///p?host=/run/x&sslpassword={SECRET}", "postgresql:///p?host=/run/x"),
        (f"postgresql://a%40b:{SECRET}@[::1]/p%2Fq", "postgresql://a%40b@::1/p%2Fq"),
        ("postgresql://", "postgresql:///"),
    ],
)
def test_an_address_is_shown_without_the_password(given: str, shown: str) -> None:
    assert backend_for(given).name == shown


@pytest.mark.parametrize(
    "given",
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
def test_an_address_that_leads_nowhere_is_a_sentence_without_the_password(given: str) -> None:
    with pytest.raises(PolyglanceError) as raised:
        backend_for(given).open()
    shown: BaseException | None = raised.value
    while shown is not None and not isinstance(shown, psycopg.Error):
        assert SECRET not in str(shown)
        shown = shown.__cause__
    assert ":" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_may_have_any_name() -> None:
    for name in ("my.polyglance", "./a/b://c", "C:\\photos.polyglance", "postgresql"):
        assert isinstance(backend_for(name), FileBackend)


def test_without_its_optional_part_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "polyglance.search.postgres.address")
    with pytest.raises(MissingExtraError, match=r"polyglance\[postgres\]"):
        backend_for("postgresql://host/p")


def test_one_that_is_made_while_it_is_opened_is_opened(
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


def test_what_a_server_says_is_told_without_the_password(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._address.parts["password"] = SECRET

    def fails(connection: object) -> None:
        raise psycopg.errors.DiskFull(f"no room for {SECRET}\nand so on")

    store._away_since = None
    with pytest.raises(LibraryUnavailableError, match=r"cannot be used \(no room for \*\*\*\)$"):
        store.transaction(fails)


def test_a_server_that_has_no_time_is_not_the_fault_of_who_asks(store: PostgresStore) -> None:
    store.fetch_all("SELECT set_config('statement_timeout', '50ms', false)")
    with pytest.raises(LibraryUnavailableError, match=r"cannot be used .*statement timeout"):
        store.fetch_all("SELECT pg_sleep(2)::text")


def test_a_writer_that_paused_does_it_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database._SESSION, "idle_in_transaction_session_timeout", "100ms")
    monkeypatch.setattr(database, "TIMEOUT", 0.2)
    store = PostgresStore(url, MODEL_INFO)
    pauses = [0.5, 0.5, 0.0]

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        connection.execute("INSERT INTO places VALUES ('walked', %s)", (f"/{len(pauses)}",))
        time.sleep(pauses.pop(0))
        connection.execute("SELECT 1")

    store.transaction(work)
    assert store.places("walked") == ["/1"]
    monkeypatch.setattr(database, "MAX_LOST_CONNECTIONS", 0)
    pauses = [0.5, 0.0]
    with pytest.raises(LibraryUnavailableError, match=r"cannot be used .*idle-in-transaction"):
        store.transaction(work)
    store.close()


def test_others_go_on_while_one_does_what_takes_long(store: PostgresStore) -> None:
    begun, end = threading.Event(), threading.Event()

    def work(connection: psycopg.Connection[tuple[str]]) -> str:
        begun.set()
        assert end.wait(30)
        [[timeout]] = connection.execute("SHOW lock_timeout").fetchall()
        return timeout

    with ThreadPoolExecutor() as pool:
        long = pool.submit(store.run_outside_transaction, work)
        try:
            assert begun.wait(30)
            other = pool.submit(store.put, [entry("/a")])
            other.result(timeout=5)
        finally:
            end.set()
        assert long.result(timeout=30) == "0"
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


def test_a_server_that_stays_away_is_a_sentence(
    store: PostgresStore, url: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TIMEOUT", 0.4)
    postgres.kill()
    try:
        for least, most in ((0.3, 5.0), (0.0, 0.3)):  # then nobody waits for it again
            began = time.monotonic()
            with pytest.raises(
                LibraryUnavailableError, match=r"does not answer .*is the server running"
            ):
                store.put([entry("/a")])
            assert least < time.monotonic() - began < most
        with pytest.raises(PolyglanceError, match="does not answer"):
            PostgresStore(url)
    finally:
        postgres.start()
    store.put([entry("/a")])
    assert store.counts().pictures == 1


def test_a_connection_that_is_cut_in_a_transaction_does_it_again_as_a_whole(
    store: PostgresStore, url: str
) -> None:
    cut = []

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        connection.execute("INSERT INTO places VALUES ('walked', %s)", (f"/{len(cut)}",))
        if len(cut) < 2:
            cut.append(1)
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        connection.execute("SELECT 1")

    store.transaction(work)
    assert store.places("walked") == ["/2"]


def test_a_server_that_takes_its_leave_is_waited_for(store: PostgresStore) -> None:
    """Its word may come before the end of the connection, which then seems to be open."""
    leaves: list[type[psycopg.OperationalError]] = [errors.AdminShutdown, errors.CrashShutdown]

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        connection.execute("INSERT INTO places VALUES ('walked', %s)", (f"/{len(leaves)}",))
        if leaves:
            raise leaves.pop()("terminating connection due to unexpected postmaster exit")

    store.transaction(work)
    assert store.places("walked") == ["/0"]


def test_what_kills_the_server_again_and_again_is_given_up(store: PostgresStore, url: str) -> None:
    calls = []

    def work(connection: psycopg.Connection[tuple[int]]) -> None:
        calls.append(1)
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(PolyglanceError, match="does not answer"):
        store.transaction(work)
    assert 2 < len(calls) < 10


def test_a_writer_that_holds_everybody_up_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database._SESSION, "lock_timeout", "200ms")
    store = PostgresStore(url, MODEL_INFO)
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM polyglance.state FOR UPDATE")
        assert len(store.ids()) == 0  # readers do not wait
        with pytest.raises(PolyglanceError, match="another process has been writing"):
            store.put([entry("/a")])
    store.put([entry("/a")])
    store.close()


def test_damage_is_found(store: PostgresStore, url: str) -> None:
    store.put(entry(f"/{name}", name) for name in "abcde")
    assert list(store.find_damage()) == []
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("SET search_path = polyglance, public")
        flipped = "[0,1" + 14 * ",0" + "]"
        raw.execute("UPDATE vectors SET vector = %s WHERE item = 1", (flipped,))
        raw.execute("DELETE FROM vectors WHERE item = 2")
        raw.execute("DELETE FROM numbers WHERE item = 3")
    found = list(store.find_damage())
    assert sorted(found) == [
        "/a: a vector does not match its checksum", "/b: has no vector", "/c: a vector has no id",
    ]  # fmt: skip


def test_a_newer_library_or_an_older_server_asks_for_another(
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
        with pytest.raises(DataError, match="no whole manifest"):
            PostgresStore(url)


def test_who_may_not_write_is_told_so(url: str, store: PostgresStore) -> None:
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

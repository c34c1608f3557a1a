"""Damaged rows and foreign objects of a library on PostgreSQL are noticed."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from helpers.store_entries import entry
from polyglance.errors import DataError, PolyglanceError
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.repair import repair
from polyglance.search.store import (
    EXCLUDED,
    SCANNED,
    BadFile,
    Entry,
    FileSignature,
    LibraryDamagedError,
)


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
        f"{fault}: `polyglance library repair` indexes the file again"
        for fault in (
            "/a: a vector does not match its checksum", "/b: has no vector",
            "/c: a vector has no id",
        )
    ]  # fmt: skip
    with pytest.raises(DataError, match="vector 1 does not match its checksum"):
        store.rows(store.ids())  # a wrong score is never returned
    store.delete(["/b", "/c"])
    done = repair(url)  # no file is there
    assert [sentence.split(":")[0] for sentence in done.lost] == ["/a"]
    assert list(store.find_damage()) == []
    assert store.counts().pictures == 2


def fill(store: PostgresStore) -> list[Entry]:
    """Store a picture, a clip and a bad file, with thumbnails and folders."""
    spans = ((0.0, 1.5), (1.5, 3.0))
    store.put(
        [
            replace(entry("/p/a", "a"), thumbnail=b"webp"),
            entry("/p/b", "b", (1, 0, 0), (0, 1, 0), spans=spans, kind="clip", seconds=3.0),
            entry("/p/c", "c"),
        ]
    )
    store.put_bad_files([BadFile("/p/torn", "is torn", FileSignature(1, 2))])
    store.add_place(SCANNED, "/p")
    store.add_place(EXCLUDED, "/p/private")
    return list(store.entries())


def ask(store: PostgresStore) -> None:
    """Read all that users see."""
    store.lookup(range(1, 9))
    store.rows(store.ids())
    for path in store.paths():
        store.thumbnail(path)
    store.records(list(store.paths()))
    store.bad_files()
    store.places(SCANNED)


@pytest.mark.parametrize(
    ("statement", "refused", "lost"),
    [
        ("UPDATE items SET path = '/etc/passwd' WHERE id = 1", "item 1", "rows of which"),
        ("UPDATE items SET taken = '1' WHERE id = 1", "item 1", "rows of which"),
        ("UPDATE items SET parts = 3 WHERE id = 2", "item 2", "/p/b"),
        ("UPDATE thumbnails SET webp = 'other'", "the thumbnail of /p/a", "/p/a"),
        ("DELETE FROM thumbnails", "the thumbnail of /p/a", "/p/a"),
        ("UPDATE vectors SET stop = 9 WHERE item = 2 AND part = 0", "vector 2", "/p/b"),
        ("UPDATE numbers SET id = 77 WHERE id = 2", "vector 77", "/p/b"),
        ("UPDATE bad SET reason = 'x'", "what is on record of /p/torn", "rows of which"),
        ("UPDATE places SET path = '/' WHERE path = '/p'", "list of its folders", "rows of which"),
    ],
)
def test_a_changed_row_is_refused_found_and_repaired(
    store: PostgresStore, url: str, statement: str, refused: str, lost: str
) -> None:
    fill(store)
    ask(store)
    assert list(store.find_damage()) == []
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("SET search_path = polyglance, public")
        raw.execute(statement)
    with pytest.raises(LibraryDamagedError, match=refused) as error:
        ask(store)
    assert "\n" not in str(error.value)
    done = repair(url)  # no file is there
    assert done.damage
    assert done.lost[0].startswith(lost)
    ask(store)
    assert list(store.find_damage()) == []
    assert store.counts().pictures + store.counts().clips >= 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_library_of_an_earlier_format_is_upgraded(
    store: PostgresStore, url: str, version: int
) -> None:
    expected = fill(store)
    ids, records = store.ids().tolist(), store.records(list(store.paths()))
    with psycopg.connect(url, autocommit=True) as raw:  # as the earlier version left it
        raw.execute("SET search_path = polyglance, public")
        raw.execute("DROP TABLE details")
        if version == 1:
            raw.execute("ALTER TABLE items DROP parts, DROP thumbnail, DROP checksum")
            for table in ("numbers", "thumbnails", "bad", "places"):
                raw.execute(f"ALTER TABLE {table} DROP checksum")  # type: ignore[arg-type]
        raw.execute("UPDATE manifest SET value = %s WHERE name = 'format'", (str(version),))
        raw.execute(f"DROP ROLE IF EXISTS guest{version}")
        raw.execute(f"CREATE ROLE guest{version} LOGIN")
        raw.execute(f"GRANT USAGE ON SCHEMA polyglance TO guest{version}")
        raw.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA polyglance TO guest{version}")
    with pytest.raises(PolyglanceError, match="ask its owner to open it once"):
        PostgresStore(url.replace("postgres:", f"guest{version}:"))
    upgraded = PostgresStore(url)
    assert upgraded.model_info.format == 3
    assert list(upgraded.find_damage()) == []
    assert (upgraded.ids().tolist(), upgraded.records(list(upgraded.paths()))) == (ids, records)
    for one, other in zip(upgraded.entries(), expected, strict=True):
        assert (one.item, one.spans, one.thumbnail) == (other.item, other.spans, other.thumbnail)
    ask(upgraded)
    upgraded.put([entry("/p/d", "d")])
    upgraded.move("/p/a", "/p/e", FileSignature(5, 6))
    assert list(upgraded.find_damage()) == []
    upgraded.close()
    guest = PostgresStore(url.replace("postgres:", f"guest{version}:"))
    ask(guest)
    guest.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW polyglance.v AS SELECT 1",
        "CREATE MATERIALIZED VIEW polyglance.v AS SELECT 1",
        "ALTER TABLE polyglance.items ADD CONSTRAINT c CHECK (lower(path) <> '')",
        "ALTER TABLE polyglance.items ADD COLUMN c text DEFAULT current_user",
        "ALTER TABLE polyglance.bad ADD COLUMN c text GENERATED ALWAYS AS (lower(path)) STORED",
        "CREATE INDEX i ON polyglance.items (lower(path))",
        "CREATE POLICY p ON polyglance.items USING (path <> '')",
        "CREATE TABLE polyglance.more () INHERITS (polyglance.places)",
        "CREATE DOMAIN public.d AS text CHECK (VALUE <> '');"
        " ALTER TABLE polyglance.bad ALTER reason TYPE public.d",
        "CREATE FUNCTION polyglance.unnest(bigint[]) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION public.unnest(bigint[]) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        " CREATE TRIGGER t BEFORE INSERT ON polyglance.items EXECUTE FUNCTION f()",
    ],
)
def test_a_schema_with_code_of_a_stranger_is_refused(
    store: PostgresStore, url: str, statement: str
) -> None:
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(statement)
        with pytest.raises(DataError, match="which no library has"):
            PostgresStore(url)
        # The next test may get this database, without our schema alone.
        raw.execute("DROP FUNCTION IF EXISTS public.unnest(bigint[])")
        raw.execute("DROP DOMAIN IF EXISTS public.d CASCADE")
        raw.execute("DROP FUNCTION IF EXISTS f() CASCADE")

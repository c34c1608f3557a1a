"""Damaged libraries: no wrong answer, no endless loop, and a way back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.colour_encoder import ColourEncoder, write_random_images
from helpers.store_entries import MODEL_INFO, entry
from polyglance.errors import DataError, PolyglanceError
from polyglance.search import sqlite_check
from polyglance.search.library import Library
from polyglance.search.repair import repair
from polyglance.search.sqlite_pages import PAGE_SIZE
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Details, Filter, LibraryDamagedError

COUNT = 40


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a library of pictures with thumbnails."""
    folder = tmp_path_factory.mktemp("damage")
    write_random_images(folder / "photos", COUNT)
    with Library(folder / "my.polyglance", model=ColourEncoder()) as library:
        assert library.add(folder / "photos", thumbnails=True).added == COUNT
    return folder / "my.polyglance"


@pytest.fixture
def damaged(original: Path, tmp_path: Path) -> Path:
    """Return a copy, to be damaged."""
    return Path(shutil.copyfile(original, tmp_path / "my.polyglance"))


@pytest.fixture
def answers(original: Path) -> list[tuple[str, float]]:
    """Return what the sound library answers."""
    return search(original)


def search(path: Path, folder: Path | None = None) -> list[tuple[str, float]]:
    with Library(path, model=ColourEncoder()) as library:
        hits = library.search("red", k=COUNT, folder=folder)
    return [(str(hit.path), round(hit.score, 3)) for hit in hits]


def ask(path: Path) -> None:
    """Search a library, and ask for its folders."""
    search(path)
    with Library(path) as library:
        assert library.folders


def change(path: Path, *statements: str) -> None:
    """Change a library behind its back."""
    with closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()


def page_of(path: Path, text: bytes) -> int:
    """Return the number, from 0, of the first page with a text."""
    return path.read_bytes().index(text) // PAGE_SIZE


def overwrite(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        # Rows with the highest number there is: whatever comes after comes before it.
        ("UPDATE vectors SET id = -5 WHERE id = 3", "vector -5|vectors are missing"),
        ("UPDATE vectors SET id = 9223372036854775807 WHERE id = 3", "vector 9223372036854775807"),
        ("UPDATE vectors SET vector = zeroblob(24) WHERE id = 3", "vector 3 does not match"),
        ("UPDATE vectors SET vector = 'text' WHERE id = 3", "vector 3 does not match"),
        ("UPDATE vectors SET item = 4 WHERE id = 3", "vector 3 does not match"),
        ("UPDATE vectors SET start = 1.5 WHERE id = 3", "vector 3 does not match"),
        ("DELETE FROM vectors WHERE id = 3", "1 vectors are missing"),
        ("UPDATE items SET path = path || 'x' WHERE id = 3", "item 3 does not match"),
        ("DELETE FROM items WHERE id = 3", "belong to no item"),
        ("UPDATE totals SET count = 39 WHERE name = 'vectors'", "totals of its tables"),
        ("UPDATE manifest SET value = '13' WHERE name = 'width'", "description of its model"),
        (
            "UPDATE manifest_copy SET value = x'00' WHERE name = 'width'",
            "description of its model",
        ),
        ("UPDATE manifest_copy SET name = x'00' WHERE name = 'width'", "description of its model"),
        ("DELETE FROM places", "list of its folders"),
    ],
)
def test_a_changed_row_is_refused_found_and_repaired(
    damaged: Path, answers: list[tuple[str, float]], statement: str, lost: str
) -> None:
    change(damaged, statement)
    with pytest.raises(LibraryDamagedError, match=lost) as refused:
        ask(damaged)
    assert "`polyglance library repair --library" in str(refused.value)
    assert "\n" not in str(refused.value)
    done = repair(damaged, model=ColourEncoder())
    assert done.damage
    assert all("repair" in sentence for sentence in done.damage)
    if "places" not in statement:
        assert search(damaged) == answers
    assert done.damaged_file == damaged.with_name("my.polyglance.damaged")
    assert repair(damaged).damage == ()


@pytest.mark.parametrize("column", ["size", "content", "width"])
def test_a_changed_item_is_neither_a_hit_nor_unchanged(damaged: Path, column: str) -> None:
    change(damaged, f"UPDATE items SET {column} = '1' WHERE id = 5")
    with Library(damaged, model=ColourEncoder()) as library:
        with pytest.raises(LibraryDamagedError):
            library.search("red", since="2000", k=COUNT)
        with pytest.raises(LibraryDamagedError):
            library.update()


def text_places(path: Path, text: str) -> list[int]:
    """Return where a text is in a file: in its table and in the indexes that hold it."""
    content, places = path.read_bytes(), list[int]()
    while (place := content.find(text.encode(), places[-1] + 1 if places else 0)) >= 0:
        places.append(place)
    return places


def test_a_filter_leaves_out_nothing_that_changed(tmp_path: Path) -> None:
    """Change what filters compare, in the table or an index; no answer may lack an item."""
    store = SqliteStore(tmp_path / "sound", MODEL_INFO)
    store.put(entry(f"/photos/{n}/a", f"{n}", taken=f"20{n + 10}-01-01") for n in range(9))
    folder = ("/photos/4", "/photos/5", "/photos/6")
    filters = (Filter(since="2014"), Filter(until="2014"), Filter(folders=folder),
               Filter(kind="picture"), Filter(kind="clip"),
               Filter(folders=folder, since="2014", kind="picture"))  # fmt: skip
    expected = [store.matching_ids(where).tolist() for where in filters]
    assert list(map(len, expected)) == [5, 5, 3, 9, 0, 3]
    store.close()
    refused = 0
    for text, new in (("/photos/5/a", "/photos/7/a"), ("/photos/5/a", "/photos/1/a"),
                      ("2015-01-01", "2011-01-01"), ("2015-01-01", "2091-01-01"),
                      ("/photos/5/apicture", "/photos/5/aqicture")):  # fmt: skip
        places = text_places(tmp_path / "sound", text)
        # In the table and in indexes: of dates there are two.
        assert len(places) == (1 if "picture" in text else 3 if "-01-01" in text else 2)
        for place in places:
            for where, ids in zip(filters, expected, strict=True):
                path = Path(shutil.copyfile(tmp_path / "sound", tmp_path / "damaged"))
                overwrite(path, place, new.encode())
                store = SqliteStore(path)
                try:
                    assert store.matching_ids(where).tolist() == ids, (new, where)
                except LibraryDamagedError:
                    refused += 1
                store.close()
    assert refused == 16


def test_a_filter_verifies_the_vectors_among_which_it_chooses(damaged: Path) -> None:
    with Library(damaged, model=ColourEncoder()) as library:
        store, among = library._store(), np.array([3, 5, 8])
        assert store.matching_ids(Filter(kind="picture"), among).tolist() == [3, 5, 8]
        assert store.matching_ids(Filter(kind="clip"), among).tolist() == []
    change(damaged, "UPDATE items SET taken = '1' WHERE id = 5")
    with Library(damaged, model=ColourEncoder()) as library:
        store = library._store()
        assert store.matching_ids(Filter(since="2000"), np.array([3, 8])).tolist() == [3, 8]
        with pytest.raises(LibraryDamagedError, match="item 5"):
            store.matching_ids(Filter(since="2000"), among)


def test_a_filter_does_not_verify_every_row_before_the_first_search(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = list[str]()
    real = sqlite_check.matches
    monkeypatch.setattr(
        sqlite_check, "matches", lambda table, *rest: checked.append(table) or real(table, *rest)
    )
    with Library(damaged, model=ColourEncoder()) as library:
        assert len(library.search("red", k=3, since="2000")) == 3
        assert "items" not in checked
        assert len(library.search("red", k=3, since="2000")) == 3
        library.update()
        assert checked.count("items") == COUNT


def test_a_changed_thumbnail_is_refused_and_made_again(damaged: Path) -> None:
    with Library(damaged, model=ColourEncoder()) as library:
        [hit] = library.search("red", k=1)
        sound = library.thumbnail(hit)
    change(damaged, "UPDATE thumbnails SET webp = zeroblob(9)")
    with Library(damaged) as library, pytest.raises(LibraryDamagedError, match=r"thumbnail of /"):
        library.thumbnail(hit)
    repair(damaged, model=ColourEncoder())
    with Library(damaged) as library:
        assert library.thumbnail(hit) == sound
        assert library.info().counts.thumbnails == COUNT


def test_changed_details_are_refused_found_and_dropped(damaged: Path) -> None:
    with Library(damaged) as library:
        [path, *_] = library.paths()
        library._store().put_details({path: Details(camera="Canon", place="Wien")})
    change(damaged, "UPDATE details SET place = 'Rom' WHERE place = 'Wien'")
    with Library(damaged) as library:
        with pytest.raises(LibraryDamagedError, match="the details of item"):
            library._store().details([path])
        [damage] = [one for one in library.verify() if "detail" in one]
        assert damage.startswith(f"{path}: a detail does not match its checksum")
    change(damaged, "DELETE FROM details WHERE camera = 'Canon'")
    with Library(damaged) as library, pytest.raises(LibraryDamagedError, match="rows of details"):
        library.browser.facets("camera")
    repair(damaged, model=ColourEncoder())
    with Library(damaged) as library:
        assert library.verify() == []
        assert library.browser.facets("camera") == []
        assert len(library) == COUNT


def test_only_what_is_lost_is_encoded_again(damaged: Path) -> None:
    change(damaged, "UPDATE vectors SET vector = zeroblob(24) WHERE id IN (3, 9)")
    encoder = ColourEncoder()
    done = repair(damaged, model=encoder)
    assert encoder.num_encoded == 2
    assert (done.kept, done.report and done.report.added, done.lost) == (COUNT - 2, 2, ())
    with Library(damaged) as library:
        ids = library._store().ids().tolist()
    assert ids == [*(n for n in range(1, COUNT + 1) if n not in (3, 9)), COUNT + 1, COUNT + 2]


def test_what_is_lost_for_good_is_named(damaged: Path) -> None:
    with Library(damaged) as library:
        store = library._store()
        store.put([replace(entry("/away/a.jpg", "x", (1, *11 * (0,))), thumbnail=b"small")])
        store.put([entry("/away/b.jpg", "y", (1, *11 * (0,)))])
    change(
        damaged,
        "UPDATE thumbnails SET webp = x'00' WHERE item = (SELECT id FROM items"
        " WHERE path = '/away/a.jpg')",
        "UPDATE vectors SET start = 1 WHERE item = (SELECT id FROM items"
        " WHERE path = '/away/b.jpg')",
    )
    done = repair(damaged, model=ColourEncoder())
    assert [sentence.split(":")[0] for sentence in done.lost] == ["/away/b.jpg", "/away/a.jpg"]
    with Library(damaged) as library:
        assert "/away/a.jpg" in library.paths()
        assert len(library) == COUNT + 1


def damage_header(path: Path) -> None:
    overwrite(path, 0, bytes(100))


def damage_schema(path: Path) -> None:
    overwrite(path, 100, b"\0" * 8)


def damage_root_of_vectors(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        [root] = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'vectors'").fetchone()
    overwrite(path, (root - 1) * PAGE_SIZE, b"\xff" * 8)


def damage_index_of_paths(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        [root] = raw.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_items_1'"
        ).fetchone()
    overwrite(path, (root - 1) * PAGE_SIZE + 3, b"\0\1")


@pytest.mark.parametrize(
    "damage", [damage_header, damage_schema, damage_root_of_vectors, damage_index_of_paths]
)
def test_damaged_pages_are_found_and_what_is_on_others_is_kept(
    damaged: Path, answers: list[tuple[str, float]], damage: Callable[[Path], None]
) -> None:
    damage(damaged)
    before = damaged.read_bytes()
    with pytest.raises(DataError) as refused:
        search(damaged, folder=Path(answers[0][0]).parent)
    assert "\n" not in str(refused.value)
    done = repair(damaged, model=ColourEncoder())
    assert search(damaged) == answers
    assert done.damaged_file is not None
    assert done.damaged_file.read_bytes() == before


def test_vectors_of_another_length_are_never_stored_nor_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s", MODEL_INFO)
    for vector in ((0.0, 0.0, 0.0), (2.0, 0.0, 0.0), (np.nan, 0.0, 0.0), (np.inf, 0.0, 0.0)):
        with pytest.raises(DataError, match="does not have length 1"):
            store.put([entry("/a", "a", vector)])
    with store.changes() as changes:  # as a program with another idea of vectors might
        changes.insert("items", (1, "/a", "picture", 1, 2, "c", "2024", 4, 3, None, 1, 0))
        changes.insert("vectors", (1, 1, None, None, np.array([50, 0, 0], "<f2").tobytes()))
    with pytest.raises(LibraryDamagedError, match="vector 1 does not have length 1"):
        list(store.rows_after(0))
    store.close()


def test_no_repair_of_what_is_no_library_or_in_use(damaged: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(DataError, match="nothing says which model made it"):
        repair(tmp_path / "text")
    assert (tmp_path / "text").read_text() == "hello " * 1000
    change(damaged, "DELETE FROM vectors WHERE id = 3")
    with Library(damaged), pytest.raises(PolyglanceError, match=r"another process has .* open"):
        repair(damaged, model=ColourEncoder())


def test_a_damaged_library_of_version_0_1_is_not_given_checksums(tmp_path: Path) -> None:
    fixture = Path(__file__).parents[1] / "fixtures" / "version_0_1" / "library.polyglance"
    path = Path(shutil.copyfile(fixture, tmp_path / "old.polyglance"))
    change(path, "UPDATE vectors SET vector = zeroblob(512) WHERE id = 2")
    with pytest.raises(LibraryDamagedError, match="vector 2 does not match"):
        Library(path)
    done = repair(path)  # its pictures lie elsewhere now
    assert len(done.lost) == 1
    with Library(path) as library:
        assert library.verify() == []
        assert len(library) == done.kept


def test_a_flipped_bit_anywhere_changes_no_answer(
    original: Path, tmp_path: Path, answers: list[tuple[str, float]]
) -> None:
    sound, path = original.read_bytes(), tmp_path / "my.polyglance"
    rng = np.random.default_rng(7)
    flips = zip(rng.integers(len(sound), size=60), rng.integers(8, size=60), strict=True)
    refused: list[str] = []
    for place, bit in flips:
        content = bytearray(sound)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        try:
            found = search(path)
        except PolyglanceError as error:
            refused.append(str(error))
        else:
            assert found == answers
    assert refused
    assert not any("\n" in sentence for sentence in refused)

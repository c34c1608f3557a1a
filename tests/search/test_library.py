from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import polyglance
from helpers.colour_encoder import ColourEncoder, write_clip, write_image, write_random_images
from polyglance.demo.photographs import FOLDER
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.export.copy_model import copy_model
from polyglance.records import read_manifest
from polyglance.search.backends import default_library
from polyglance.search.library import Library
from polyglance.search.store import EXCLUDED, SCANNED, LibraryNotFoundError
from polyglance.search.vector_index import VectorIndex
from polyglance.text.dictionaries import Dictionary
from polyglance.text.translation.translators import WordByWord

Contents = Callable[[Library], dict[str, tuple[object, ...]]]
PHOTOGRAPHS = (
    "beach", "bee", "bridge", "cow", "duck", "giraffes", "golden-retriever", "horse", "iceberg",
    "penguin", "sushi", "windmill",
)  # fmt: skip


@pytest.fixture(scope="module")
def holiday(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Index a few photographs with the default model."""
    folder = tmp_path_factory.mktemp("holiday")
    with polyglance.Library(folder / "my.polyglance", threads=1) as library:
        report = library.add(*(FOLDER / f"{name}.webp" for name in PHOTOGRAPHS))
        assert report.added == len(PHOTOGRAPHS)
        yield library


@pytest.mark.parametrize(
    ("query", "expected"),
    [("ein Hund", "golden-retriever"), ("две жирафы", "giraffes"), ("寿司", "sushi"),
     ("حصان", "horse"), ("un pont", "bridge")],
)  # fmt: skip
def test_queries_work_in_many_languages(holiday: Library, query: str, expected: str) -> None:
    assert expected in [hit.path.stem for hit in holiday.search(query, k=2)]


def test_scores_are_those_of_the_encoder_itself(holiday: Library) -> None:
    encoder = polyglance.load(threads=1)
    paths = [FOLDER / f"{name}.webp" for name in PHOTOGRAPHS[:5]]
    [expected] = encoder.encode_texts(["a cow in a field"]) @ encoder.encode_pictures(paths).T
    results = {
        hit.path: hit.score for hit in holiday.search("a cow in a field", k=99, off=["names"])
    }
    np.testing.assert_allclose([results[path] for path in paths], expected, atol=2e-3)
    assert list(results.values()) == sorted(results.values(), reverse=True)


def test_a_picture_finds_itself_and_words_pull_it_elsewhere(holiday: Library) -> None:
    duck = FOLDER / "duck.webp"
    [first, *_] = holiday.search(picture=duck)
    assert (first.path, round(first.score, 2)) == (duck, 1.0)
    assert holiday.search("a bird", exclude_picture=duck, k=1)[0].path != duck
    words = [hit.path.stem for hit in holiday.search("ice", picture=duck, k=4)]
    assert "iceberg" in words or "penguin" in words


def test_a_new_process_finds_the_same(holiday: Library) -> None:
    script = (
        "import sys, polyglance; lib = polyglance.Library(sys.argv[1]);"
        "print(lib.search('sushi', k=1)[0].path.name);"
        "assert 'torch' not in sys.modules and 'faiss' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(holiday.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("sushi.webp\n", "")


def test_importing_the_package_imports_no_library() -> None:
    script = (
        "import sys, polyglance; assert 'numpy' not in sys.modules; polyglance.Library;"
        "assert 'onnxruntime' not in sys.modules and 'PIL' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_filters_by_folder_kind_and_date(library: Library, photos: Path) -> None:
    write_image(photos / "a" / "1.png", "red")
    write_image(photos / "a" / "b" / "2.png", "red")
    write_image(photos / "c" / "3.png", "red")
    library.add(photos)

    def names(**filters: object) -> list[str]:
        return sorted(hit.path.stem for hit in library.search("red", **filters))  # type: ignore[arg-type]

    assert names(folder=photos / "a") == ["1", "2"]
    assert names(folder=[photos / "c", photos / "a" / "b"]) == ["2", "3"]
    assert names(folder=photos / "nothing") == []
    assert names(kind="clip") == []
    assert names(until=1999) == []
    assert names(since="2000", kind="picture") == ["1", "2", "3"]


def test_removed_files_stay_out_until_added_by_name(library: Library, photos: Path) -> None:
    write_random_images(photos / "public", 2)
    write_random_images(photos / "private", 3, seed=1)
    library.add(photos)
    assert library.remove(photos / "private") == 3
    assert library.update().added == library.add(photos).added == 0
    assert len(library) == 2
    assert library.info().excluded == (str(photos / "private"),)
    assert library.add(photos / "private").added == 3
    assert library.info().excluded == ()
    assert library.remove(photos) == 5
    assert (len(library), library.info().folders) == (0, ())
    assert len(list(photos.rglob("*.png"))) == 5
    with pytest.raises(PolyglanceError, match="is not in the library"):
        library.remove(photos)


def test_another_model_is_refused_and_the_error_says_what_to_do(
    library: Library, photos: Path
) -> None:
    write_random_images(photos, 1)
    library.add(photos)
    for other in (ColourEncoder("other"), None):
        with pytest.raises(PolyglanceError, match="made with the") as refused:
            Library(library.path, model=other).search("red")
        assert "give" in str(refused.value)
    with pytest.raises(PolyglanceError, match="cannot be used with polyglance-small"):
        Library(library.path, model="polyglance-small")
    wider = ColourEncoder()
    wider.width = 13
    with pytest.raises(PolyglanceError, match="width 13"):
        Library(library.path, model=wider)
    assert Library(library.path).info().model_info.model == "colours"  # no model is loaded


def test_a_model_folder_that_was_moved_is_named(tmp_path: Path, photos: Path) -> None:
    write_random_images(photos, 1)
    folder = tmp_path / "model"
    copy_model(None, folder, image_size=64)
    with Library(tmp_path / "my.polyglance", model=folder) as made:
        made.add(photos)
    folder.rename(tmp_path / "moved")
    with Library(tmp_path / "my.polyglance") as opened:
        message = r"my.polyglance was made with the model /.*/model, which is no longer there"
        with pytest.raises(PolyglanceError, match=message):
            opened.search("red")
    with Library(tmp_path / "my.polyglance", model=tmp_path / "moved") as opened:
        assert len(opened.search("red")) == 1


def test_libraries_of_one_model_are_merged(
    library: Library, tmp_path: Path, photos: Path, contents: Contents
) -> None:
    write_random_images(photos / "one", 3)
    write_random_images(photos / "two", 4, seed=1)
    library.add(photos / "one")
    with Library(tmp_path / "other.polyglance", model=ColourEncoder()) as other:
        other.add(photos / "two", photos / "one" / "0000.png", thumbnails=True)
        both = {**contents(other), **contents(library)}
        assert library.merge(other) == 4
        assert library.merge(tmp_path / "other.polyglance") == 0
    assert contents(library) == both
    assert library.verify(files=True) == []
    assert library.update().unchanged == 7
    library.remove(photos / "two" / "0001.png")
    assert library.merge(tmp_path / "other.polyglance") == 0  # what was removed stays out
    library.add(photos / "two" / "0001.png")
    with Library(tmp_path / "new.polyglance") as new:
        assert new.merge(library) == 7
        assert new.info().model_info.fingerprint == library.info().model_info.fingerprint
        assert (
            new.model_info.library != library.model_info.library
        )  # two that may go different ways
    with Library(tmp_path / "alien.polyglance", model=ColourEncoder("alien")) as alien:
        alien.add(photos / "one")
        with pytest.raises(PolyglanceError, match="put it back, or index again"):
            library.merge(alien)


def test_merging_builds_the_graph(
    library: Library, tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random_images(photos, 30)
    library.add(photos)
    with Library(tmp_path / "new.polyglance") as new:
        monkeypatch.setattr(VectorIndex, "_are_many", lambda index: True)
        assert new.merge(library) == 30
        assert new._index()._usable_graph() is not None  # type: ignore[union-attr]


def test_verify_reports_changed_files(library: Library, photos: Path) -> None:
    first, second, third = write_random_images(photos, 3)
    library.add(photos)
    status = second.stat()
    first.unlink()
    content = bytearray(second.read_bytes())
    content[-20] ^= 1
    second.write_bytes(content)
    os.utime(second, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a failing disk would
    assert library.verify() == []
    results = library.verify(files=True)
    assert len(results) == 2
    assert str(first) in results[0]
    assert str(second) in results[1]
    assert str(third) not in "".join(results)


def test_a_missing_or_damaged_library_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LibraryNotFoundError, match="polyglance index"):
        Library(tmp_path / "none").search("red")
    (tmp_path / "text").write_text("no library " * 100)
    with pytest.raises(DataError, match="not a library"):
        Library(tmp_path / "text")
    with pytest.raises(PolyglanceError, match="no such file or folder"):
        Library(tmp_path / "new").add(tmp_path / "nothing")
    assert not (tmp_path / "new").exists()


def test_invalid_searches_are_errors(library: Library, photos: Path) -> None:
    write_random_images(photos, 1)
    library.add(photos)
    with pytest.raises(PolyglanceError, match="1 or more"):
        library.search("red", k=0)
    with pytest.raises(PolyglanceError, match="the query is empty"):
        library.search()
    with pytest.raises(DataError):
        library.search(picture=photos / "gone.png")


def test_searching_works_while_another_process_indexes(library: Library, photos: Path) -> None:
    write_random_images(photos, 60)
    write_image(photos / "red.png", "red")
    library.add(photos / "red.png")
    failures: list[Exception] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                assert library.search("red", k=1)[0].path.name == "red.png"
        except Exception as error:
            failures.append(error)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    with Library(library.path, model=ColourEncoder()) as writer:
        writer.add(photos)
    done.set()
    for thread in asking:
        thread.join()
    assert failures == []
    assert len(library.search("red", k=100)) == 61


def test_the_default_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("POLYGLANCE_LIBRARY", raising=False)
    assert default_library() == tmp_path / "polyglance" / "library.polyglance"
    monkeypatch.setenv("POLYGLANCE_LIBRARY", str(tmp_path / "x"))
    assert Library().path == tmp_path / "x"


def test_a_closed_library_opens_again(library: Library, photos: Path) -> None:
    write_random_images(photos, 2)
    library.add(photos)
    library.close()
    assert len(library) == 2


@pytest.mark.real_data
def test_recall_through_the_library_is_the_evaluation_s(real_data: Path, tmp_path: Path) -> None:
    manifest = real_data / "flickr8k" / "test.jsonl"
    records = list(read_manifest(manifest))[:24]
    paths = [(manifest.parent / str(record.image)).resolve() for record in records]
    encoder = polyglance.load(threads=1)
    texts = [(text, row) for row, one in enumerate(records) for text in one.captions["de"][:1]]
    # One text at a time, as in a search: batches round a little differently.
    vectors = np.concatenate([encoder.encode_texts([text]) for text, _ in texts])
    owners = np.array([row for _, row in texts])
    expected = evaluate_retrieval(encoder.encode_pictures(paths), vectors, owners)
    with Library(tmp_path / "l", model=encoder) as library:
        library.add(*paths)
        # As it is: a caption is no typing mistake, though a rare word ("Echsen") may look like one.
        found = [library.search(text, k=10, literal=True) for text, _ in texts]
    results = [[hit.path for hit in hits] for hits in found]
    ranks = np.array(
        [hits.index(paths[row]) if paths[row] in hits else 10
         for hits, (_, row) in zip(results, texts, strict=True)]
    )  # fmt: skip
    for k, recall in expected.text_to_image.recalls.items():
        assert 100 * np.mean(ranks < k) == pytest.approx(recall, abs=0.1)


def test_a_hit_as_json(library: Library, photos: Path) -> None:
    write_image(photos / "a.png", "red")
    library.add(photos)
    [hit] = library.search("red")
    plain = hit.to_json()
    assert plain["path"] == str(photos / "a.png")
    assert (plain["kind"], plain["span"], plain["width"]) == ("picture", None, 24)
    assert replace(hit, score=0.5).to_json()["score"] == 0.5


def test_get_returns_what_has_an_id(library: Library, photos: Path) -> None:
    write_image(photos / "a.png", "red")
    write_clip(photos / "b.mp4", [("green", 2), ("blue", 2)])
    library.add(photos, thumbnails=True)
    hits = library.search("blue", all_segments=True)
    assert len({hit.id for hit in hits}) == 3
    for hit in hits:
        media = library.get(hit.id)
        assert media is not None
        assert (media.path, media.span) == (hit.path, hit.span)
        assert not hasattr(media, "score")
        small = library.thumbnail(media)
        assert small is not None
        assert small[:4] == b"RIFF"
        np.testing.assert_allclose(np.linalg.norm(library.vector(media)), 1, atol=1e-3)
        assert library.search(picture=media, all_segments=True)[0].id == hit.id
    assert library.get(999) is None
    assert library.folders == (str(photos),)
    assert list(library.paths()) == [str(photos / "a.png"), str(photos / "b.mp4")]
    assert list(library.paths(photos / "b.mp4")) == [str(photos / "b.mp4")]
    assert library.model_info == library.info().model_info
    before = library.revision
    assert library.revision == before
    library.remove(photos / "a.png")
    assert library.revision != before
    removed = next(hit for hit in hits if hit.kind == "picture")
    assert library.get(removed.id) is None
    with pytest.raises(PolyglanceError, match="no longer in the library"):
        library.search(picture=removed)


def test_pictures_in_queries_may_be_hits_or_vectors(library: Library, photos: Path) -> None:
    red, blue = write_image(photos / "red.png", "red"), write_image(photos / "blue.png", "blue")
    library.add(photos)
    encoder = library._encoder()
    assert isinstance(encoder, ColourEncoder)
    by_file = library.search("white", picture=[red], exclude_picture=blue)
    num_encoded = encoder.num_encoded
    pieces = {hit.path: hit for hit in by_file}
    by_hit = library.search("white", picture=[pieces[red]], exclude_picture=pieces[blue])
    vectors = {path: library.vector(hit) for path, hit in pieces.items()}
    by_vector = library.search("white", picture=vectors[red], exclude_picture=[vectors[blue]])
    assert encoder.num_encoded == num_encoded
    for other in (by_hit, by_vector):
        assert [hit.path for hit in other] == [hit.path for hit in by_file]
        scores = [hit.score for hit in by_file]
        assert [hit.score for hit in other] == pytest.approx(scores, abs=1e-3)
    np.testing.assert_allclose(library.vector(red), vectors[red], atol=1e-3)


def test_a_query_is_averaged_with_its_translations(library: Library, photos: Path) -> None:
    write_image(photos / "red.png", "red")
    write_image(photos / "green.png", "green")
    library.add(photos)
    # ColourEncoder knows English only: a "translation" is another English word.
    words = [WordByWord(Dictionary([("red", other)]), "en", code)
             for code, other in (("de", "green"), ("fr", "green"))]  # fmt: skip
    assert library.search("red", language="en")[0].path.stem == "red"
    results = library.search("red", language="en", translators=words)
    expected = library.search({"en": "red", "de": "green", "fr": "green"})
    assert results == expected
    assert results[0].path.stem == "green"  # two against one
    same = [WordByWord(Dictionary([("x", "y")]), "en", "de", keep_unknown=True)]
    assert library.search("red", language="en", translators=same) == library.search({"en": "red"})
    with pytest.raises(PolyglanceError, match="only a query in one language"):
        library.search("red", translators=words)


def test_a_removed_file_outside_all_scanned_folders_stays_out(
    library: Library, photos: Path
) -> None:
    write_image(photos / "red.png", "red")
    library.add(photos)
    store = library._store()
    store.drop_places(SCANNED, store.places(SCANNED))  # as for files from a manifest
    path = (photos / "red.png").as_posix()
    assert library.remove(path) == 1
    assert store.places(EXCLUDED) == [path]
    library.add(path)
    assert store.places(EXCLUDED) == []

"""What vectors found, read again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL.Image import Image

from helpers.colour_encoder import ColourEncoder, write_clip, write_image, write_random_images
from polyglance.search import reranking
from polyglance.search.library import Library
from polyglance.search.query import MediaRef
from polyglance.search.render.images import read_image
from polyglance.search.reranking import Reranker
from polyglance.search.store import VectorRows

PALE = {"a": (255, 90, 90), "b": (255, 60, 60), "c": (255, 30, 30), "d": (30, 30, 255)}
"""From the palest red on: what fits "red" least comes first, and blue not at all."""


class Greenest:
    """Likes green, whatever is asked, and notes all that it is given."""

    def __init__(self, trust: float = 0.0) -> None:
        self.trust = trust
        self.looked: list[int] = []
        self.asked: list[tuple[str, str | None]] = []

    def look(self, pictures: Sequence[Image]) -> list[float]:
        self.looked.append(len(pictures))
        return [float(np.asarray(picture)[..., 1].mean()) for picture in pictures]

    def read(
        self, text: str, seen: Sequence[float], *, language: str | None = None
    ) -> NDArray[np.float64]:
        self.asked.append((text, language))
        return np.array(seen) * (2 if text == "rot" else 1)


@pytest.fixture
def reds(library: Library, photos: Path) -> Library:
    for name, colour in PALE.items():
        write_image(photos / f"{name}.png", colour)
    library.add(photos)
    return library


def names(library: Library, *asked: object, **how: object) -> str:
    return "".join(hit.path.stem for hit in library.search(*asked, **how))  # type: ignore[arg-type]


def with_reranker(library: Library, reranker: Greenest) -> Library:
    return Library(library.path, model=ColourEncoder(), reranker=reranker)


def test_candidates_are_sorted_anew_and_the_rest_follows(reds: Library) -> None:
    assert names(reds, "red") == "cbad"
    reader = Greenest()
    with with_reranker(reds, reader) as library:
        assert names(library, "red", candidates=3) == "abcd"
        hits = library.search("red", candidates=3)
        assert [hit.rerank_score for hit in hits] == [90, 60, 30, None]
        assert [hit.score for hit in hits] == [
            {hit.path: hit.score for hit in reds.search("red")}[hit.path] for hit in hits
        ]
        assert names(library, "red", candidates=2) == "bcad"
        # However few are asked for, as many are read: pages join.
        assert names(library, "red", candidates=3, k=1) == "a"
        assert library.search("red", candidates=3)[0].to_json()["reread"] == 90
    assert reader.asked[0] == ("red", None)


def test_the_cosine_counts_as_far_as_it_is_trusted(reds: Library, photos: Path) -> None:
    greens = {"a": 90, "b": 60, "c": 30, "d": 30}
    with with_reranker(reds, Greenest(trust=20.0)) as library:
        found = {hit.path.stem: hit.rerank_score for hit in library.search("red")}
        assert found == greens  # so few vectors do not tell what a cosine is worth
        write_random_images(photos / "others", 30)
        library.update()
        found = {hit.path.stem: hit.rerank_score for hit in library.search("red", k=99)}
    cosines = {hit.path.stem: hit.score for hit in reds.search("red", k=99)}
    deviation = np.std(list(cosines.values()))  # the library is its own sample
    for name, green in greens.items():
        assert found[name] == pytest.approx(green + 20 * cosines[name] / deviation, rel=1e-4)
    with with_reranker(reds, Greenest(trust=1e6)) as library:
        assert [hit.path for hit in library.search("red")] == [
            hit.path for hit in reds.search("red")
        ]


def test_copies_of_one_picture_do_not_make_scores_of_rounding(
    library: Library, photos: Path
) -> None:
    for number in range(30):
        write_image(photos / f"{number}.png", (255, 90, 90))
    library.add(photos)
    with with_reranker(library, Greenest(trust=20.0)) as again:
        assert {hit.rerank_score for hit in again.search("red")} == {90.0}


class Numbered:
    """A store of a hundred thousand vectors, every third of which is gone."""

    def __init__(self) -> None:
        self.vectors = np.random.default_rng(0).normal(0.1, 0.3, (100_000, 2)).astype(np.float32)
        self.asked = 0

    def revision(self) -> int:
        return 0

    def rows(self, ids: NDArray[np.int64]) -> VectorRows:
        self.asked += len(ids)
        there = np.unique(ids[(ids % 3 > 0) & (ids <= len(self.vectors))])
        return VectorRows(there, there, self.vectors[there - 1])


@pytest.mark.parametrize("number", [4, 50_000, 99_998])
def test_of_many_vectors_some_are_drawn(number: int) -> None:
    store, query = Numbered(), np.array([1.0, 0.0], np.float32)
    look = Reranker(Greenest(), store)  # type: ignore[arg-type]
    for _ in range(2):
        assert look._deviation(query, number) == pytest.approx(0.3, rel=0.1)
    assert store.asked < 6000


def test_few_pictures_are_decoded_at_a_time_however_many_search(
    reds: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, most, lock = [0], [0], threading.Lock()

    def slowly(piece: MediaRef) -> Image:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return read_image(str(piece.path), piece.kind)

    monkeypatch.setattr(reranking, "_picture", slowly)
    look, hits = Reranker(Greenest(), reds._store()), reds.search("red")
    query = reds.vector(hits[0])
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(look.rerank, hits, "red", query) for _ in range(3)]:
            assert len(done.result()) == 4
    assert most == [2]


def test_pictures_alone_are_not_read_again(reds: Library, photos: Path) -> None:
    reader = Greenest()
    with with_reranker(reds, reader) as library:
        assert names(library, picture=photos / "c.png")[0] == "c"
        assert library.search(picture=photos / "c.png")[0].rerank_score is None
        assert reader.looked == []
        assert names(library, "red", picture=photos / "c.png", candidates=3) == "abc" + "d"


def test_all_languages_of_a_query_are_read_and_the_mean_counts(reds: Library) -> None:
    reader = Greenest()
    with with_reranker(reds, reader) as library:
        found = library.search({"en": "red", "de": "rot", "fr": " "})
    assert reader.asked == [("red", "en"), ("rot", "de")]
    assert found[0].rerank_score == (90 + 180) / 2


def test_what_was_seen_is_kept_and_what_is_gone_comes_last(reds: Library, photos: Path) -> None:
    reader = Greenest()
    with with_reranker(reds, reader) as library:
        names(library, "red")
        (photos / "a.png").unlink()  # which is remembered
        assert names(library, "blue") == "abdc"  # of equals, that which the vectors prefer
        assert reader.looked == [4]
    (photos / "b.png").write_bytes(b"broken")
    with with_reranker(reds, Greenest()) as library:
        assert names(library, "red") == "cdba"
        assert library.search("red")[-1].rerank_score is None


def test_only_so_much_is_kept(reds: Library) -> None:
    reader = Greenest()
    look = Reranker(reader, reds._store(), cache_size=3)
    hits = reds.search("red")
    query = reds.vector(hits[0])
    look.rerank(hits, "red", query)
    look.rerank(hits[1:], "red", query)
    assert reader.looked == [4]
    look.rerank(hits[:1], "red", query)
    assert reader.looked == [4, 1]


def test_a_clip_is_read_in_the_middle_of_its_span(library: Library, photos: Path) -> None:
    write_clip(photos / "a.mp4", [("red", 3), ((0, 200, 0), 3), ("red", 3)])  # type: ignore[list-item]
    library.add(photos)
    with with_reranker(library, Greenest()) as again:
        first, *rest = again.search("red", all_segments=True)
    assert first.span == (3.0, 6.0)
    assert first.rerank_score == pytest.approx(200, abs=12)
    assert all(hit.rerank_score is not None and hit.rerank_score < 20 for hit in rest)


class Closer(Greenest):
    """Has looked closer, and found that nothing is near."""

    def closer(
        self, query: NDArray[np.float32], seen: Sequence[float], *, model: str
    ) -> NDArray[np.float64]:
        return np.zeros(len(seen))


def test_a_closer_look_counts_in_place_of_the_cosine_and_half_of_a_clip_s(
    library: Library, photos: Path
) -> None:
    write_clip(photos / "clip.mp4", [((255, 0, 0), 3)])  # type: ignore[list-item]
    write_image(photos / "red.png", (255, 0, 0))
    write_random_images(photos / "others", 30)
    library.add(photos)
    cosines = {hit.path.stem: hit.score for hit in library.search("red", k=99)}
    worth = 1000 / np.std(list(cosines.values()))
    with with_reranker(library, Closer(trust=1000)) as again:
        found = {
            hit.path.stem: hit.rerank_score for hit in again.search("red", k=99, candidates=99)
        }
    assert found["red"] == pytest.approx(0, abs=12)
    assert found["clip"] == pytest.approx(worth * cosines["clip"] / 2, rel=0.02)
    assert worth * cosines["clip"] > 1000


def test_a_library_without_anything_in_it(library: Library, photos: Path) -> None:
    write_image(photos / "a.png", "red")
    library.add(photos)
    library.remove(photos / "a.png")
    with with_reranker(library, Greenest()) as empty:
        assert empty.search("red") == []


def test_a_trained_model_needs_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None;"
        "from polyglance.search.reranking import open_reranker; open_reranker('run')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "MissingExtraError: reading hits again with a trained model needs" in done.stderr
    assert "polyglance[train]" in done.stderr

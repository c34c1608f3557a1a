"""Test the re-ranking of hits."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
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

COLOURS = {"a": (255, 90, 90), "b": (255, 60, 60), "c": (255, 30, 30), "d": (30, 30, 255)}
"""Colours by name, from the palest red to blue."""


class GreenScorer:
    """Scores images by their green channel, whatever the text, and records its calls."""

    def __init__(self, dual_weight: float = 0.0) -> None:
        self.dual_weight = dual_weight
        self.batch_sizes: list[int] = []
        self.texts: list[tuple[str, str | None]] = []

    def encode_images(self, images: Sequence[Image]) -> list[float]:
        self.batch_sizes.append(len(images))
        return [float(np.asarray(image)[..., 1].mean()) for image in images]

    def score(
        self, text: str, encoded: Sequence[float], *, language: str | None = None
    ) -> NDArray[np.float64]:
        self.texts.append((text, language))
        return np.array(encoded) * (2 if text == "rot" else 1)


@pytest.fixture
def reds(library: Library, photos: Path) -> Library:
    for name, colour in COLOURS.items():
        write_image(photos / f"{name}.png", colour)
    library.add(photos)
    return library


def names(library: Library, *asked: object, **how: object) -> str:
    return "".join(hit.path.stem for hit in library.search(*asked, **how))  # type: ignore[arg-type]


def with_reranker(library: Library, scorer: GreenScorer) -> Library:
    return Library(library.path, model=ColourEncoder(), reranker=scorer)


def test_candidates_are_reranked_and_the_rest_follows(reds: Library) -> None:
    assert names(reds, "red") == "cbad"
    scorer = GreenScorer()
    with with_reranker(reds, scorer) as library:
        assert names(library, "red", candidates=3) == "abcd"
        hits = library.search("red", candidates=3)
        assert [hit.rerank_score for hit in hits] == [90, 60, 30, None]
        assert [hit.score for hit in hits] == [
            {hit.path: hit.score for hit in reds.search("red")}[hit.path] for hit in hits
        ]
        assert names(library, "red", candidates=2) == "bcad"
        # The candidates do not depend on k, so that pages of results fit together.
        assert names(library, "red", candidates=3, k=1) == "a"
        assert library.search("red", candidates=3)[0].to_json()["rerank_score"] == 90
    assert scorer.texts[0] == ("red", None)


def test_the_cosine_counts_by_the_dual_weight(reds: Library, photos: Path) -> None:
    greens = {"a": 90, "b": 60, "c": 30, "d": 30}
    with with_reranker(reds, GreenScorer(dual_weight=20.0)) as library:
        found = {hit.path.stem: hit.rerank_score for hit in library.search("red")}
        assert found == greens  # too few vectors to estimate the deviation
        write_random_images(photos / "others", 30)
        library.update()
        found = {hit.path.stem: hit.rerank_score for hit in library.search("red", k=99)}
    cosines = {hit.path.stem: hit.score for hit in reds.search("red", k=99)}
    deviation = np.std(list(cosines.values()))  # the library is its own sample
    for name, green in greens.items():
        assert found[name] == pytest.approx(green + 20 * cosines[name] / deviation, rel=1e-4)
    with with_reranker(reds, GreenScorer(dual_weight=1e6)) as library:
        assert [hit.path for hit in library.search("red")] == [
            hit.path for hit in reds.search("red")
        ]


def test_names_count_beside_the_dual_weight(library: Library, photos: Path) -> None:
    write_image(photos / "Oma/x.png", (250, 5, 5))
    write_image(photos / "y.png", (5, 200, 5))
    write_random_images(photos / "others", 30)
    library.add(photos)
    with with_reranker(library, GreenScorer(dual_weight=20.0)) as again:
        plain = {hit.path.stem: hit for hit in again.search("oma", k=99, off=["names"])}
        hits = again.search("oma", k=99)
    found = {hit.path.stem: hit for hit in hits}
    assert plain["y"].rerank_score is not None
    assert found["y"].rerank_score == pytest.approx(plain["y"].rerank_score)
    assert found["x"].gain == pytest.approx(5.0)
    expected = (plain["x"].rerank_score or 0) + 20 * 5
    assert found["x"].rerank_score == pytest.approx(expected, rel=1e-4)


def test_rounding_among_copies_is_not_a_deviation(library: Library, photos: Path) -> None:
    for number in range(30):
        write_image(photos / f"{number}.png", (255, 90, 90))
    library.add(photos)
    with with_reranker(library, GreenScorer(dual_weight=20.0)) as again:
        assert {hit.rerank_score for hit in again.search("red")} == {90.0}


class LargeStore:
    """A store of a hundred thousand vectors, every third of which is deleted."""

    def __init__(self) -> None:
        self.vectors = np.random.default_rng(0).normal(0.1, 0.3, (100_000, 2)).astype(np.float32)
        self.num_ids = 0

    def revision(self) -> int:
        return 0

    def rows(self, ids: NDArray[np.int64]) -> VectorRows:
        self.num_ids += len(ids)
        present = np.unique(ids[(ids % 3 > 0) & (ids <= len(self.vectors))])
        return VectorRows(present, present, self.vectors[present - 1])


@pytest.mark.parametrize("number", [4, 50_000, 99_998])
def test_the_deviation_is_estimated_from_a_sample(number: int) -> None:
    store, query = LargeStore(), np.array([1.0, 0.0], np.float32)
    reranker = Reranker(GreenScorer(), store)  # type: ignore[arg-type]
    for _ in range(2):
        assert reranker._deviation(query, number) == pytest.approx(0.3, rel=0.1)
    assert store.num_ids < 6000


def test_concurrent_searches_share_the_decoding_threads(
    reds: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, peak, lock = 0, 0, threading.Lock()
    pair = threading.Barrier(2)  # passes only when two images are decoded at the same time

    def read_in_pairs(media: MediaRef) -> Image:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        pair.wait()
        with lock:
            running -= 1
        return read_image(str(media.path), media.kind)

    monkeypatch.setattr(reranking, "_read_image", read_in_pairs)
    reranker, hits = Reranker(GreenScorer(), reds._store()), reds.search("red")
    query = reds.vector(hits[0])
    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(reranker.rerank, hits, "red", query) for _ in range(3)]:
            assert len(future.result()) == 4
    assert peak == 2


def test_a_search_by_picture_alone_is_not_reranked(reds: Library, photos: Path) -> None:
    scorer = GreenScorer()
    with with_reranker(reds, scorer) as library:
        assert names(library, picture=photos / "c.png")[0] == "c"
        assert library.search(picture=photos / "c.png")[0].rerank_score is None
        assert scorer.batch_sizes == []
        assert names(library, "red", picture=photos / "c.png", candidates=3) == "abc" + "d"


def test_a_query_in_several_languages_gets_the_mean_score(reds: Library) -> None:
    scorer = GreenScorer()
    with with_reranker(reds, scorer) as library:
        found = library.search({"en": "red", "de": "rot", "fr": " "})
    assert scorer.texts == [("red", "en"), ("rot", "de")]
    assert found[0].rerank_score == (90 + 180) / 2


def test_encodings_are_cached_and_missing_files_come_last(reds: Library, photos: Path) -> None:
    scorer = GreenScorer()
    with with_reranker(reds, scorer) as library:
        names(library, "red")
        (photos / "a.png").unlink()  # its encoding is cached
        assert names(library, "blue") == "abdc"  # cosines decide ties
        assert scorer.batch_sizes == [4]
    (photos / "b.png").write_bytes(b"broken")
    with with_reranker(reds, GreenScorer()) as library:
        assert names(library, "red") == "cdba"
        assert library.search("red")[-1].rerank_score is None


def test_the_cache_is_bounded(reds: Library) -> None:
    scorer = GreenScorer()
    reranker = Reranker(scorer, reds._store(), cache_size=3)
    hits = reds.search("red")
    query = reds.vector(hits[0])
    reranker.rerank(hits, "red", query)
    reranker.rerank(hits[1:], "red", query)
    assert scorer.batch_sizes == [4]
    reranker.rerank(hits[:1], "red", query)
    assert scorer.batch_sizes == [4, 1]


def test_a_clip_is_scored_by_the_middle_of_its_span(library: Library, photos: Path) -> None:
    write_clip(photos / "a.mp4", [("red", 3), ((0, 200, 0), 3), ("red", 3)])  # type: ignore[list-item]
    library.add(photos)
    with with_reranker(library, GreenScorer()) as again:
        first, *rest = again.search("red", all_segments=True)
    assert first.span == (3.0, 6.0)
    assert first.rerank_score == pytest.approx(200, abs=12)
    assert all(hit.rerank_score is not None and hit.rerank_score < 20 for hit in rest)


class ZeroDualScorer(GreenScorer):
    """Has vectors of its own, whose cosine with every query is 0."""

    def dual_scores(
        self,
        query: NDArray[np.float32],
        encoded: Sequence[float],
        cosines: NDArray[np.floating],
        *,
        models: Collection[str],
    ) -> NDArray[np.float64]:
        return np.zeros(len(encoded))


def test_dual_scores_replace_the_cosine_and_count_half_for_a_clip(
    library: Library, photos: Path
) -> None:
    write_clip(photos / "clip.mp4", [((255, 0, 0), 3)])  # type: ignore[list-item]
    write_image(photos / "red.png", (255, 0, 0))
    write_random_images(photos / "others", 30)
    library.add(photos)
    # Without names, which count beside the cosine.
    cosines = {hit.path.stem: hit.score for hit in library.search("red", k=99, off=["names"])}
    worth = 1000 / np.std(list(cosines.values()))
    with with_reranker(library, ZeroDualScorer(dual_weight=1000)) as again:
        found = {
            hit.path.stem: hit.rerank_score
            for hit in again.search("red", k=99, candidates=99, off=["names"])
        }
    assert found["red"] == pytest.approx(0, abs=12)
    assert found["clip"] == pytest.approx(worth * cosines["clip"] / 2, rel=0.02)
    assert worth * cosines["clip"] > 1000


def test_an_empty_library_has_no_hits(library: Library, photos: Path) -> None:
    write_image(photos / "a.png", "red")
    library.add(photos)
    library.remove(photos / "a.png")
    with with_reranker(library, GreenScorer()) as empty:
        assert empty.search("red") == []


def test_a_trained_model_needs_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None;"
        "from polyglance.search.reranking import open_scorer; open_scorer('run')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "MissingExtraError: re-ranking with a trained model needs" in done.stderr
    assert "polyglance[train]" in done.stderr

"""Re-rank the best hits with a cross-encoder, which reads the text together with each image.

The vectors of a library are made before anybody searches. A cross-encoder such as UC2 or M3P
reads the query beside the image itself and separates close candidates, at a thousand times the
cost: so it scores only the best few dozen hits. Its score plus the weighted cosine
(`PairScorer.dual_weight`) orders them; hits that it did not score follow in their old order. A
scorer that can also compare the query with better image vectors (`RescoresVectors`) replaces
the library's cosine by its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.model_folder import is_model
from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError, MissingExtraError
from polyglance.search.model_info import picture_models
from polyglance.search.query import Hit, MediaRef, QueryText
from polyglance.search.render.images import read_image
from polyglance.search.store import Store
from polyglance.vision.pictures import downscale

if TYPE_CHECKING:
    from PIL.Image import Image

NUM_CANDIDATES = 50
"""Hits that are re-ranked, unless the scorer has a ``num_candidates`` of its own."""
CACHE_SIZE = 1000
"""Images whose encodings are cached: about 80 MB for a model of hidden size 384."""
SAMPLE_SIZE = 4000
"""Vector ids drawn to estimate the standard deviation of a library's cosines."""
MIN_SIDE = 448
"""Pixels of an image's shorter side that are kept: twice the models' input, unless the scorer
has a ``min_side`` of its own."""
_NUM_THREADS = 2
"""Threads that decode images, however many searches are running."""
_MIN_SAMPLE = 24
"""With fewer vectors than this the standard deviation is unknown, and cosines are ignored."""
_NUM_PROBES = 64
"""Ids tried to find out whether any that high exists."""


class PairScorer(Protocol):
    """A model that scores pairs of a text and an image."""

    @property
    def dual_weight(self) -> float:
        """The weight of the cosine beside its score, per standard deviation of the cosines."""

    def encode_images(self, images: Sequence[Image]) -> Sequence[Any]:
        """Return a reusable encoding of each image, in a form of the model's own."""

    def score(
        self, text: str, encoded: Sequence[Any], *, language: str | None = None
    ) -> NDArray[np.floating]:
        """Return how well a text fits each encoded image, ``[len(encoded)]``; higher is better."""


@runtime_checkable
class RescoresVectors(Protocol):
    """A scorer that also has vectors in the library's space, by test-time augmentation."""

    def dual_scores(
        self,
        query: Vectors,
        encoded: Sequence[Any],
        cosines: NDArray[np.floating],
        *,
        models: Collection[str],
    ) -> NDArray[np.floating] | None:
        """Return the cosine of a query's vector with each encoded image.

        Args:
            query: A unit vector, ``[width]``.
            encoded: Images encoded by `PairScorer.encode_images`.
            cosines: Of the library's vectors, ``[len(encoded)]``, with which a scorer may average
                its own.
            models: Fingerprints of the models that have the library's vectors of pictures.

        Returns:
            ``[len(encoded)]``, or None if the scorer's vectors are of other models.
        """


RerankerLike: TypeAlias = "str | Path | PairScorer"
"""A scorer, the name or folder of a model with a reader, or the folder of a trained UC2 or M3P."""


def open_scorer(reranker: RerankerLike, threads: int | None = None) -> PairScorer:
    """Return a scorer as it is, or load one.

    Args:
        reranker: A model with a reader needs no torch; a trained UC2 or M3P does.
        threads: CPU threads of a reader; None for all cores.
    """
    if not isinstance(reranker, str | Path):
        return reranker
    if is_model(reranker):
        from polyglance.encoders.reader import Reader

        return Reader.open(reranker, threads)
    try:
        from polyglance.cross_encoders.rerank import CrossEncoderReranker
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("polyglance"):
            raise
        raise MissingExtraError("re-ranking with a trained model", "train") from error
    return CrossEncoderReranker.open(reranker)


class Reranker:
    """Re-ranks the hits of one library. Threads may share it."""

    def __init__(self, scorer: PairScorer, store: Store, *, cache_size: int = CACHE_SIZE) -> None:
        """Re-rank hits of ``store``, caching the encodings of ``cache_size`` images."""
        self._scorer, self._store, self._cache_size = scorer, store, cache_size
        self._cache: OrderedDict[int, Any] = OrderedDict()
        self._sample: tuple[Hashable, Vectors] | None = None
        self._models: frozenset[str] | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_NUM_THREADS, "reranking")

    @property
    def num_candidates(self) -> int:
        """How many hits to re-rank where nobody says."""
        own: int = getattr(self._scorer, "num_candidates", NUM_CANDIDATES)
        return own

    def rerank(
        self, hits: Sequence[Hit], text: QueryText, query: Vectors, *, language: str | None = None
    ) -> list[Hit]:
        """Sort hits by the scorer's opinion.

        Args:
            hits: Hits, best first.
            text: The query; one in several languages is scored in each, and averaged.
            query: Its vector, ``[width]``.
            language: The language of a ``text`` that does not say.

        Returns:
            The hits with a `Hit.rerank_score`, best first; then those whose files cannot be
            read any more.
        """
        encodings = self._encode(hits)
        texts = text if isinstance(text, Mapping) else {language: text}
        readable = [hit for hit in hits if hit.id in encodings]
        if not readable:
            return list(hits)
        encoded = [encodings[hit.id] for hit in readable]
        scores = np.mean(
            [
                self._scorer.score(words, encoded, language=code)
                for code, words in texts.items()
                if words.strip()
            ],
            axis=0,
        )
        dual_weight = self._scorer.dual_weight
        deviation = self._deviation(query, max(hit.id for hit in hits)) if dual_weight else 0.0
        weight = dual_weight / deviation if deviation else 0.0
        cosines = self._cosines(readable, encoded, query)
        # Names, dates, places and texts count as much beside the cosine as without re-ranking.
        reranked = [
            replace(
                hit, rerank_score=float(score) + weight * float(cosine) + dual_weight * hit.gain
            )
            for hit, score, cosine in zip(readable, scores, cosines, strict=True)
        ]
        reranked.sort(key=lambda hit: -(hit.rerank_score or 0.0))  # stable: cosines decide ties
        return [*reranked, *(hit for hit in hits if hit.id not in encodings)]

    def _cosines(
        self, hits: Sequence[Hit], encoded: Sequence[Any], query: Vectors
    ) -> NDArray[np.floating]:
        """Return each hit's cosine, by the scorer's own vectors where it has them.

        For a clip the scorer has only the middle frame, so the mean of both cosines counts.
        """
        cosines = np.array([hit.score for hit in hits])
        if not isinstance(self._scorer, RescoresVectors):
            return cosines
        if self._models is None:
            self._models = picture_models(self._store.model_info)
        rescored = self._scorer.dual_scores(query, encoded, cosines, models=self._models)
        if rescored is None:
            return cosines
        return np.where([hit.span is None for hit in hits], rescored, (cosines + rescored) / 2)

    def _encode(self, hits: Sequence[Hit]) -> dict[int, Any]:
        """Return the encoding of each hit whose file can be read, by id."""
        with self._lock:
            encodings = {hit.id: self._cache[hit.id] for hit in hits if hit.id in self._cache}
        missing = [hit for hit in hits if hit.id not in encodings]
        read, own = _read_image, getattr(self._scorer, "min_side", None)
        if own is not None:  # smaller pictures are decoded faster
            read = partial(_read_image, min_side=own)
        images = list(self._pool.map(read, missing))
        pairs = [(hit.id, image) for hit, image in zip(missing, images, strict=True) if image]
        if pairs:
            encoded = self._scorer.encode_images([image for _, image in pairs])
            encodings |= zip((media_id for media_id, _ in pairs), encoded, strict=True)
        with self._lock:
            for media_id, encoding in encodings.items():
                self._cache[media_id] = encoding
                self._cache.move_to_end(media_id)
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return encodings

    def _deviation(self, query: Vectors, existing_id: int) -> float:
        """Estimate the standard deviation of the query's cosines with the library, from a sample.

        Returns 0 if the sample is too small. ``existing_id`` is the id of any existing vector.
        """
        revision, sample = self._store.revision(), self._sample
        if sample is None or sample[0] != revision:
            sample = self._sample = (revision, self._draw_sample(existing_id))
        cosines = sample[1] @ query
        deviation = float(np.std(cosines)) if len(cosines) >= _MIN_SAMPLE else 0.0
        return deviation if deviation > 1e-6 else 0.0  # among copies only rounding differs

    def _draw_sample(self, existing_id: int) -> Vectors:
        """Return vectors of random ids: there may be too many to list them all."""
        generator, last = np.random.default_rng(0), existing_id
        while len(self._store.rows(generator.integers(last + 1, 2 * last + 1, _NUM_PROBES))):
            last *= 2
        ids = generator.choice(2 * last, min(2 * last, SAMPLE_SIZE), replace=False) + 1
        return self._store.rows(ids).vectors


def _read_image(media: MediaRef, min_side: int = MIN_SIDE) -> Image | None:
    """Return a picture or the middle frame of a span; None if the file is missing or broken."""
    try:
        image = read_image(str(media.path), media.kind, media.span, min_side=min_side)
    except (DataError, MissingExtraError):
        return None
    return downscale(image, min_side)

"""A second look: what vectors found likeliest is read again, words beside each picture.

A vector of a picture is made before anybody asks. A model such as UC2 or M3P reads what is
asked beside the picture itself and tells close candidates apart, at a thousand times the
cost: so it reads some dozens that the vectors found. Its score plus so much of the cosine
as it is trusted (`polyglance.evaluation.pair_scores.Candidates.trusting`) sorts them, and
what it did not read follows in the order of the vectors. A model that has also looked more
closely, as the model of the vectors does, has its cosine counted in place of that one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError, MissingExtra
from polyglance.search.files import shrunk
from polyglance.search.query import Hit, Piece, Text
from polyglance.search.showing.pictures import picture_of
from polyglance.search.store import Store

if TYPE_CHECKING:
    from PIL.Image import Image

CANDIDATES = 50
"""How many hits are read again."""
KEPT = 1000
"""Pictures of which it is kept what the model saw: some 80 MB of a model of 384 numbers."""
SAMPLE = 4000
"""Numbers of vectors that are drawn, to tell how far the cosines of a library are apart."""
DETAIL = 448
"""Pixels of a picture's shorter side that are kept: twice what models look at."""
_READERS = 2
"""Threads that decode pictures, however many searches go on."""
_FEWEST = 24
"""Vectors that tell how far cosines are apart; with less of a library its cosines do not count."""
_PROBES = 64
"""Numbers that are tried to learn whether any so high is given."""


class Reranker(Protocol):
    """A model that reads words beside a picture."""

    @property
    def trust(self) -> float:
        """What the cosine counts beside its score, in standard deviations of the cosines."""

    def look(self, pictures: Sequence[Image]) -> Sequence[Any]:
        """What it sees in each picture, whatever is said of it, in a form of its own."""

    def read(
        self, text: str, seen: Sequence[Any], *, language: str | None = None
    ) -> NDArray[np.floating]:
        """How well a text fits each of the pictures it has seen: more is better."""


@runtime_checkable
class LooksCloser(Protocol):
    """A reranker that has looked at pictures as the library's own model does, only closer."""

    def closer(
        self, query: Vectors, seen: Sequence[Any], *, model: str
    ) -> NDArray[np.floating] | None:
        """Cosines of a query's vector with what it has seen in several looks.

        None where the vector is of another model, by its fingerprint, than it knows.
        """


AnyReranker: TypeAlias = "str | Path | Reranker"
"""A model, or the folder of a trained UC2 or M3P."""


def open_reranker(reranker: AnyReranker) -> Reranker:
    """The model that is meant; a trained one needs torch."""
    if not isinstance(reranker, str | Path):
        return reranker
    try:
        from polyglance.recipes.pairs.reader import PairReader
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("polyglance"):
            raise
        raise MissingExtra("reading hits again with a trained model", "train") from error
    return PairReader.open(reranker)


class SecondLook:
    """A reranker before one library. Threads may share one."""

    def __init__(self, reranker: Reranker, store: Store, *, kept: int = KEPT) -> None:
        """``kept`` is of how many pictures it is remembered what was seen."""
        self._reranker, self._store, self._most = reranker, store, kept
        self._seen: OrderedDict[int, Any] = OrderedDict()
        self._sample: tuple[Hashable, Vectors] | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_READERS, "reranking")

    def sort(
        self, hits: Sequence[Hit], text: Text, query: Vectors, *, language: str | None = None
    ) -> list[Hit]:
        """Hits by what the model says of them; those that cannot be read any more come last.

        What is asked in several languages is read in each, and the mean counts.
        """
        seen = self._look(hits)
        told = text if isinstance(text, Mapping) else {language: text}
        there = [hit for hit in hits if hit.number in seen]
        if not there:
            return list(hits)
        looks = [seen[hit.number] for hit in there]
        scores = np.mean(
            [
                self._reranker.read(words, looks, language=spoken)
                for spoken, words in told.items()
                if words.strip()
            ],
            axis=0,
        )
        trust = self._reranker.trust
        deviation = self._deviation(query, max(hit.number for hit in hits)) if trust else 0.0
        worth = trust / deviation if deviation else 0.0
        near = self._nearness(there, looks, query)
        read = [
            replace(hit, reread=float(score) + worth * float(cosine))
            for hit, score, cosine in zip(there, scores, near, strict=True)
        ]
        read.sort(key=lambda hit: -(hit.reread or 0.0))  # stable: the vectors decide ties
        return [*read, *(hit for hit in hits if hit.number not in seen)]

    def _nearness(
        self, hits: Sequence[Hit], seen: Sequence[Any], query: Vectors
    ) -> NDArray[np.floating]:
        """The cosine of each hit, or that of a closer look.

        A clip is looked at in its middle alone, so that its own cosine counts as much.
        """
        cosines = np.array([hit.score for hit in hits])
        if not isinstance(self._reranker, LooksCloser):
            return cosines
        closer = self._reranker.closer(query, seen, model=self._store.manifest.fingerprint)
        if closer is None:
            return cosines
        return np.where([hit.span is None for hit in hits], closer, (cosines + closer) / 2)

    def _look(self, hits: Sequence[Hit]) -> dict[int, Any]:
        """What the model sees in those hits that can be read."""
        with self._lock:
            seen = {hit.number: self._seen[hit.number] for hit in hits if hit.number in self._seen}
        unseen = [hit for hit in hits if hit.number not in seen]
        opened = list(self._pool.map(_picture, unseen))
        pairs = [(hit.number, one) for hit, one in zip(unseen, opened, strict=True) if one]
        if pairs:
            looks = self._reranker.look([picture for _, picture in pairs])
            seen |= zip((number for number, _ in pairs), looks, strict=True)
        with self._lock:
            for number, look in seen.items():
                self._seen[number] = look
                self._seen.move_to_end(number)
            while len(self._seen) > self._most:
                self._seen.popitem(last=False)
        return seen

    def _deviation(self, query: Vectors, number: int) -> float:
        """Of the query's cosines with the library, from a sample of it; 0 if that tells nothing.

        ``number`` is that of a vector which is there.
        """
        revision, kept = self._store.revision(), self._sample
        if kept is None or kept[0] != revision:
            kept = self._sample = (revision, self._drawn(number))
        cosines = kept[1] @ query
        deviation = float(np.std(cosines)) if len(cosines) >= _FEWEST else 0.0
        return deviation if deviation > 1e-6 else 0.0  # of copies all that differs is rounding

    def _drawn(self, number: int) -> Vectors:
        """Vectors by random numbers: there may be too many to list them all."""
        generator, last = np.random.default_rng(0), number
        while len(self._store.rows(generator.integers(last + 1, 2 * last + 1, _PROBES))):
            last *= 2
        numbers = generator.choice(2 * last, min(2 * last, SAMPLE), replace=False) + 1
        return self._store.rows(numbers).vectors


def _picture(piece: Piece) -> Image | None:
    """A picture, or the middle of a span; None for a file that is gone or broken."""
    try:
        picture = picture_of(str(piece.path), piece.kind, piece.span, at_least=DETAIL)
    except (DataError, MissingExtra):
        return None
    return shrunk(picture, DETAIL)

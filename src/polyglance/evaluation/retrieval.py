"""Retrieval metrics: how well images find their captions, and captions their image.

Image to text: an image is a hit at k if any of its captions is among the k best candidates.
Text to image: the same for every caption and its one image. Clips count as images.

Ties are broken against the model. A rank is 1 plus the number of wrong candidates that the
right one does not strictly outscore. A scorer that gives every pair the same score therefore
ranks last everywhere, and a NaN never wins, on either side. An image's other captions are not
wrong candidates for it, so the rank of an image is that of its best caption.

An image without captions in a language remains a candidate but is not a query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from polyglance.errors import PolyglanceError
from polyglance.utils.progress import progress

TIE_RULE = "1 + wrong candidates not strictly outscored; ties and NaN count against the model"
RECALL_AT = (1, 5, 10)

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_BLOCK = 2048
"""Images and captions scored at a time: a tile of 2048 x 2048 takes 32 MB in float64."""
_MIN_TILES_FOR_PROGRESS = 64
"""Fewer tiles are over too soon for a progress bar."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rank of each query's right answer; 1 is best."""

    image_to_text: Integers
    """One for each image that has captions, in order."""
    text_to_image: Integers
    """One for each caption."""
    num_images: int
    """Candidates of text to image, including those without captions."""
    image_ids: Integers | None = None
    """Row of each caption's image, where known."""


@dataclass(frozen=True, slots=True)
class Shortlists:
    """The candidates of each query, as for a re-ranker."""

    candidates: Integers
    """``(queries, k)``, with -1 where a list is shorter."""
    scores: Array | None = None
    """``(queries, k)``; None where each list is in order, best first."""


@dataclass(frozen=True, slots=True)
class DirectionResult:
    """Results of one direction; recalls are in percent."""

    queries: int
    candidates: int
    recalls: Mapping[int, float]
    median_rank: float


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Results of both directions, for one language of one split."""

    image_to_text: DirectionResult
    text_to_image: DirectionResult
    ranks: Ranks | None = field(default=None, init=False, compare=False, repr=False)
    """Of every query, for comparisons (`polyglance.evaluation.statistics`); not in files."""

    def with_ranks(self, ranks: Ranks | None) -> RetrievalResult:
        """Return the same result with the ranks that it summarises."""
        result = RetrievalResult(self.image_to_text, self.text_to_image)
        object.__setattr__(result, "ranks", ranks)
        return result

    @property
    def mean_recall(self) -> float:
        """Return mR (AR): the mean of the recalls of both directions, six with the usual ks."""
        both = [*self.image_to_text.recalls.values(), *self.text_to_image.recalls.values()]
        return sum(both) / len(both)


def evaluate_retrieval(
    images: Array,
    texts: Array,
    image_ids: npt.ArrayLike,
    *,
    ks: Sequence[int] = RECALL_AT,
    cosine: bool = True,
) -> RetrievalResult:
    """Evaluate retrieval between embeddings.

    Args:
        images: ``(images, width)``.
        texts: ``(captions, width)``.
        image_ids: Row of each caption's image.
        ks: Recalls to compute.
        cosine: Whether similarity is the cosine; otherwise the inner product.
    """
    return summarise(ranks_from_embeddings(images, texts, image_ids, cosine=cosine), ks)


def summarise(ranks: Ranks, ks: Sequence[int] = RECALL_AT) -> RetrievalResult:
    """Return recall at each k and the median rank, in both directions."""
    if not ks or min(ks) < 1 or len(set(ks)) != len(ks):
        raise PolyglanceError(f"recall needs different whole numbers from 1, not {list(ks)}")

    def direction(rank: Integers, candidates: int) -> DirectionResult:
        recalls = {k: 100.0 * np.count_nonzero(rank <= k) / len(rank) for k in ks}
        return DirectionResult(len(rank), candidates, recalls, float(np.median(rank)))

    return RetrievalResult(
        image_to_text=direction(ranks.image_to_text, candidates=len(ranks.text_to_image)),
        text_to_image=direction(ranks.text_to_image, candidates=ranks.num_images),
    ).with_ranks(ranks)


def mean_over_folds(folds: Sequence[RetrievalResult]) -> RetrievalResult:
    """Return the mean of recalls and median ranks over test sets of one language.

    The 1K figures of MSCOCO are means over five folds of 1,000 images.
    """
    if not folds:
        raise PolyglanceError("there are no folds to average over")

    def direction(parts: Sequence[DirectionResult]) -> DirectionResult:
        return DirectionResult(
            queries=sum(part.queries for part in parts),
            candidates=max(part.candidates for part in parts),
            recalls={
                k: sum(part.recalls[k] for part in parts) / len(parts) for k in parts[0].recalls
            },
            median_rank=sum(part.median_rank for part in parts) / len(parts),
        )

    return RetrievalResult(
        direction([fold.image_to_text for fold in folds]),
        direction([fold.text_to_image for fold in folds]),
    ).with_ranks(_concatenate_ranks([fold.ranks for fold in folds]))


def _concatenate_ranks(folds: Sequence[Ranks | None]) -> Ranks | None:
    """Return the ranks of all folds, whose images are numbered on; None where some are unknown."""
    known = [(fold, fold.image_ids) for fold in folds if fold and fold.image_ids is not None]
    if len(known) < len(folds):
        return None
    starts = np.cumsum([0, *(fold.num_images for fold, _ in known)])
    return Ranks(
        np.concatenate([fold.image_to_text for fold, _ in known]),
        np.concatenate([fold.text_to_image for fold, _ in known]),
        int(starts[-1]),
        np.concatenate([ids + start for (_, ids), start in zip(known, starts, strict=False)]),
    )


def ranks_from_embeddings(
    images: Array,
    texts: Array,
    image_ids: npt.ArrayLike,
    *,
    cosine: bool = True,
    block: int = _BLOCK,
) -> Ranks:
    """Rank by cosine or inner product, computing a tile of scores at a time.

    Scores are summed in float64 and compared in float32. Equal pairs then tie in whatever
    order the matrix product summed them, so that a collapsed model gains nothing by chance.

    Args:
        images: ``(images, width)``.
        texts: ``(captions, width)``.
        image_ids: Row of each caption's image.
        cosine: Whether similarity is the cosine; otherwise the inner product.
        block: Height and width of a tile.
    """
    if images.ndim != 2 or texts.ndim != 2 or images.shape[1] != texts.shape[1]:
        raise PolyglanceError(
            "embeddings of images and captions must be two tables of the same width, "
            f"not of shapes {images.shape} and {texts.shape}"
        )
    ids = _check_image_ids(image_ids, len(images), len(texts))

    def vectors(rows: Array) -> npt.NDArray[np.float64]:
        return _unit(rows) if cosine else np.asarray(rows, dtype=np.float64)

    def tile(rows: slice, columns: slice) -> Array:
        return (vectors(images[rows]) @ vectors(texts[columns]).T).astype(np.float32)

    def paired(columns: slice) -> Array:
        products = vectors(images[ids[columns]]) * vectors(texts[columns])
        return np.asarray(products.sum(axis=1), dtype=np.float32)

    with np.errstate(all="ignore"):
        target = np.concatenate([paired(columns) for columns in _blocks(len(texts), block)])
        return _rank(tile, target, ids, len(images), block)


def ranks_from_scores(scores: Array, image_ids: npt.ArrayLike, *, block: int = _BLOCK) -> Ranks:
    """Rank by scores ``(images, captions)``, such as those of a cross-encoder."""
    if scores.ndim != 2:
        raise PolyglanceError(f"scores must be images x captions, not of shape {scores.shape}")
    num_images, texts = scores.shape
    ids = _check_image_ids(image_ids, num_images, texts)
    target = scores[ids, np.arange(texts)]
    return _rank(lambda rows, columns: scores[rows, columns], target, ids, num_images, block)


def ranks_from_shortlists(texts: Shortlists, images: Shortlists, image_ids: npt.ArrayLike) -> Ranks:
    """Rank within short lists.

    A right answer that is not on its list, or has no score there, ranks last among all
    candidates.

    Args:
        texts: Captions for each image.
        images: Images for each caption.
        image_ids: Number of each caption's image.
    """
    ids = _check_image_ids(image_ids, len(texts.candidates), len(images.candidates))
    queries = np.arange(len(texts.candidates))
    captions_of = np.bincount(ids, minlength=len(queries))
    _check_lists(texts, len(ids))
    _check_lists(images, len(queries))
    image_to_text = _rank_lists(
        texts,
        right=ids[texts.candidates] == queries[:, None],
        last=len(ids) - captions_of + 1,
    )
    text_to_image = _rank_lists(
        images,
        right=images.candidates == ids[:, None],
        last=np.full(len(ids), len(queries)),
    )
    return Ranks(image_to_text[captions_of > 0], text_to_image, len(queries), ids)


def mean_over_languages(mean_recalls: Mapping[str, float]) -> float:
    """Return the plain mean of mR over languages ("A" in SMALR's tables)."""
    if not mean_recalls:
        raise PolyglanceError("there are no languages to average over")
    return sum(mean_recalls.values()) / len(mean_recalls)


def human_average(mean_recalls: Mapping[str, float], human: Collection[str]) -> float:
    """Return HA: the mean of mR over languages with human captions (SMALR, section 4)."""
    if missing := sorted(set(human) - set(mean_recalls)):
        raise PolyglanceError(
            f"the human average needs {', '.join(missing)}, which were not evaluated"
        )
    return mean_over_languages({language: mean_recalls[language] for language in human})


def meta_average(mean_recalls: Mapping[str, Mapping[str, float]]) -> float:
    """Return Meta-Ave: the mean of mR over all pairs of dataset and language (UC2)."""
    return mean_over_languages(
        {
            f"{dataset} {language}": value
            for dataset, languages in mean_recalls.items()
            for language, value in languages.items()
        }
    )


def _rank(
    tile: Callable[[slice, slice], Array],
    target: Array,
    image_ids: Integers,
    num_images: int,
    block: int,
) -> Ranks:
    """Count, tile by tile, the wrong candidates that each right one does not outscore.

    ``target[j]`` is caption j's score with its own image.
    """
    texts = len(image_ids)
    best = np.full(num_images, np.nan, dtype=np.promote_types(target.dtype, np.float32))
    np.fmax.at(best, image_ids, target)  # an image's best caption; any number beats NaN
    ahead_of_image = np.zeros(num_images, dtype=np.int64)
    ahead_of_text = np.zeros(texts, dtype=np.int64)
    tiles = -(-num_images // block) * -(-texts // block)
    with progress("Ranking", tiles, quiet=tiles < _MIN_TILES_FOR_PROGRESS) as advance:
        for rows in _blocks(num_images, block):
            for columns in _blocks(texts, block):
                scores = tile(rows, columns)
                own_row = image_ids[columns] - rows.start
                own = np.flatnonzero((own_row >= 0) & (own_row < len(scores)))
                # "Not below" rather than "at least", so that a NaN loses every comparison.
                not_below = ~(scores < target[columns])
                not_below[own_row[own], own] = False
                ahead_of_text[columns] += np.count_nonzero(not_below, axis=0)
                not_below = ~(scores < best[rows, None])
                not_below[own_row[own], own] = False
                ahead_of_image[rows] += np.count_nonzero(not_below, axis=1)
                advance(1)
    has_captions = np.bincount(image_ids, minlength=num_images) > 0
    return Ranks(ahead_of_image[has_captions] + 1, ahead_of_text + 1, num_images, image_ids)


def _rank_lists(lists: Shortlists, right: npt.NDArray[np.bool_], last: Integers) -> Integers:
    listed = lists.candidates >= 0
    right = right & listed
    scores = lists.scores
    if scores is None:
        scores = np.broadcast_to(-np.arange(listed.shape[1]), listed.shape)
    best = np.fmax.reduce(np.where(right, scores, np.nan), axis=1, initial=np.nan)
    ahead = np.count_nonzero(~(scores < best[:, None]) & listed & ~right, axis=1)
    return np.where(np.isnan(best), last, ahead + 1)


def _check_lists(lists: Shortlists, size: int) -> None:
    candidates = lists.candidates
    if candidates.ndim != 2 or candidates.dtype.kind not in "iu":
        raise PolyglanceError(
            "short lists must be a table of whole numbers with a row per query, "
            f"not {candidates.dtype} of shape {candidates.shape}"
        )
    if candidates.size and (candidates.max() >= size or candidates.min() < -1):
        raise PolyglanceError(f"a short list has a candidate beyond the {size} there are")
    ordered = np.sort(candidates, axis=1)
    if np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)):
        raise PolyglanceError("a short list has a candidate twice")
    if lists.scores is not None and lists.scores.shape != candidates.shape:
        raise PolyglanceError(
            f"short lists of shape {candidates.shape} need as many scores, not {lists.scores.shape}"
        )


def _unit(rows: Array) -> npt.NDArray[np.float64]:
    vectors = np.asarray(rows, dtype=np.float64)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1.0)


def _blocks(count: int, block: int) -> Iterator[slice]:
    return (slice(start, min(start + block, count)) for start in range(0, count, block))


def _check_image_ids(image_ids: npt.ArrayLike, images: int, texts: int) -> Integers:
    ids = np.asarray(image_ids)
    if ids.shape != (texts,) or (texts and ids.dtype.kind not in "iu"):
        raise PolyglanceError(
            f"each of the {texts} captions needs the number of its image, "
            f"not {ids.dtype} of shape {ids.shape}"
        )
    if not texts:
        raise PolyglanceError("there are no captions to evaluate")
    if ids.min() < 0 or ids.max() >= images:
        raise PolyglanceError(f"a caption belongs to an image beyond the {images} there are")
    return ids.astype(np.int64)

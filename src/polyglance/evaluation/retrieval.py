"""How well pictures find their captions and captions their picture.

Image to text: a picture hits at k if any of its captions is among the k best
candidates. Text to image: the same for every caption and its one picture. A
picture stands for a clip just as well.

The tie rule breaks ties against the model. A rank is 1 plus the number of wrong
candidates that the right one does not strictly outscore. A scorer that gives
every pair the same score therefore ranks last everywhere, and a NaN never wins,
whichever side it is on. A picture's other captions are not wrong candidates for
it, so the rank of a picture is that of its best caption.

A picture without captions in a language stays a candidate but is not a query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
"""Pictures and captions scored at a time: a tile of 2048 x 2048 takes 32 MB in float64."""
_QUIET_BELOW = 64
"""Tiles that are over too soon for a progress bar to be worth drawing."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rank of each query's right answer, 1 being the best."""

    image_to_text: Integers
    """One for each picture that has captions, in the order of the pictures."""
    text_to_image: Integers
    """One for each caption."""
    pictures: int
    """The candidates of text to image, those without captions included."""


@dataclass(frozen=True, slots=True)
class Shortlists:
    """The candidates that were kept for each query, as a re-ranker leaves them.

    ``candidates`` is queries x places, with -1 where a list is shorter. Without
    ``scores`` of the same shape, each list stands in order, best first.
    """

    candidates: Integers
    scores: Array | None = None


@dataclass(frozen=True, slots=True)
class DirectionResult:
    """One way of retrieval, measured; recalls are in per cent."""

    queries: int
    candidates: int
    recalls: Mapping[int, float]
    median_rank: float


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Both ways of retrieval, measured on one language of one split."""

    image_to_text: DirectionResult
    text_to_image: DirectionResult

    @property
    def mean_recall(self) -> float:
        """MR, or AR: the mean of the recalls of both ways; of six with the usual three ks."""
        both = [*self.image_to_text.recalls.values(), *self.text_to_image.recalls.values()]
        return sum(both) / len(both)


def evaluate_retrieval(
    images: Array,
    texts: Array,
    owner: npt.ArrayLike,
    *,
    ks: Sequence[int] = RECALL_AT,
    cosine: bool = True,
) -> RetrievalResult:
    """Measure retrieval between embeddings; ``owner[j]`` is the row of caption j's picture."""
    return summarise(ranks_from_embeddings(images, texts, owner, cosine=cosine), ks)


def summarise(ranks: Ranks, ks: Sequence[int] = RECALL_AT) -> RetrievalResult:
    """Recall at each k and the median rank, both ways."""
    if not ks or min(ks) < 1 or len(set(ks)) != len(ks):
        raise PolyglanceError(f"recall needs different whole numbers from 1, not {list(ks)}")

    def direction(found: Integers, candidates: int) -> DirectionResult:
        recalls = {k: 100.0 * np.count_nonzero(found <= k) / len(found) for k in ks}
        return DirectionResult(len(found), candidates, recalls, float(np.median(found)))

    return RetrievalResult(
        image_to_text=direction(ranks.image_to_text, candidates=len(ranks.text_to_image)),
        text_to_image=direction(ranks.text_to_image, candidates=ranks.pictures),
    )


def ranks_from_embeddings(
    images: Array, texts: Array, owner: npt.ArrayLike, *, cosine: bool = True, block: int = _BLOCK
) -> Ranks:
    """Rank by cosine (or, without ``cosine``, inner product), a tile of scores at a time.

    Scores are summed in float64 and compared in float32. Equal pairs then tie
    whatever order the matrix product summed them in, which a collapsed model
    would otherwise turn into luck.
    """
    if images.ndim != 2 or texts.ndim != 2 or images.shape[1] != texts.shape[1]:
        raise PolyglanceError(
            "embeddings of pictures and captions must be two tables of the same width, "
            f"not of shapes {images.shape} and {texts.shape}"
        )
    belongs = _check_owner(owner, len(images), len(texts))

    def vectors(rows: Array) -> npt.NDArray[np.float64]:
        return _unit(rows) if cosine else np.asarray(rows, dtype=np.float64)

    def tile(rows: slice, columns: slice) -> Array:
        return (vectors(images[rows]) @ vectors(texts[columns]).T).astype(np.float32)

    def paired(columns: slice) -> Array:
        products = vectors(images[belongs[columns]]) * vectors(texts[columns])
        return np.asarray(products.sum(axis=1), dtype=np.float32)

    with np.errstate(all="ignore"):
        target = np.concatenate([paired(columns) for columns in _blocks(len(texts), block)])
        return _rank(tile, target, belongs, len(images), block)


def ranks_from_scores(scores: Array, owner: npt.ArrayLike, *, block: int = _BLOCK) -> Ranks:
    """Rank by a table of scores, pictures x captions, such as a cross-encoder gives."""
    if scores.ndim != 2:
        raise PolyglanceError(f"scores must be pictures x captions, not of shape {scores.shape}")
    pictures, texts = scores.shape
    belongs = _check_owner(owner, pictures, texts)
    target = scores[belongs, np.arange(texts)]
    return _rank(lambda rows, columns: scores[rows, columns], target, belongs, pictures, block)


def ranks_from_shortlists(texts: Shortlists, pictures: Shortlists, owner: npt.ArrayLike) -> Ranks:
    """Rank within short lists: of captions for each picture, and of pictures for each caption.

    A right answer that did not make its list, or has no score there, ranks last
    among all candidates.
    """
    belongs = _check_owner(owner, len(texts.candidates), len(pictures.candidates))
    queries = np.arange(len(texts.candidates))
    captions_of = np.bincount(belongs, minlength=len(queries))
    _check_lists(texts, len(belongs))
    _check_lists(pictures, len(queries))
    image_to_text = _rank_lists(
        texts,
        right=belongs[texts.candidates] == queries[:, None],
        last=len(belongs) - captions_of + 1,
    )
    text_to_image = _rank_lists(
        pictures,
        right=pictures.candidates == belongs[:, None],
        last=np.full(len(belongs), len(queries)),
    )
    return Ranks(image_to_text[captions_of > 0], text_to_image, len(queries))


def mean_over_languages(mean_recalls: Mapping[str, float]) -> float:
    """The plain mean of mR over languages ("A" in SMALR's tables)."""
    if not mean_recalls:
        raise PolyglanceError("there is no language to take the mean over")
    return sum(mean_recalls.values()) / len(mean_recalls)


def human_average(mean_recalls: Mapping[str, float], human: Collection[str]) -> float:
    """HA: the mean of mR over the languages whose captions people wrote (SMALR, section 4)."""
    if missing := sorted(set(human) - set(mean_recalls)):
        raise PolyglanceError(f"the human average needs {', '.join(missing)}, not measured here")
    return mean_over_languages({language: mean_recalls[language] for language in human})


def meta_average(mean_recalls: Mapping[str, Mapping[str, float]]) -> float:
    """Meta-Ave: the mean of mR over all languages of all datasets, one vote each pair (UC2)."""
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
    owner: Integers,
    pictures: int,
    block: int,
) -> Ranks:
    """Count, tile by tile, the wrong candidates that each right one does not outscore.

    ``target[j]`` is caption j's score with its own picture.
    """
    texts = len(owner)
    best = np.full(pictures, np.nan, dtype=np.promote_types(target.dtype, np.float32))
    np.fmax.at(best, owner, target)  # a picture's best caption; NaN gives way to any number
    ahead_of_picture = np.zeros(pictures, dtype=np.int64)
    ahead_of_text = np.zeros(texts, dtype=np.int64)
    tiles = -(-pictures // block) * -(-texts // block)
    with progress("Ranking", tiles, quiet=tiles < _QUIET_BELOW) as advance:
        for rows in _blocks(pictures, block):
            for columns in _blocks(texts, block):
                scores = tile(rows, columns)
                mine = owner[columns] - rows.start
                own = np.flatnonzero((mine >= 0) & (mine < len(scores)))
                # "Not below" rather than "at least", so that a NaN loses every comparison.
                not_below = ~(scores < target[columns])
                not_below[mine[own], own] = False
                ahead_of_text[columns] += np.count_nonzero(not_below, axis=0)
                not_below = ~(scores < best[rows, None])
                not_below[mine[own], own] = False
                ahead_of_picture[rows] += np.count_nonzero(not_below, axis=1)
                advance(1)
    has_captions = np.bincount(owner, minlength=pictures) > 0
    return Ranks(ahead_of_picture[has_captions] + 1, ahead_of_text + 1, pictures)


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
            "short lists must be a table of whole numbers, one row a query, "
            f"not {candidates.dtype} of shape {candidates.shape}"
        )
    if candidates.size and (candidates.max() >= size or candidates.min() < -1):
        raise PolyglanceError(f"a short list names a candidate beyond the {size} there are")
    ordered = np.sort(candidates, axis=1)
    if np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)):
        raise PolyglanceError("a short list names a candidate twice")
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


def _check_owner(owner: npt.ArrayLike, pictures: int, texts: int) -> Integers:
    belongs = np.asarray(owner)
    if belongs.shape != (texts,) or (texts and belongs.dtype.kind not in "iu"):
        raise PolyglanceError(
            f"each of the {texts} captions needs the number of its picture, "
            f"not {belongs.dtype} of shape {belongs.shape}"
        )
    if not texts:
        raise PolyglanceError("there are no captions to measure")
    if belongs.min() < 0 or belongs.max() >= pictures:
        raise PolyglanceError(f"a caption belongs to a picture beyond the {pictures} there are")
    return belongs.astype(np.int64)

"""Queries with known answers, asked of sampled libraries: what a `Calibration` is fitted to.

A trial asks one query of a library of random pictures and keeps the first ten:

- ``match``: a caption's own picture is among others, and in half of the trials is the only one
  that shares anything with it. In a library of fewer than 100 pictures the picture counts if it
  is among the first tenth: anything is among the first ten of ten. Whether other hits match is
  unknown; they do not count.
- ``absent``: no picture of the library shares a label with the caption's picture, and none has
  captions alike (`CalibrationData.words`), as far as both are known.
- ``unseen``: the caption's own picture is not there, others like it may be: only reported.
- ``label``: the name of a class, where labels say which hits match; without any, ``label absent``.
- ``nonsense``: no hit matches. Random letters, random words, and sentences or subjects that no
  picture shows; `CalibrationQuery.source` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.calibration import NUM_TOP_HITS, Floats
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError

TrialKind = Literal["match", "absent", "unseen", "label", "label absent", "nonsense"]
SIZES = (10, 30, 100, 300, 1000, 3000)
"""Sizes of sampled libraries."""
_MAX_SHARED = 0.1
"""Cosine of words above which captions are alike."""
_MIN_LEFT = 5
"""Pictures that must be left in a library."""


@dataclass(frozen=True, slots=True)
class CalibrationQuery:
    """A query with a known answer."""

    text: str
    language: str | None
    kind: Literal["caption", "label", "nonsense"]
    picture: int = -1
    """The picture that a caption describes."""
    label: int = -1
    """The class that a label names."""
    source: str = ""
    """Of nonsense: how it was made."""


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationData:
    """Pictures and queries, encoded."""

    pictures: Vectors
    """``[n, width]``."""
    labels: NDArray[np.bool_]
    """``[n, classes]``; pictures without any are never part of a library without something."""
    names: tuple[str, ...]
    """Of the classes."""
    queries: Sequence[CalibrationQuery]
    texts: Vectors
    """Of the queries, ``[len(queries), width]``."""
    surprisals: Sequence[float | None]
    """Of the queries; see `OnnxEncoder.surprisal`."""
    words: NDArray[np.float32] | None = None
    """Unit vectors of the words of the pictures' captions, ``[n, words]``; zeros where unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The first hits of a query in one library."""

    query: int
    size: int
    kind: TrialKind
    cosines: Floats
    matches: Floats
    """1 for a match, 0 for none, NaN where unknown."""
    top: Floats
    """The best `NUM_TOP_HITS` cosines in the library; of a small one, fewer are judged."""
    best: int
    """The best picture."""


def make_trials(
    data: CalibrationData,
    pictures: NDArray[np.bool_],
    queries: Iterable[int],
    generator: np.random.Generator,
    sizes: Sequence[int] = SIZES,
) -> list[Trial]:
    """Ask queries of libraries.

    Args:
        data: Pictures and queries.
        pictures: The pictures of which libraries are made, ``[n]``.
        queries: Which queries to ask; a caption of another picture is skipped.
        generator: Draws the libraries.
        sizes: The sizes of libraries; one is drawn for each query.

    Returns:
        One trial for a query of nonsense, and up to three for others.
    """
    labelled = np.flatnonzero(data.labels.any(1))
    labelled_pictures = frozenset(labelled.tolist())
    pool = labelled[pictures[labelled]]
    if len(pool) < min(sizes):
        raise PolyglanceError(
            f"calibration needs at least {min(sizes)} pictures with labels, not {len(pool)}"
        )
    trials = list[Trial]()
    for number in queries:
        query = data.queries[number]
        size = min(int(generator.choice(sizes)), len(pool))
        library = generator.choice(pool, size, replace=False)
        if query.kind == "nonsense":
            trials.append(_ask(data, number, library, size, "nonsense"))
        elif query.kind == "label":
            having: NDArray[np.bool_] = data.labels[:, query.label][library]
            if having.any():
                trials.append(_ask(data, number, library, size, "label"))
            if (~having).sum() >= _MIN_LEFT:
                trials.append(_ask(data, number, library[~having], size, "label absent"))
        elif pictures[query.picture] and query.picture in labelled_pictures:
            shares: NDArray[np.bool_] = np.any(
                data.labels[library][:, data.labels[query.picture]], axis=1
            )
            others = library[~shares]
            rest = others if generator.random() < 0.5 else library[1:]
            own = np.union1d(rest, [query.picture])
            trials.append(_ask(data, number, own, size, "match"))
            if data.words is not None:
                alike = data.words[others] @ data.words[query.picture] > _MAX_SHARED
                others = others[~alike]
            if len(others) >= _MIN_LEFT:
                trials.append(_ask(data, number, others, size, "absent"))
            trials.append(_ask(data, number, library[library != query.picture], size, "unseen"))
    return trials


def _ask(
    data: CalibrationData, number: int, library: NDArray[np.intp], size: int, kind: TrialKind
) -> Trial:
    query = data.queries[number]
    cosines = data.pictures[library] @ data.texts[number]
    count = min(NUM_TOP_HITS, max(1, size // 10)) if kind == "match" else NUM_TOP_HITS
    order = np.argsort(-cosines, kind="stable")
    hits = library[order[:count]]
    if kind == "match":
        matches = np.where(hits == query.picture, 1.0, np.nan)
    elif kind == "label":
        matches = data.labels[hits, query.label].astype(np.float64)
    else:
        matches = np.zeros(len(hits))
    top = cosines[order[:NUM_TOP_HITS]].astype(np.float64)
    return Trial(number, size, kind, top[:count], matches, top, int(library[order[0]]))

"""Scores of pairs that a model reads together, as M3P does: all of them, or the likeliest.

Such a model has no vector of a picture to compare: every caption is read beside
every picture. Pictures are embedded once, captions of similar length go
together, and nothing is padded. Where that is still too much, `read_candidates` reads only
the candidates that a dual encoder found.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import Array, Integers, Shortlists
from polyglance.nn.joint import ReadsPairs, Regions, Rows
from polyglance.nn.packing import Packing
from polyglance.nn.sending import sent
from polyglance.progress import progress
from polyglance.text.flat import spread
from polyglance.training.caption_sources import read_captions
from polyglance.training.region_table import RegionTable

Precision = Literal["float32", "float16"]

_PICTURES_AT_ONCE = 256
_QUIET_BELOW = 64
"""Batches that are over too soon for a progress bar to be worth drawing."""


class Reader(ReadsPairs, Protocol):
    """A model that reads pairs, of which torch can make a smaller copy."""

    def half(self) -> Self:
        """The same in half precision, as modules of torch have it."""
        ...


class PairScores:
    """A model before a gallery of pictures and a table of captions."""

    def __init__(
        self,
        model: Reader,
        pictures: RegionTable,
        captions: CaptionTable,
        *,
        languages: Integers | None = None,
        rows_at_once: int = 65_536,
        precision: Precision = "float32",
        views: int = 1,
    ) -> None:
        """``languages`` says how the model counts those of the table, if it does.

        The first ``views`` of each picture are read, and scores are the means of theirs.
        A batch has about ``rows_at_once`` sub-words and regions. ``float16`` reads with a
        copy of the model in that precision.
        """
        half = precision == "float16"
        self.model = copy.deepcopy(model).half() if half else model
        self.captions, self.languages = captions, languages
        self.rows_at_once = rows_at_once
        self.device = pictures.features.device
        with torch.no_grad():
            blocks = np.array_split(
                np.arange(len(pictures)), -(-len(pictures) // _PICTURES_AT_ONCE)
            )
            seen = []
            for view in range(views):
                taken = (pictures.take(block, view=view)[0] for block in blocks)
                seen.append(
                    [self.model.embed_regions(_halved(some) if half else some) for some in taken]
                )
        self._views = [torch.cat([block.rows for block in look]) for look in seen]
        lengths = torch.cat([block.packing.lengths for block in seen[0]])
        self._lengths = lengths.cpu().numpy().astype(np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths

    @property
    def pictures(self) -> int:
        """How many there are."""
        return len(self._lengths)

    def score(self, captions: Integers, pictures: Integers) -> NDArray[np.float32]:
        """The scores of pairs: rows of the table of captions, and numbers of pictures."""
        lengths = np.diff(self.captions.offsets)[captions]
        order = np.argsort(lengths, kind="stable")
        ends = np.cumsum((lengths + self._lengths[pictures])[order])
        batch = (ends - 1) // self.rows_at_once
        cuts = np.flatnonzero(np.diff(batch)) + 1
        scores = np.empty(len(captions), np.float32)
        batches = np.split(order, cuts) if len(order) else []
        quiet = len(batches) < _QUIET_BELOW
        found = []
        with torch.no_grad(), progress("Reading pairs", len(batches), quiet=quiet) as advance:
            for pairs in batches:
                found.append(self._read(captions[pairs], pictures[pairs]))
                advance(1)
        if found:
            scores[order] = torch.cat(found).cpu().numpy()
        return scores

    def table(self, captions: Integers) -> NDArray[np.float32]:
        """The scores of all pairs, pictures x captions, for `ranks_from_scores`."""
        every_picture = np.tile(np.arange(self.pictures), len(captions))
        scores = self.score(np.repeat(captions, self.pictures), every_picture)
        return scores.reshape(len(captions), self.pictures).T

    def _read(self, captions: Integers, pictures: Integers) -> Tensor:
        text = read_captions(self.captions, captions, self.languages).to(self.device)
        lengths = self._lengths[pictures]
        index = torch.from_numpy(spread(self._starts[pictures], lengths))
        places, packing = sent(index, self.device), Packing.of(lengths, self.device)
        scores = [self.model.score(text, Rows(rows[places], packing)) for rows in self._views]
        return torch.stack(scores).float().mean(0)


def _halved(regions: Regions) -> Regions:
    return Regions(regions.features.half(), regions.boxes.half(), regions.packing)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a dual encoder found likeliest, both ways, and what was read of it."""

    texts: Integers
    """For each picture numbers of captions."""
    pictures: Integers
    """For each caption numbers of pictures."""
    read: NDArray[np.float64]
    """The score of each such pair, those of ``texts`` first."""
    dual: NDArray[np.float64]
    """The dual encoder's own, or that of a closer look, in units of the standard deviation of
    all its own scores."""

    def trusting(self, trust: float) -> tuple[Shortlists, Shortlists]:
        """Short lists by the score of the pair plus so much of the dual encoder's.

        They are for `ranks_from_shortlists`, of captions for each picture and of pictures for
        each caption.
        """
        return self._lists(self.read + trust * self.dual)

    def by_dual(self) -> tuple[Shortlists, Shortlists]:
        """Short lists by the dual encoder's score alone."""
        return self._lists(self.dual)

    def _lists(self, found: NDArray[np.float64]) -> tuple[Shortlists, Shortlists]:
        split = self.texts.size
        return (
            Shortlists(self.texts, found[:split].reshape(self.texts.shape)),
            Shortlists(self.pictures, found[split:].reshape(self.pictures.shape)),
        )


def read_candidates(
    scores: Array,
    model: PairScores,
    captions: Integers,
    k: int = 50,
    *,
    closer: Array | None = None,
) -> Candidates:
    """Read the ``k`` best candidates of a dual encoder again, both ways.

    ``scores`` are its own, pictures x ``captions``. Where it has looked at the candidates
    more closely, those ``closer`` scores count beside what is read in place of its own.
    """
    if scores.shape != (model.pictures, len(captions)):
        raise PolyglanceError(
            f"scores of {model.pictures} pictures and {len(captions)} captions are needed,"
            f" not of shape {scores.shape}"
        )
    texts, pictures = _best(scores, k), _best(scores.T, k)
    columns = np.arange(len(captions))
    # A pair may be on both lists: it is read once.
    pairs = np.concatenate(
        [
            (np.arange(len(scores))[:, None] * len(captions) + texts).ravel(),
            (pictures * len(captions) + columns[:, None]).ravel(),
        ]
    )
    unique, places = np.unique(pairs, return_inverse=True)
    picture, caption = np.divmod(unique, len(captions))
    read = model.score(captions[caption], picture).astype(np.float64)
    beside = scores if closer is None else closer
    # In units that also those know who have looked at some candidates alone.
    dual = beside[picture, caption] / max(float(np.std(scores)), 1e-12)
    places = places.ravel()
    return Candidates(texts, pictures, read[places], dual.astype(np.float64)[places])


def _best(scores: Array, k: int) -> Integers:
    """The columns with the ``k`` highest scores of each row, in no order."""
    if k < 1:
        raise PolyglanceError(f"re-ranking needs one candidate at least, not {k}")
    k = min(k, scores.shape[1])
    best: Integers = np.argpartition(-scores, k - 1, axis=1)[:, :k].astype(np.int64)
    return best

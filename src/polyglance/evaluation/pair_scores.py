"""Scores of image-caption pairs by a cross-encoder: of all pairs, or of likely candidates.

A cross-encoder has no vector of an image to compare: every caption is encoded together with
every image. Images are embedded once, captions of similar length share a batch, and nothing
is padded. Where that is still too much, `read_candidates` scores only the candidates of a
dual encoder.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionSource
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import Array, Integers, Shortlists
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.nn.packed_pairs import PackedRows, Regions
from polyglance.nn.packing import Packing, to_device
from polyglance.nn.transformer import compile_layers
from polyglance.utils.progress import progress
from polyglance.utils.ragged import ragged_arange

Precision = Literal["float32", "float16"]

_IMAGE_BATCH = 256
_MIN_BATCHES_FOR_PROGRESS = 64
"""Fewer batches are over too soon for a progress bar."""
_MIN_PAIRS_TO_COMPILE = 200_000
"""Fewer pairs are scored sooner than layers are compiled, which takes half a minute."""


class PairScores:
    """A cross-encoder's scores of pairs from a gallery of images and a table of captions."""

    def __init__(
        self,
        model: CrossEncoderModel,
        images: RegionSource,
        captions: CaptionTable,
        *,
        language_ids: Integers | None = None,
        tokens_per_batch: int = 65_536,
        precision: Precision = "float32",
        views: int = 1,
    ) -> None:
        """Embed the images.

        Args:
            model: scores pairs.
            images: the gallery.
            captions: the table.
            language_ids: the model's row of each of the table's languages, if it has
                embeddings.
            tokens_per_batch: about how many sub-words and regions are encoded together.
            precision: ``float16`` scores with a copy of the model in half precision.
            views: scores are averaged over the first so many views of each image.
        """
        half = precision == "float16"
        self.model = copy.deepcopy(model).half() if half else model
        self.captions, self.language_ids = captions, language_ids
        self.tokens_per_batch = tokens_per_batch
        self.device = images.device
        with torch.no_grad():
            blocks = np.array_split(np.arange(len(images)), -(-len(images) // _IMAGE_BATCH))
            embedded = []
            for view in range(views):
                batches = (images.take(block, view=view)[0] for block in blocks)
                embedded.append(
                    [self.model.embed_regions(_half(some) if half else some) for some in batches]
                )
        self._views = [torch.cat([block.rows for block in view]) for view in embedded]
        lengths = torch.cat([block.packing.lengths for block in embedded[0]])
        self._lengths = lengths.cpu().numpy().astype(np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths

    @property
    def num_images(self) -> int:
        """The size of the gallery."""
        return len(self._lengths)

    def score(self, captions: Integers, images: Integers) -> NDArray[np.float32]:
        """Return the scores of pairs, given rows of the caption table and numbers of images."""
        if self.device.type == "cuda" and len(captions) >= _MIN_PAIRS_TO_COMPILE:
            compile_layers(self.model)
        lengths = np.diff(self.captions.offsets)[captions]
        order = np.argsort(lengths, kind="stable")
        ends = np.cumsum((lengths + self._lengths[images])[order])
        batch = (ends - 1) // self.tokens_per_batch
        cuts = np.flatnonzero(np.diff(batch)) + 1
        scores = np.empty(len(captions), np.float32)
        batches = np.split(order, cuts) if len(order) else []
        quiet = len(batches) < _MIN_BATCHES_FOR_PROGRESS
        results = []
        with torch.no_grad(), progress("Scoring pairs", len(batches), quiet=quiet) as advance:
            for pairs in batches:
                results.append(self._score_batch(captions[pairs], images[pairs]))
                advance(1)
        if results:
            scores[order] = torch.cat(results).cpu().numpy()
        return scores

    def table(self, captions: Integers) -> NDArray[np.float32]:
        """Return the scores of all images, ``(images, captions)``, for `ranks_from_scores`."""
        all_images = np.tile(np.arange(self.num_images), len(captions))
        scores = self.score(np.repeat(captions, self.num_images), all_images)
        return scores.reshape(len(captions), self.num_images).T

    def _score_batch(self, captions: Integers, images: Integers) -> Tensor:
        text = pack_captions(self.captions, captions, self.device, language_ids=self.language_ids)
        lengths = self._lengths[images]
        rows = torch.from_numpy(ragged_arange(self._starts[images], lengths))
        index, packing = to_device(rows, self.device), Packing.of(lengths, self.device)
        scores = [self.model.score(text, PackedRows(view[index], packing)) for view in self._views]
        return torch.stack(scores).float().mean(0)


def pair_scores(
    model: CrossEncoderModel,
    images: RegionSource,
    captions: CaptionTable,
    *,
    language_ids: Integers | None,
    views: int = 1,
) -> PairScores:
    """Prepare to score pairs in the precision that is fastest on the model's device.

    Args:
        model: scores pairs.
        images: the gallery.
        captions: the table.
        language_ids: the model's row of each of the table's languages, if it has embeddings.
        views: scores are averaged over the first so many views of each image.

    Returns:
        The scores, computed on demand.
    """
    cuda = next(model.parameters()).is_cuda  # flash attention takes half precision alone
    precision: Precision = "float16" if cuda else "float32"
    return PairScores(
        model, images, captions, language_ids=language_ids, precision=precision, views=views
    )


def _half(regions: Regions) -> Regions:
    return Regions(regions.features.half(), regions.boxes.half(), regions.packing)


@dataclass(frozen=True, eq=False)
class Candidates:
    """A dual encoder's best candidates in both directions, and the cross-encoder's scores."""

    texts: Integers
    """``(images, k)``: numbers of captions."""
    images: Integers
    """``(captions, k)``: numbers of images."""
    scores: NDArray[np.float64]
    """The cross-encoder's score of each such pair, those of ``texts`` first."""
    dual: NDArray[np.float64]
    """The dual encoder's own score, with test-time augmentation if there is any, in standard
    deviations of all its scores."""

    def reranked(self, dual_weight: float) -> tuple[Shortlists, Shortlists]:
        """Return short lists by the cross-encoder's score plus the weighted dual one.

        They are for `ranks_from_shortlists`: captions for each image, images for each caption.
        """
        return self._lists(self.scores + dual_weight * self.dual)

    def by_dual(self) -> tuple[Shortlists, Shortlists]:
        """Return short lists by the dual encoder's score alone."""
        return self._lists(self.dual)

    def _lists(self, scores: NDArray[np.float64]) -> tuple[Shortlists, Shortlists]:
        split = self.texts.size
        return (
            Shortlists(self.texts, scores[:split].reshape(self.texts.shape)),
            Shortlists(self.images, scores[split:].reshape(self.images.shape)),
        )


def read_candidates(
    cosines: Array,
    model: PairScores,
    captions: Integers,
    k: int = 50,
    *,
    tta: Array | None = None,
) -> Candidates:
    """Score the ``k`` best candidates of a dual encoder, in both directions.

    Args:
        cosines: the dual encoder's, ``(images, captions)``.
        model: the cross-encoder's scores.
        captions: rows of its caption table.
        k: candidates for each image and each caption.
        tta: the dual encoder's cosines with test-time augmentation, which then count in place
            of its own.

    Returns:
        The candidates with both scores.
    """
    if cosines.shape != (model.num_images, len(captions)):
        raise PolyglanceError(
            f"expected scores of {model.num_images} images and {len(captions)} captions, not shape"
            f" {cosines.shape}"
        )
    texts, images = _top_k(cosines, k), _top_k(cosines.T, k)
    columns = np.arange(len(captions))
    # A pair may be on both lists: it is scored once.
    pairs = np.concatenate(
        [
            (np.arange(len(cosines))[:, None] * len(captions) + texts).ravel(),
            (images * len(captions) + columns[:, None]).ravel(),
        ]
    )
    unique, places = np.unique(pairs, return_inverse=True)
    image, caption = np.divmod(unique, len(captions))
    scores = model.score(captions[caption], image).astype(np.float64)
    own = cosines if tta is None else tta
    # Normalise by the global standard deviation, which is known even when only candidates were
    # encoded with test-time augmentation.
    dual = own[image, caption] / max(float(np.std(cosines)), 1e-12)
    places = places.ravel()
    return Candidates(texts, images, scores[places], dual.astype(np.float64)[places])


def _top_k(scores: Array, k: int) -> Integers:
    """Return the columns with the ``k`` highest scores of each row, in no order."""
    if k < 1:
        raise PolyglanceError(f"re-ranking needs at least one candidate, not {k}")
    k = min(k, scores.shape[1])
    best: Integers = np.argpartition(-scores, k - 1, axis=1)[:, :k].astype(np.int64)
    return best

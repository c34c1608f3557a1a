"""A stage before fine-tuning that learns a dual encoder's scores (distillation).

A corpus says which caption fits an image, but not how far off any other sentence is. A dual
encoder says that of any sentence and any image, described or not, and has often been trained
on more of both. Fine-tuning that starts from its scores does not start from chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import ImagePixels, pack_captions
from polyglance.batches.regions import RegionBatch, RegionSource
from polyglance.batches.streamed_pixels import StreamedPixels
from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all_records
from polyglance.encoders.model_folder import ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.export.to_torch import load_torch
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.mmp import MMP
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import to_device
from polyglance.recipes.cross_encoder.config import DistillationStage
from polyglance.recipes.cross_encoder.data import Split, SplitReader
from polyglance.text import Tokenizer
from polyglance.training.mixture import item_draws, rank_share
from polyglance.vision.decoding import Source

Indices = NDArray[np.int64]

_NEAREST_BATCH = 512
"""Images compared with all sentences at a time."""
_CALIBRATION_PAIRS = 100_000
"""Pairs that the scale of the scores is estimated from."""
_TEXT_BATCH, _IMAGE_BATCH = 2048, 256
"""What the teacher encodes at a time."""


@dataclass(frozen=True, eq=False)
class TeacherVectors:
    """A dual encoder's unit vectors, ``(images, width)`` and ``(texts, width)``."""

    images: Tensor
    texts: Tensor

    @torch.no_grad()
    def nearest(self, count: int) -> NDArray[np.int32]:
        """Return the most similar sentences of each image, ``(images, count)``, best first."""
        count = min(count, len(self.texts))
        nearest = [
            (block @ self.texts.T).topk(count, dim=1).indices.int().cpu()
            for block in torch.split(self.images, _NEAREST_BATCH)
        ]
        return torch.cat(nearest).numpy()

    def cosines(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return the cosine of each pair, by the numbers of images and texts."""
        device = self.images.device
        left, right = self.images[to_device(images, device)], self.texts[to_device(texts, device)]
        return (left.float() * right.float()).sum(1)


@dataclass(frozen=True, eq=False)
class ScoredPairBatch(Batch):
    """Images and sentences, and their numbers among the teacher's vectors."""

    text: Text
    regions: RegionBatch
    images: Tensor
    texts: Tensor

    def counts(self) -> dict[str, int]:
        """Return the number of pairs."""
        return {"distillation": len(self.images)}


class DistillationTask:
    """Score any sentence with any image as the dual encoder does.

    Targets are its cosines minus the mean over similar pairs, in standard deviations of all
    pairs. Zero is then hard to decide, matching pairs are a few units above and random ones as
    many below, which suits losses that end in a sigmoid.
    """

    def __init__(
        self,
        model: CrossEncoderModel,
        regions: RegionSource,
        texts: CaptionTable,
        teacher: TeacherVectors,
        *,
        batch: int,
        near_share: float = 0.5,
        nearest: int = 100,
    ) -> None:
        """Find similar sentences of each image and calibrate the targets.

        Sentences at ranks 1 to 10 are sampled as often as those at ranks 11 to 100, and so on:
        the nearest are distinguished best, and none is left out.

        Args:
            model: the student.
            regions: of the images.
            texts: sentences, captions among them.
            teacher: the dual encoder's vectors of both.
            batch: pairs a step.
            near_share: the share of pairs with one of the image's ``nearest`` sentences.
            nearest: how many sentences count as similar.
        """
        if (len(regions), len(texts)) != (len(teacher.images), len(teacher.texts)):
            raise PolyglanceError(
                f"the dual encoder has vectors of {len(teacher.images)} images and"
                f" {len(teacher.texts)} sentences, and there are {len(regions)} and {len(texts)}"
            )
        self.model, self.regions, self.texts, self.teacher = model, regions, texts, teacher
        self.language_ids = model.language_ids(texts.language_codes)
        self.batch, self.near_share = batch, near_share
        self._nearest = teacher.nearest(nearest)
        generator = np.random.default_rng(0)
        images = generator.integers(len(regions), size=_CALIBRATION_PAIRS)
        random = generator.integers(len(texts), size=_CALIBRATION_PAIRS)
        near = self._sample_near(images, generator)
        numbers, random_texts, near_texts = map(torch.from_numpy, (images, random, near))
        random_cosines = teacher.cosines(numbers, random_texts)
        near_cosines = teacher.cosines(numbers, near_texts)
        self.mean = float(near_cosines.mean())
        self.std = max(float(random_cosines.std()), 1e-6)

    def sample(self, generator: np.random.Generator) -> ScoredPairBatch:
        """Sample pairs."""
        share = rank_share(self.batch)
        images, texts = (part[share] for part in self.sample_pairs(generator))
        return ScoredPairBatch(
            pack_captions(self.texts, texts, language_ids=self.language_ids),
            self.regions.select(images, item_draws(generator, self.batch, share)),
            torch.from_numpy(images),
            torch.from_numpy(texts),
        )

    def losses(self, batch: ScoredPairBatch) -> dict[str, Tensor]:
        """Compare scores."""
        batch = batch.to(next(self.model.parameters()).device)
        scores = self.model.score(batch.text, self.model.embed_regions(batch.regions.load()))
        targets = self.targets(batch.images, batch.texts)
        return {"distillation": F.smooth_l1_loss(scores.float(), targets)}

    def sample_pairs(self, generator: np.random.Generator) -> tuple[Indices, Indices]:
        """Sample images and sentences; the n-th of each make a pair."""
        images = generator.integers(len(self.regions), size=self.batch)
        texts = generator.integers(len(self.texts), size=self.batch)
        near = generator.random(self.batch) < self.near_share
        return images, np.where(near, self._sample_near(images, generator), texts)

    def targets(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return the dual encoder's calibrated scores."""
        return (self.teacher.cosines(images, texts) - self.mean) / self.std

    def _sample_near(self, images: Indices, generator: np.random.Generator) -> Indices:
        ranks = (self._nearest.shape[1] + 1) ** generator.random(len(images)) - 1
        return np.asarray(self._nearest[images, ranks.astype(np.int64)], np.int64)


def distillation_task(
    stage: DistillationStage, model: CrossEncoderModel, train: Split, reader: SplitReader
) -> DistillationTask:
    """Build the task from the training split and the stage's further sentences.

    The teacher encodes images in the size of the student's own backbone, if it has one.
    """
    extra = [
        record
        for text in stage.texts
        for record in read_all_records(text.format, reader.data / text.manifest)
    ]
    table = CaptionTable.build(
        [*train.records, *extra], reader.tokenizer, max_tokens=reader.max_text_tokens
    )
    teacher = teacher_vectors(
        stage.model,
        train.files,
        table,
        reader.tokenizer,
        size=None if reader.image_backbone is None else reader.image_backbone.size,
        device=train.regions.device,
    )
    return DistillationTask(
        model,
        train.regions,
        table,
        teacher,
        batch=stage.batch,
        near_share=stage.near_share,
        nearest=stage.nearest,
    )


def teacher_vectors(
    name: str | None,
    files: Sequence[Source],
    texts: CaptionTable,
    tokenizer: Tokenizer,
    *,
    size: int | None = None,
    device: torch.device | str = "cpu",
) -> TeacherVectors:
    """Encode images and sentences with a dual encoder.

    Args:
        name: a model folder of MMP, or a name; None for the default model.
        files: the images.
        texts: the sentences, in the student's sub-words.
        tokenizer: the student's, which must have the teacher's vocabulary.
        size: pixels per side; None for the teacher's own.
        device: a device of torch.

    Returns:
        The vectors of both, in half precision.
    """
    folder = ModelFolder.open(name)
    dual = load_torch(folder.path).to(device).eval()
    if dual.config.encoder.vocab_size != tokenizer.vocab_size:
        raise PolyglanceError(
            f"{folder.path.name} has another vocabulary than the encoder: begin with the encoder"
            " of 'polyglance weights split', or set distillation to null"
        )
    settings = folder.description.pictures
    if settings is None:
        raise PolyglanceError(
            f"{folder.path.name} takes features and no pictures: distil from a model of pictures"
        )
    pixels = StreamedPixels(
        files,
        settings.size if size is None else size,
        dual.image_backbone,  # type: ignore[arg-type]
        torch.tensor(settings.mean),
        torch.tensor(settings.std),
        device=device,
    )
    return TeacherVectors(_encode_images(dual, pixels), _encode_texts(dual, texts, device))


@torch.no_grad()
def _encode_images(dual: MMP, pixels: ImagePixels) -> Tensor:
    blocks = np.array_split(np.arange(len(pixels)), -(-len(pixels) // _IMAGE_BATCH))
    return torch.cat([dual.encode_visual(*pixels.rows(block, None)).half() for block in blocks])


@torch.no_grad()
def _encode_texts(dual: MMP, texts: CaptionTable, device: torch.device | str) -> Tensor:
    """Encode in blocks of similar length, in bfloat16 where flash attention needs it."""
    cuda = torch.device(device).type == "cuda"
    order = np.argsort(np.diff(texts.offsets), kind="stable")
    blocks = []
    with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda):
        for rows in np.array_split(order, -(-len(order) // _TEXT_BATCH)):
            text = pack_captions(texts, rows, device)
            blocks.append(dual.encode_text(text.ids, text.packing).half())
    vectors = torch.cat(blocks)
    vectors[torch.from_numpy(order).to(device)] = vectors.clone()
    return vectors

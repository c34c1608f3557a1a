"""What MMP learns in one step.

- `MMPTask`: images or clips with captions (equations 1 to 6).
- `SubtitleTask`: pre-training on subtitled video (section 5.3).
- `ParallelTextTask`: sentences with translations.
- `EmbeddingDistillationTask`: a compressed model learns the vectors of the whole one.
- `polyglance.recipes.mmp.class_names.ClassNameTask`: names of the image backbone's classes.
- `polyglance.recipes.mmp.label_names.LabelNameTask`: names of labels that people gave pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import VisualBatch, VisualTable, pack_captions
from polyglance.batches.order import GroupedOrder, Streaming
from polyglance.data.captions import CaptionTable
from polyglance.data.cues import nearest_cues
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPObjective, mmp_losses
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.nce import nce
from polyglance.recipes.mmp.config import ClipSampling
from polyglance.records import Record
from polyglance.text import Tokenizer
from polyglance.training.distributed import gather_rows
from polyglance.training.mixture import item_draws, rank_share, take_in_order

Indices = NDArray[np.int64]
ReadFeatures = Callable[[Record], NDArray[np.floating[Any]]]
"""Returns the features of a whole video, in order of time."""


@dataclass(frozen=True, eq=False)
class CaptionedBatch(Batch):
    """Images or clips with one or more captions each."""

    visuals: VisualBatch
    captions: list[Text]
    """The first caption of each, then the second."""
    draws: ItemDraws
    """For noise."""


class MMPTask:
    """MMP's losses on images or clips with captions (equations 1 to 6)."""

    def __init__(
        self,
        model: MMP,
        visuals: VisualTable,
        captions: CaptionTable,
        objective: MMPObjective,
        *,
        batch: int,
        captions_per_image: int = 1,
        weights: Mapping[str, float] | None = None,
        image_weights: NDArray[np.float64] | None = None,
        streaming: Streaming | None = None,
    ) -> None:
        """Prepare to draw from images that have captions.

        Args:
            model: The model.
            visuals: Images or clips, one for each record of ``captions``.
            captions: Their captions.
            objective: Which losses, and how.
            batch: Images a step.
            captions_per_image: Captions drawn for each image; consecutive ones are in
                different languages wherever the image has more than one.
            weights: How often each language is drawn; None for all equally.
            image_weights: How often each image is drawn, ``(images,)``; None for all equally. Not
                with ``streaming``.
            streaming: Go through the images in shuffled order instead of drawing them, for a
                corpus on disk; every image then comes once an epoch.
        """
        if objective.cross and captions_per_image != 2:
            raise PolyglanceError(
                f"equation 6 (cross) compares two captions an image, not {captions_per_image}:"
                " set captions_per_image to 2 or cross to false"
            )
        self.model, self.visuals, self.captions = model, visuals, captions
        self.objective, self.weights = objective, weights
        self.captions_per_image = captions_per_image
        used = np.array(
            [weights is None or weights.get(n, 0) > 0 for n in captions.language_codes], bool
        )
        self.items = np.unique(captions.record_ids[used[captions.language_ids]])
        if not len(self.items):
            raise PolyglanceError(
                "no image has a caption to train on: choose languages that the corpus has"
            )
        self.batch = min(batch, len(self.items))
        self._shares: NDArray[np.float64] | None = None
        if image_weights is not None and len(set(image_weights[self.items].tolist())) > 1:
            self._shares = image_weights[self.items] / image_weights[self.items].sum()
        self._order: GroupedOrder | None = None
        if streaming is not None:
            whole = replace(streaming, per_batch=self.batch)
            self._order = whole.order(np.array([len(self.items)]), np.ones(1))

    def sample(self, generator: np.random.Generator) -> CaptionedBatch:
        """Draw images and captions."""
        share = rank_share(self.batch, equal=True)
        if self._order is None:
            items = generator.choice(self.items, self.batch, replace=False, p=self._shares)
        else:
            items = self.items[take_in_order(self._order, self.batch, generator)[1]]
        sentences, rows = [], None
        for _ in range(self.captions_per_image):
            rows = self.captions.sample(
                items, generator, weights=self.weights, avoid_language_of=rows
            )
            sentences.append(pack_captions(self.captions, rows[share]))
        draws = item_draws(generator, self.batch, share)
        return CaptionedBatch(self.visuals.select(items[share], draws), sentences, draws)

    def losses(self, batch: CaptionedBatch) -> dict[str, Tensor]:
        """Contrast all images with all captions."""
        return _contrast(self.model, batch, self.objective)


@dataclass(frozen=True, eq=False)
class TextBatch(Batch):
    """Sentences."""

    text: Text


class ParallelTextTask:
    """Contrastive loss between sentences and their translations; needs no images."""

    def __init__(
        self, model: MMP, captions: CaptionTable, *, batch: int, temperature: float = 0.1
    ) -> None:
        """``captions`` has a record for each sentence, with translations in several languages."""
        self.model, self.captions, self.temperature = model, captions, temperature
        self.items = np.flatnonzero(captions.languages_per_record > 1)
        if not len(self.items):
            raise PolyglanceError(
                "no sentence has a translation to train on: a text corpus needs records with"
                " captions in two languages or more"
            )
        self.batch = min(batch, len(self.items))

    def sample(self, generator: np.random.Generator) -> TextBatch:
        """Draw sentences in two languages each: first all in one, then in the other."""
        share = rank_share(self.batch, equal=True)
        items = generator.choice(self.items, self.batch, replace=False)
        first = self.captions.sample(items, generator)
        second = self.captions.sample(items, generator, avoid_language_of=first)
        rows = np.concatenate([first[share], second[share]])
        return TextBatch(pack_captions(self.captions, rows))

    def losses(self, batch: TextBatch) -> dict[str, Tensor]:
        """Contrast sentences with their translations."""
        text = batch.to(next(self.model.parameters()).device).text
        vectors = self.model.encode_text(text.ids, text.packing)
        left, right = (gather_rows(part) for part in vectors.chunk(2))
        return {"parallel": nce(left, right, temperature=self.temperature, negatives="symmetric")}


@dataclass(frozen=True, eq=False)
class ClipFeatures(Batch):
    """The features of clips, read from files."""

    features: Tensor
    """``(seconds, width)``."""
    packing: Packing

    def load(self) -> tuple[Tensor, Packing]:
        """Return the features in float32, where they were copied to."""
        return self.features.float(), self.packing


@dataclass(frozen=True, eq=False)
class Clip:
    """A part of a video, ``(seconds, width)``, and the subtitles nearest to it in one language."""

    features: NDArray[np.floating[Any]]
    language: str
    text: str


class SubtitleTask:
    """MMP's pre-training: a random clip of a video with the subtitles nearest to it in time.

    Videos are read when they are drawn, so that a corpus may be larger than memory.
    """

    def __init__(
        self,
        model: MMP,
        videos: Sequence[Record],
        read_features: ReadFeatures,
        tokenizer: Tokenizer,
        objective: MMPObjective,
        *,
        batch: int,
        sampling: ClipSampling | None = None,
        languages: Collection[str] | None = None,
        max_text_tokens: int = 192,
    ) -> None:
        """Prepare to draw from videos.

        Args:
            model: The model.
            videos: Records with features and with subtitles in one of ``languages``.
            read_features: Reads a video's features.
            tokenizer: The text encoder's.
            objective: Which losses; equation 6 does not apply.
            batch: Clips a step, each of another video.
            sampling: Lengths of clips.
            languages: Subtitle languages to draw from; None for all.
            max_text_tokens: Maximum number of sub-words of a clip's subtitles.
        """
        if objective.cross:
            raise PolyglanceError(
                "pre-training on subtitles takes one language a clip (section 5.3), and equation 6"
                " compares two: set objective.cross to false"
            )
        self.model, self.videos, self.read_features = model, videos, read_features
        self.tokenizer, self.objective, self.languages = tokenizer, objective, languages
        self.sampling = ClipSampling() if sampling is None else sampling
        self.max_text_tokens = max_text_tokens
        if not len(videos):
            raise PolyglanceError(
                "no video has features and subtitles to train on: choose languages that it has"
            )
        self.batch = min(batch, len(videos))

    def sample(self, generator: np.random.Generator) -> CaptionedBatch:
        """Draw a clip of each of some videos, with its subtitles."""
        share = rank_share(self.batch, equal=True)
        items = generator.choice(len(self.videos), self.batch, replace=False)
        # Each clip has its own generator, so that a process reads its own videos alone.
        seeds = generator.integers(2**63, size=self.batch)
        clips = [
            self.sample_clip(self.videos[item], np.random.default_rng(seed))
            for item, seed in zip(items[share], seeds[share], strict=True)
        ]
        features = torch.from_numpy(np.concatenate([clip.features for clip in clips]))
        ids = self.tokenizer.encode_batch(
            [clip.text for clip in clips], max_length=self.max_text_tokens
        )
        # A tokenizer that drops unknown words may return nothing; pooling needs one token.
        ids = [sentence or [self.tokenizer.unk_id or 0] for sentence in ids]
        text = Text(
            torch.tensor([i for sentence in ids for i in sentence]),
            Packing.of([len(sentence) for sentence in ids]),
        )
        visuals = ClipFeatures(features, Packing.of([len(clip.features) for clip in clips]))
        return CaptionedBatch(visuals, [text], item_draws(generator, self.batch, share))

    def losses(self, batch: CaptionedBatch) -> dict[str, Tensor]:
        """Contrast all clips with all subtitles (equations 1 and 3)."""
        return _contrast(self.model, batch, self.objective)

    def sample_clip(self, video: Record, generator: np.random.Generator) -> Clip:
        """Draw a part of a video and a language, and find the subtitles nearest in time."""
        features, rate = self.read_features(video), self.sampling.features_per_second
        if not len(features):
            raise PolyglanceError(
                f"{video.key} has no features: extract them, or leave it out of the manifest"
            )
        length = generator.uniform(self.sampling.min_seconds, self.sampling.max_seconds)
        count = min(max(1, round(length * rate)), len(features))
        # Clips begin and end with a feature, so that video and subtitles cover the same seconds.
        first = int(generator.integers(len(features) - count + 1))
        start, end = first / rate, (first + count) / rate
        languages = [
            language
            for language, cues in video.subtitles.items()
            if cues and (self.languages is None or language in self.languages)
        ]
        language = languages[int(generator.integers(len(languages)))]
        cues = nearest_cues(video.subtitles[language], start, end)
        text = " ".join(cue.text for cue in cues)
        return Clip(features[first : first + count], language, text)


@dataclass(frozen=True, eq=False)
class DistillationBatch(Batch):
    """Sentences of each text corpus; images of each image corpus, for student and teacher."""

    sentences: list[Text]
    images: list[tuple[VisualBatch, VisualBatch | Tensor]]


class EmbeddingDistillationTask:
    """Cosine distance between a student's and a teacher's vectors of sentences and images.

    Sentences alone suffice to keep a language: those never paired with an image stay where
    the teacher has them.
    """

    def __init__(
        self,
        student: MMP,
        teacher: MMP,
        sentences: Sequence[CaptionTable],
        images: Sequence[tuple[VisualTable, VisualTable | Tensor]],
        *,
        batch: int,
    ) -> None:
        """Freeze the teacher and prepare to draw.

        Args:
            student: The model to train.
            teacher: The model to distil.
            sentences: Text corpora.
            images: Image corpora through the student's backbone, each with the same images
                through the teacher's or with the teacher's vectors of them, on the CPU.
            batch: Sentences and images drawn from each corpus in a step.
        """
        self.student, self.teacher = student, teacher.eval().requires_grad_(False)
        self.sentences, self.images, self.batch = sentences, images, batch

    def sample(self, generator: np.random.Generator) -> DistillationBatch:
        """Draw sentences and images of each corpus."""
        sentences = []
        for table in self.sentences:
            rows, _ = self._draw(len(table), generator)
            sentences.append(pack_captions(table, rows))
        images: list[tuple[VisualBatch, VisualBatch | Tensor]] = []
        for student_table, teacher_table in self.images:
            items, draws = self._draw(len(student_table), generator)
            target = (
                teacher_table[torch.from_numpy(items)]
                if isinstance(teacher_table, Tensor)
                # The same draws give both the same crops and mirroring.
                else teacher_table.select(items, draws)
            )
            images.append((student_table.select(items, draws), target))
        return DistillationBatch(sentences, images)

    def losses(self, batch: DistillationBatch) -> dict[str, Tensor]:
        """Return one minus the mean cosine, over sentences and over images."""
        batch = batch.to(next(self.student.parameters()).device)
        sentences = []
        for text in batch.sentences:
            with torch.no_grad():
                target = self.teacher.encode_text(text.ids, text.packing)
            sentences.append(_distance(self.student.encode_text(text.ids, text.packing), target))
        images = []
        for of_student, of_teacher in batch.images:
            if isinstance(of_teacher, Tensor):
                target = of_teacher
            else:
                with torch.no_grad():
                    target = self.teacher.encode_visual(*of_teacher.load())
            images.append(_distance(self.student.encode_visual(*of_student.load()), target))
        return {
            "sentences": torch.stack(sentences).mean(),
            "images": torch.stack(images).mean(),
        }

    def _draw(self, total: int, generator: np.random.Generator) -> tuple[Indices, ItemDraws]:
        count = min(self.batch, total)
        share = rank_share(count)
        items = generator.choice(total, count, replace=False)
        return items[share], item_draws(generator, count, share)


def _contrast(model: MMP, batch: CaptionedBatch, objective: MMPObjective) -> dict[str, Tensor]:
    batch = batch.to(next(model.parameters()).device)
    features, visuals = batch.visuals.load()
    return mmp_losses(model, features, visuals, batch.captions, objective, batch.draws, gather_rows)


def _distance(vectors: Tensor, target: Tensor) -> Tensor:
    return 1 - F.cosine_similarity(vectors.float(), target.float()).mean()

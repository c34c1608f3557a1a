"""Pre-training on subtitled video (MMP, section 5.3): clips, and what is said during them.

Videos are read when they are drawn, so that a corpus may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.cues import nearest_cues
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPObjective, Sentences, mmp_losses
from polyglance.nn.packing import Packing
from polyglance.records import Record
from polyglance.text import Tokenizer
from polyglance.training.distribution import gather_rows, own_share

ReadFeatures = Callable[[Record], NDArray[np.floating[Any]]]
"""The features of a whole video, in order of time."""


@dataclass(frozen=True)
class ClipSampling:
    """How clips are cut out of videos: of ``shortest`` to ``longest`` seconds, evenly.

    The same length twice gives clips of that length.
    """

    shortest: float = 1.0
    longest: float = 128.0
    """Features a clip has at most, at one a second (appendix C)."""
    per_second: float = 1.0
    """Features a second of video."""

    def __post_init__(self) -> None:
        if not 0 < self.shortest <= self.longest or self.per_second <= 0:
            raise PolyglanceError(
                "a clip is cut between shortest and longest seconds, both above 0, of a video"
                " with a number of features per_second above 0"
            )


@dataclass(frozen=True, eq=False)
class Clip:
    """A part of a video and what is said nearest to it in time, in one language."""

    features: NDArray[np.floating[Any]]
    language: str
    text: str


class SubtitledVideos:
    """MMP's pre-training task: a random clip of a video, the subtitles nearest to it in time."""

    def __init__(
        self,
        model: MMP,
        videos: Sequence[Record],
        read_features: ReadFeatures,
        tokenizer: Tokenizer,
        objective: MMPObjective,
        *,
        batch: int,
        clips: ClipSampling | None = None,
        languages: Collection[str] | None = None,
        longest_text: int = 192,
    ) -> None:
        """``videos`` all have features, and subtitles in one of ``languages`` (None for any)."""
        if objective.cross:
            raise PolyglanceError(
                "pre-training on subtitles takes one language a clip (section 5.3), and equation 6"
                " compares two: set objective.cross to false"
            )
        self.model, self.videos, self.read_features = model, videos, read_features
        self.tokenizer, self.objective, self.languages = tokenizer, objective, languages
        self.clips = ClipSampling() if clips is None else clips
        self.longest_text = longest_text
        self.items = own_share(np.arange(len(videos)))
        if not len(self.items):
            raise PolyglanceError(
                "no video has features and subtitles to train on: choose languages that it has"
            )
        self.batch = min(batch, len(self.items))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw videos and a clip of each, and compare all with all (equations 1 and 3)."""
        items = generator.choice(self.items, self.batch, replace=False)
        clips = [self.draw(self.videos[item], generator) for item in items]
        device = next(self.model.parameters()).device
        features = torch.from_numpy(np.concatenate([clip.features for clip in clips]))
        ids = self.tokenizer.encode_batch(
            [clip.text for clip in clips], max_length=self.longest_text
        )
        # A tokenizer that drops unknown words may leave nothing, and nothing has no first word.
        ids = [sentence or [self.tokenizer.unk_id or 0] for sentence in ids]
        text = Sentences(
            torch.tensor([i for sentence in ids for i in sentence]).to(device),
            Packing.of([len(sentence) for sentence in ids], device),
        )
        visuals = Packing.of([len(clip.features) for clip in clips], device)
        return mmp_losses(
            self.model, features.to(device).float(), visuals, [text], self.objective, gather_rows
        )

    def draw(self, video: Record, generator: np.random.Generator) -> Clip:
        """A random part of a video with the subtitles nearest in time, in one random language."""
        features, rate = self.read_features(video), self.clips.per_second
        if not len(features):
            raise PolyglanceError(
                f"{video.key} has no features, not even one: take it out of the manifest"
            )
        length = generator.uniform(self.clips.shortest, self.clips.longest)
        count = min(max(1, round(length * rate)), len(features))
        # From feature to feature, so that what is seen and what is heard are the same seconds.
        first = int(generator.integers(len(features) - count + 1))
        start, end = first / rate, (first + count) / rate
        spoken = [
            language
            for language, cues in video.subtitles.items()
            if cues and (self.languages is None or language in self.languages)
        ]
        language = spoken[int(generator.integers(len(spoken)))]
        cues = nearest_cues(video.subtitles[language], start, end)
        text = " ".join(cue.text for cue in cues)
        return Clip(features[first : first + count], language, text)

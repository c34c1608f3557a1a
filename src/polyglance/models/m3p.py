"""M3P: one transformer that reads a sentence in any language beside a picture's regions.

Ni et al. 2021, "M3P: Learning Universal Representations via Multitask
Multilingual Multimodal Pre-training". Words and regions enter as one sequence

    <s> a dog runs </s> [IMG] region region region

and all attend to all (section 3.1). Heads tell masked words, masked regions and
whether the two belong together (section 3.2). `M3PConfig.layout` chooses between
what the paper writes and what its published code does:

| | ``paper`` | ``reference`` |
|---|---|---|
| order | text, [IMG], regions | regions, text |
| positions | of words, in their sentence | of all, in the joint sequence |
| language embedding | on all text | on text without a picture |
| features and boxes | as they are | of unit length |
| matching | a layer on <s> | tanh and a layer on the first region |
| labels of regions | a layer | a layer, GELU, norm and a layer |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.config import check
from polyglance.errors import PolyglanceError
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.joint import Joined, Regions, Rows, Text, box_geometry, first_of_each, joined
from polyglance.nn.packing import Packing

Layout = Literal["paper", "reference"]


@dataclass(frozen=True)
class M3PConfig:
    """The shape of an M3P model. The defaults are the paper's (section 4.2)."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    languages: tuple[str, ...] = ("en",)
    """Those that have an embedding, in the order of its rows."""
    visual_width: int = 2048
    labels: int = 1600
    """The classes that the detector, or the network behind a grid, tells apart."""
    layout: Layout = "paper"

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "visual_width", "labels")
        if not self.languages or len(set(self.languages)) != len(self.languages):
            raise PolyglanceError(
                f"languages are one or more, each named once, not {list(self.languages)}"
            )

    def language_numbers(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The rows of these languages in the table of embeddings."""
        unknown = sorted(set(names) - set(self.languages))
        if unknown:
            raise PolyglanceError(
                f"the model has no embedding of {', '.join(unknown)}, only of"
                f" {', '.join(self.languages)}: name all languages when the model is made"
            )
        return np.array([self.languages.index(name) for name in names], np.int64)


@dataclass(frozen=True, eq=False)
class Contextual:
    """What the transformer made of a batch."""

    text: Tensor | None
    """One vector a sub-word, in the order of the batch; None where there was no text."""
    regions: Tensor | None
    """One vector a region, likewise."""
    first: Tensor
    """The vector that stands for each pair: of <s>, or of the first region."""


class M3P(nn.Module):
    """The cross-modal encoder with the heads of its four tasks."""

    def __init__(self, config: M3PConfig, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        width, eps = config.encoder.width, config.encoder.norm_eps
        self.reference = config.layout == "reference"

        # Zero to begin with, so that sentences start out as the encoder was pre-trained.
        self.languages = nn.Embedding(len(config.languages), width)
        nn.init.zeros_(self.languages.weight)
        self.region_feature = _linear(config.visual_width, width)
        self.region_box = _linear(5, width)
        self.region_norm = nn.LayerNorm(width, eps)
        self.image_tag = None if self.reference else nn.Parameter(0.02 * torch.randn(width))

        self.word_bias = nn.Parameter(torch.zeros(config.encoder.vocabulary))
        self.regression = _linear(width, config.visual_width)
        self.label_transform = (
            nn.Sequential(_linear(width, width), nn.GELU(), nn.LayerNorm(width, eps))
            if self.reference
            else nn.Identity()
        )
        self.label = _linear(width, config.labels)
        self.pooler = (
            nn.Sequential(_linear(width, width), nn.Tanh()) if self.reference else nn.Identity()
        )
        self.match = _linear(width, 1)

    def forward(self, text: Text | None, regions: Regions | None) -> Contextual:
        """Read sentences and pictures together, or either alone."""
        return self.read(text, None if regions is None else self.embed_regions(regions))

    def embed_regions(self, regions: Regions) -> Rows:
        """What regions enter the first layer as, [IMG] before each picture's; no text needed.

        The published code adds positions, which begin with the regions, and a second norm.
        """
        features, geometry = map(self.as_seen, (regions.features, box_geometry(regions.boxes)))
        packing = regions.packing
        rows = self.region_norm(self.region_feature(features) + self.region_box(geometry))
        if self.image_tag is None:
            self._check_length(packing.max_seqlen)
            first = self.encoder.config.first_position
            rows = self.encoder.dropout(rows) + self.encoder.positions(packing.positions + first)
            return Rows(self.encoder.dropout(self.encoder.norm(rows)), packing)
        tags = self.image_tag.to(rows.dtype).expand(len(packing), -1)
        tagged = joined(
            Rows(tags, Packing.of([1] * len(packing), rows.device)), Rows(rows, packing)
        )
        return Rows(self.encoder.dropout(tagged.rows), tagged.packing)

    def embed_text(self, text: Text, seen: Rows | None) -> Rows:
        """What sub-words enter the first layer as; ``seen`` is the picture beside them, if any."""
        encoder, packing = self.encoder, text.packing
        positions, longest = packing.positions, packing.max_seqlen
        told = text.languages
        if self.reference and seen is not None:
            told = None
            positions = positions + seen.packing.lengths[packing.sequence_ids]
            longest += seen.packing.max_seqlen
        self._check_length(longest)
        rows = encoder.words(text.ids) + encoder.segments.weight[0]
        rows = rows + encoder.positions(positions + encoder.config.first_position)
        if told is not None:
            rows = rows + self.languages(told)[packing.sequence_ids]
        return Rows(encoder.dropout(encoder.norm(rows)), packing)

    def read(self, text: Text | None, seen: Rows | None) -> Contextual:
        """The same with regions already embedded, which may serve many sentences."""
        if text is None:
            if seen is None:
                raise ValueError("there is neither text nor picture to read")
            out = self.encoder.contextualise(seen.rows, seen.packing)
            return Contextual(None, self._untagged(out, seen.packing), seen.packing.first(out))
        words = self.embed_text(text, seen)
        if seen is None:
            out = self.encoder.contextualise(words.rows, words.packing)
            return Contextual(out, None, words.packing.first(out))
        pairs = self._pairs(words, seen)
        out = self.encoder.contextualise(pairs.rows, pairs.packing)
        sides = pairs.apart(out)
        of_text, of_regions = sides[::-1] if self.reference else sides
        return Contextual(
            of_text, self._untagged(of_regions, seen.packing), pairs.packing.first(out)
        )

    def score(self, text: Text, seen: Rows) -> Tensor:
        """How well each sentence fits its picture, as the logit of the probability.

        The last layer is computed for the one vector that the score is read from.
        """
        pairs = self._pairs(self.embed_text(text, seen), seen)
        return self.matching(first_of_each(self.encoder, pairs))

    def matching(self, first: Tensor) -> Tensor:
        """Logits of whether pairs belong together (MC-VLM), from `Contextual.first`."""
        scores: Tensor = self.match(self.pooler(first))
        return scores[:, 0]

    def word_logits(self, rows: Tensor) -> Tensor:
        """Logits of words from their vectors (xMLM, MC-MLM); the table of words reads as well."""
        table = self.encoder.words.weight
        assert isinstance(table, Tensor)
        return F.linear(rows, table, self.word_bias)

    def as_seen(self, features: Tensor) -> Tensor:
        """Features of regions as they are taken and told: of unit length in the published code."""
        return F.normalize(features, dim=1) if self.reference else features

    def region_features(self, rows: Tensor) -> Tensor:
        """``h(v)``: the features of masked regions (MC-MRM)."""
        features: Tensor = self.regression(rows)
        return features

    def region_logits(self, rows: Tensor) -> Tensor:
        """``g(v)``: logits of the labels of masked regions (MC-MRM)."""
        logits: Tensor = self.label(self.label_transform(rows))
        return logits

    def _pairs(self, words: Rows, seen: Rows) -> Joined:
        return joined(seen, words) if self.reference else joined(words, seen)

    def _untagged(self, rows: Tensor, packing: Packing) -> Tensor:
        """The rows of regions without those of [IMG]."""
        if self.image_tag is None:
            return rows
        count = packing.num_tokens - len(packing)
        pictures = torch.arange(len(packing), device=rows.device)
        owners = torch.repeat_interleave(pictures, packing.lengths - 1, output_size=count)
        return rows[torch.arange(1, count + 1, device=rows.device) + owners]

    def _check_length(self, longest: int) -> None:
        if longest > self.encoder.config.longest:
            raise ValueError(
                f"a sequence has {longest} places and the encoder takes"
                f" {self.encoder.config.longest}: truncate when tokenising"
            )


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer

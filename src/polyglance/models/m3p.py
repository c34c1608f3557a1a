"""M3P: one transformer over a sentence in any language and an image's regions.

Ni et al. 2021, "M3P: Learning Universal Representations via Multitask
Multilingual Multimodal Pre-training". Sub-words and regions form one sequence

    <s> a dog runs </s> [IMG] region region region

with full self-attention (section 3.1). Heads predict masked words, masked regions and
whether sentence and image match (section 3.2). `M3PConfig.variant` chooses between the paper
and its published code:

| | ``paper`` | ``reference`` |
|---|---|---|
| order | text, [IMG], regions | regions, text |
| position embeddings | of sub-words, within the sentence | of all, within the joint sequence |
| language embedding | on all text | on text without an image |
| features and boxes, as inputs | as they are | scaled to unit length |
| word head | tied to the word embeddings; with ``word_transform`` XLM-R's own | tied alone |
| matching head | linear on <s> | linear, tanh and linear on the first region |
| region label head | linear | linear, GELU, layer norm and linear |

Both regress the features of masked regions as they are, not scaled. The published code adds
1e-12 to the variance in every norm (`reference_encoder`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import (
    CrossEncoderModel,
    CrossEncoderOutput,
    Variant,
    bert_linear,
    word_transform,
)
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.layer_norm import LayerNorm
from polyglance.nn.packed_pairs import (
    PackedPairs,
    PackedRows,
    Regions,
    Text,
    box_geometry,
    concat_packed,
)
from polyglance.nn.packing import Packing


@dataclass(frozen=True)
class M3PConfig:
    """The shape of an M3P model. The defaults are the paper's (section 4.2)."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    languages: tuple[str, ...] = ("en",)
    """Languages with an embedding, in the order of its rows."""
    visual_width: int = 2048
    num_labels: int = 1600
    """Classes of the detector, or of the network behind a grid."""
    variant: Variant = "paper"
    word_transform: bool = False
    """Whether words are predicted with the head of XLM-R, which has a linear layer, GELU and a
    layer norm before the word embeddings; the reference variant never does."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "visual_width", "num_labels")
        if not self.languages or len(set(self.languages)) != len(self.languages):
            raise PolyglanceError(
                f"languages must be one or more, without repeats, not {list(self.languages)}"
            )

    def language_ids(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return each language's row of the language embeddings."""
        unknown = sorted(set(names) - set(self.languages))
        if unknown:
            raise PolyglanceError(
                f"the model has no embedding of {', '.join(unknown)}, only of"
                f" {', '.join(self.languages)}: name all languages when building the model"
            )
        return np.array([self.languages.index(name) for name in names], np.int64)


def reference_encoder(config: EncoderConfig) -> EncoderConfig:
    """Return an encoder's configuration with the epsilon of the published code's norms."""
    return replace(config, norm_eps=1e-12, embedding_norm_eps=None)


class M3P(CrossEncoderModel):
    """The cross-modal encoder with the heads of its four tasks."""

    config_class = M3PConfig
    config: M3PConfig

    def __init__(self, config: M3PConfig, encoder: Encoder | None = None) -> None:
        """Build the model around ``encoder``, or around a new one of the configured shape."""
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        width, eps = config.encoder.hidden_size, config.encoder.norm_eps
        self.reference = config.variant == "reference"

        # Zero at first, so that sentences start out as the encoder was pre-trained.
        self.languages = nn.Embedding(len(config.languages), width)
        nn.init.zeros_(self.languages.weight)
        self.region_feature = bert_linear(config.visual_width, width)
        self.region_box = bert_linear(5, width)
        self.region_norm = LayerNorm(width, eps)
        self.image_tag = (
            None if self.reference else nn.Parameter(nn.init.normal_(torch.empty(width), std=0.02))
        )

        # Heads
        transforms = config.word_transform and not self.reference
        self.word_transform = word_transform(width, eps) if transforms else nn.Identity()
        self.word_bias = nn.Parameter(torch.zeros(config.encoder.vocab_size))
        self.regression = bert_linear(width, config.visual_width)
        self.label_transform = (
            nn.Sequential(bert_linear(width, width), nn.GELU(), LayerNorm(width, eps))
            if self.reference
            else nn.Identity()
        )
        self.label = bert_linear(width, config.num_labels)
        self.pooler = (
            nn.Sequential(bert_linear(width, width), nn.Tanh()) if self.reference else nn.Identity()
        )
        self.match = bert_linear(width, 1)

    # Input embeddings

    def embed_regions(self, regions: Regions) -> PackedRows:
        """Return the first layer's input for regions, each image's preceded by [IMG].

        The published code has no [IMG]; it adds positions and applies the text's layer norm.
        """
        geometry = self.scale_features(box_geometry(regions.boxes))
        features, packing = self.scale_features(regions.features), regions.packing
        rows = self.region_norm(self.region_feature(features) + self.region_box(geometry))
        if self.image_tag is None:
            self._check_length(packing.max_seqlen)
            first = self.encoder.config.first_position
            rows = self.encoder.dropout(rows) + self.encoder.positions(packing.positions + first)
            return PackedRows(self.encoder.dropout(self.encoder.norm(rows)), packing)
        tags = self.image_tag.to(rows.dtype).expand(len(packing), -1)
        tagged = concat_packed(
            PackedRows(tags, Packing.of([1] * len(packing), rows.device)), PackedRows(rows, packing)
        )
        return PackedRows(self.encoder.dropout(tagged.rows), tagged.packing)

    def embed_text(self, text: Text, images: PackedRows | None = None) -> PackedRows:
        """Return the first layer's input for sub-words next to ``images``, if there are any."""
        encoder, packing, languages = self.encoder, text.packing, text.languages
        positions, length = packing.positions, packing.max_seqlen
        if self.reference and images is not None:
            languages = None
            positions = positions + images.packing.lengths[packing.sequence_ids]
            length += images.packing.max_seqlen
        self._check_length(length)
        rows = encoder.words(text.ids) + encoder.segments.weight[0]
        rows = rows + encoder.positions(positions + encoder.config.first_position)
        if languages is not None:
            rows = rows + self.languages(languages)[packing.sequence_ids]
        return PackedRows(encoder.dropout(encoder.norm(rows)), packing)

    def scale_features(self, features: Tensor) -> Tensor:
        """Scale inputs to unit length in the reference variant.

        Features that masked regions are compared with stay as they are, as in the published code.
        """
        return F.normalize(features, dim=1) if self.reference else features

    # Transformer

    def encode(self, text: Text | None, images: PackedRows | None) -> CrossEncoderOutput:
        """Encode like `forward`, with regions already embedded, to reuse for many sentences."""
        if text is None:
            if images is None:
                raise ValueError("there is neither text nor image to encode")
            out = self.encoder.contextualise(images.rows, images.packing)
            of_regions = out if self.reference else out[_untagged(images.packing)]
            return CrossEncoderOutput(None, of_regions, images.packing.first(out))
        words = self.embed_text(text, images)
        if images is None:
            out = self.encoder.contextualise(words.rows, words.packing)
            return CrossEncoderOutput(out, None, words.packing.first(out))
        pairs = self.join(words, images)
        out = self.encoder.contextualise(pairs.rows, pairs.packing)
        of_text, of_regions = (out[where] for where in self.split(pairs, images.packing))
        return CrossEncoderOutput(of_text, of_regions, pairs.packing.first(out))

    def encode_selected(
        self, text: Text, images: PackedRows, *, words: Tensor, regions: Tensor, pairs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Encode pairs and return the vectors of some words, regions and pairs only.

        After attention, the last layer is computed for these alone.

        Args:
            text: sentences.
            images: embedded regions.
            words: numbers of sub-words in ``text``.
            regions: numbers of regions, [IMG] not counted.
            pairs: numbers of pairs, whose first vector represents them.

        Returns:
            Three matrices of ``(n, hidden_size)``.
        """
        packed = self.join(self.embed_text(text, images), images)
        text_rows, region_rows = self.split(packed, images.packing)
        first_rows = packed.packing.cu_seqlens[:-1].long()
        wanted = torch.cat([text_rows[words], region_rows[regions], first_rows[pairs]])
        out = self.encoder.contextualise(packed.rows, packed.packing, output_rows=wanted)
        before_pairs = len(words) + len(regions)
        return out[: len(words)], out[len(words) : before_pairs], out[before_pairs:]

    def join(self, text: PackedRows, images: PackedRows) -> PackedPairs:
        """Concatenate each sentence with its image; the published code puts images first."""
        return concat_packed(images, text) if self.reference else concat_packed(text, images)

    def split(self, pairs: PackedPairs, images: Packing) -> tuple[Tensor, Tensor]:
        """Return the positions of sub-words and of regions, without [IMG], in packed pairs."""
        first, second = pairs.positions
        return (second, first) if self.reference else (first, second[_untagged(images)])

    # Heads

    def match_logits(self, pooled: Tensor) -> Tensor:
        """Return the logit of MC-VLM for each pair, ``(pairs,)``."""
        scores: Tensor = self.match(self.pooler(pooled))
        return scores[:, 0]

    def predict_features(self, rows: Tensor) -> Tensor:
        """Return ``h(v)``, the features of masked regions (MC-MRM): ``(n, visual_width)``."""
        features: Tensor = self.regression(rows)
        return features

    def label_logits(self, rows: Tensor) -> Tensor:
        """Return ``g(v)``, label logits of masked regions (MC-MRM): ``(n, num_labels)``."""
        logits: Tensor = self.label(self.label_transform(rows))
        return logits

    def masked_region(self) -> Tensor:
        """Return the feature of a masked region: zeros, ``(visual_width,)``."""
        return torch.zeros(self.config.visual_width, device=self.word_bias.device)

    # Languages

    @property
    def embedded_languages(self) -> tuple[str, ...]:
        """Languages with an embedding, in the order of its rows."""
        return self.config.languages

    def language_ids(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return each language's row of the language embeddings."""
        return self.config.language_ids(names)

    def _check_length(self, length: int) -> None:
        if length > self.encoder.config.max_tokens:
            raise ValueError(
                f"a sequence has {length} positions and the encoder takes"
                f" {self.encoder.config.max_tokens}: truncate when tokenising"
            )


def _untagged(images: Packing) -> Tensor:
    """Return the rows of regions among those of regions and [IMG]."""
    count = images.num_tokens - len(images)
    numbers = torch.arange(len(images), device=images.cu_seqlens.device)
    owners = torch.repeat_interleave(numbers, images.lengths - 1, output_size=count)
    return torch.arange(1, count + 1, device=numbers.device) + owners

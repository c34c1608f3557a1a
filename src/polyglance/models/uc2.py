"""UC2: one transformer over an image's regions and its caption, in one language or two.

Zhou et al. 2021, "UC2: Universal Cross-lingual Cross-modal Vision-and-Language
Pre-training". UNITER with the encoder of XLM-R (section 3.2): sub-words and regions form one
sequence with full self-attention,

    <s> a dog runs </s> region region region
    <s> a dog runs </s> <s> ein Hund läuft </s> region region region

the second for VTLM, where the positions of the translation start again from 0. Without an image
(TLM, Table 4) they do as well, or run on (`UC2Config.tlm_positions`). There are no language
embeddings. `UC2Config.variant` chooses between the paper and its published code:

| | ``paper`` | ``reference`` |
|---|---|---|
| region embedding | feature + location + segment | the same, then a layer norm |
| word head | tied word embeddings, or as on the right | linear, GELU, layer norm, then these |
| matching head | linear on <s>, one logit | linear, tanh and linear, two classes |
| translation's positions without image | start again, as XLM's | run on |

In both, a region's feature and location each have a projection and a layer norm. The published
code adds 1e-12 to the variance in the transformer's norms, and 1e-5 in all others
(`reference_encoder`). mUNITER and xUNITER, which VOLTA trained, are this model with two poolers
(`UC2Config.image_pooler`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
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
from polyglance.nn.packed_pairs import PackedRows, Regions, Text, box_location, concat_packed
from polyglance.nn.packing import to_device
from polyglance.nn.pooling import PoolingHead

Pooling = Literal["tanh", "relu"]
TLMPositions = Literal["restart", "continue"]


@dataclass(frozen=True)
class UC2Config:
    """The shape of a UC2 model. The defaults are the paper's (section 4)."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    visual_width: int = 2048
    variant: Variant = "paper"
    pooling: Pooling = "tanh"
    """Activation of the reference variant's pooler; VOLTA fine-tunes with ``relu``."""
    image_pooler: bool = False
    """Whether the reference variant pools <s> and the first region, and multiplies the two, as
    VOLTA's own UNITERs (mUNITER, xUNITER), whose first region is the whole image."""
    pooler_size: int | None = None
    """Outputs of the reference variant's pooler, 1024 in VOLTA's own UNITERs; None for the hidden
    size."""
    word_transform: bool = False
    """Whether the paper's variant predicts words with the head of XLM-R, which has a linear layer,
    GELU and a layer norm before the word embeddings; the reference variant always does."""
    image_layers: int = 0
    """Layers that read an image's regions before these join the text, those of a dual encoder's
    visual pooling; 0 in the paper."""
    image_heads: int = 4
    """Attention heads of these layers."""
    tlm_positions: TLMPositions | None = None
    """Positions of a translation without an image: ``restart`` as in XLM, whose TLM the paper
    adopts, or ``continue`` after the first sentence's; None for the variant's own."""

    def __post_init__(self) -> None:
        sizes = ("visual_width", "pooler_size", "image_heads")
        validate_fields(self, lambda value: value >= 1, "1 or more", *sizes)
        validate_fields(self, lambda value: value >= 0, "0 or more", "image_layers")
        if self.variant == "paper" and (self.image_pooler or self.pooler_size is not None):
            raise PolyglanceError(
                "image_pooler and pooler_size are of the reference variant: set variant to"
                " reference, or leave them out"
            )

    @property
    def pooled_size(self) -> int:
        """The size of a pair's vector that heads take."""
        return self.pooler_size or self.encoder.hidden_size


def reference_encoder(config: EncoderConfig) -> EncoderConfig:
    """Return an encoder's configuration with the epsilons of the published code's norms.

    The transformer's layers have BERT's 1e-12, whatever XLM-R was trained with; embeddings and
    heads keep XLM-R's.
    """
    return replace(config, norm_eps=1e-12, embedding_norm_eps=config.embedding_eps)


class UC2(CrossEncoderModel):
    """The cross-lingual cross-modal encoder with the heads of its objectives."""

    config_class = UC2Config
    config: UC2Config

    def __init__(self, config: UC2Config, encoder: Encoder | None = None) -> None:
        """Build the model around ``encoder``, or around a new one of the configured shape."""
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        width, eps = config.encoder.hidden_size, config.encoder.embedding_eps
        reference = config.variant == "reference"

        # Image encoder
        self.region_feature = bert_linear(config.visual_width, width)
        self.image_layers = PoolingHead(
            width,
            layers=config.image_layers,
            heads=config.image_heads,
            dropout=config.encoder.dropout,
        ).layers
        self.feature_norm = LayerNorm(width, eps)
        self.region_box = bert_linear(7, width)
        self.box_norm = LayerNorm(width, eps)
        # Text has the encoder's first segment; images have this one.
        self.image_segment = nn.Parameter(nn.init.normal_(torch.empty(width), std=0.02))
        self.region_norm = LayerNorm(width, eps) if reference else nn.Identity()
        self.region_mask = nn.Parameter(torch.zeros(config.visual_width))

        # Heads
        transforms = reference or config.word_transform
        self.word_transform = word_transform(width, eps) if transforms else nn.Identity()
        self.word_bias = nn.Parameter(torch.zeros(config.encoder.vocab_size))
        activation = nn.Tanh() if config.pooling == "tanh" else nn.ReLU()
        self.pooler: nn.Module = nn.Identity()
        if config.image_pooler:
            self.pooler = ProductPooler(width, config.pooled_size, activation)
        elif reference:
            self.pooler = nn.Sequential(bert_linear(width, config.pooled_size), activation)
        self.match = bert_linear(config.pooled_size, 2 if reference else 1)

    # Input embeddings

    def embed_image(self, regions: Regions) -> Tensor:
        """Apply the image encoder, which early adaptation trains: ``(regions, hidden_size)``."""
        feature = self.region_feature(regions.features)
        for layer in self.image_layers:
            feature = layer(feature, regions.packing)
        feature = self.feature_norm(feature)
        location = self.box_norm(self.region_box(box_location(regions.boxes)))
        embedded: Tensor = feature + location
        return embedded

    def embed_regions(self, regions: Regions) -> PackedRows:
        """Return the first layer's input for regions."""
        rows = self.region_norm(self.embed_image(regions) + self.image_segment)
        return PackedRows(self.encoder.dropout(rows), regions.packing)

    def embed_text(self, text: Text, images: PackedRows | None = None) -> PackedRows:
        """Return the first layer's input for sub-words, as in the text encoder by itself."""
        return PackedRows(self.encoder.embed(text.ids, text.packing), text.packing)

    @property
    def positions_run_on(self) -> bool:
        """Whether a translation's positions run on after the first sentence's in TLM."""
        chosen, variant = self.config.tlm_positions, self.config.variant
        return chosen == "continue" or (chosen is None and variant == "reference")

    def _embed_continued(self, text: Text, translation: Text) -> PackedRows:
        """Return the first layer's input for translations at positions after the text's."""
        packing, before = translation.packing, text.packing
        length = int((before.lengths + packing.lengths).max())
        if length > self.encoder.config.max_tokens:
            raise ValueError(
                f"a pair of sentences has {length} sub-words and the encoder takes"
                f" {self.encoder.config.max_tokens}: truncate when tokenising"
            )
        positions = packing.positions + before.lengths[packing.sequence_ids]
        rows = self.encoder.embed(translation.ids, packing, positions=positions)
        return PackedRows(rows, packing)

    # Transformer

    def forward(
        self, text: Text | None, regions: Regions | None, translation: Text | None = None
    ) -> CrossEncoderOutput:
        """Encode captions, optionally with a translation each, and images, or either alone."""
        images = None if regions is None else self.embed_regions(regions)
        return self.encode(text, images, translation)

    def encode(
        self, text: Text | None, images: PackedRows | None, translation: Text | None = None
    ) -> CrossEncoderOutput:
        """Encode like `forward`, with regions already embedded, to reuse for many captions."""
        inputs = self._embed_inputs(text, images, translation)
        joint, positions = _concat_all([part for part in inputs if part is not None])
        out = self.encoder.contextualise(joint.rows, joint.packing)
        remaining = iter(positions)
        of_text, of_translation, of_regions = (
            None if part is None else out[next(remaining)] for part in inputs
        )
        pooled = joint.packing.first(out)
        if self.config.image_pooler:  # without an image there is nothing to match
            image = torch.zeros_like(pooled)
            if images is not None and of_regions is not None:
                image = images.packing.first(of_regions)
            pooled = torch.cat([pooled, image], dim=1)
        return CrossEncoderOutput(of_text, of_regions, pooled, of_translation)

    def encode_pair(self, text: Text, images: PackedRows) -> Tensor:
        """Return `CrossEncoderOutput.pooled`; the last layer ends in the rows in use alone."""
        if not self.config.image_pooler:
            return super().encode_pair(text, images)
        pairs = self.join(self.embed_text(text, images), images)
        _, of_regions = self.split(pairs, images.packing)
        first = pairs.packing.cu_seqlens[:-1].long()
        first_region = of_regions[images.packing.cu_seqlens[:-1].long()]
        wanted = torch.stack([first, first_region], dim=1).flatten()
        out = self.encoder.contextualise(pairs.rows, pairs.packing, output_rows=wanted)
        return out.view(len(pairs.packing), -1)

    def encode_positions(
        self,
        positions: Tensor,
        text: Text,
        images: PackedRows | None,
        translation: Text | None = None,
    ) -> Tensor:
        """Encode the batch and return the vectors of some positions only.

        After attention, the last layer is computed for these positions alone.

        Args:
            positions: ``(n,)`` rows, counted through all text, then translations, then regions.
            text: captions.
            images: embedded regions.
            translation: a second caption for each, as in VTLM.

        Returns:
            ``(n, hidden_size)``.
        """
        inputs = self._embed_inputs(text, images, translation)
        joint, joint_positions = _concat_all([part for part in inputs if part is not None])
        wanted = torch.cat(joint_positions)[to_device(positions, joint.rows.device)]
        return self.encoder.contextualise(joint.rows, joint.packing, output_rows=wanted)

    def _embed_inputs(
        self, text: Text | None, images: PackedRows | None, translation: Text | None
    ) -> tuple[PackedRows | None, ...]:
        """Return text, translation and regions as first-layer inputs."""
        if text is None and translation is None and images is None:
            raise ValueError("there is neither text nor image to encode")
        first = None if text is None else self.embed_text(text)
        if translation is None:
            return first, None, images
        if text is not None and images is None and self.positions_run_on:
            return first, self._embed_continued(text, translation), images
        return first, self.embed_text(translation), images

    # Heads

    def match_logits(self, pooled: Tensor) -> Tensor:
        """Return the logit of ITM for each pair, ``(pairs,)``.

        With two classes it is the difference of their logits: its binary cross-entropy equals
        the cross-entropy of the two.
        """
        logits: Tensor = self.match(self.pooler(pooled))
        return logits[:, -1] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]

    def rank_scores(self, pooled: Tensor) -> Tensor:
        """Return the logit of the matching class alone, which retrieval is fine-tuned with."""
        scores: Tensor = self.match(self.pooler(pooled))
        return scores[:, -1]

    def masked_region(self) -> Tensor:
        """Return the learned feature ``v_m`` of a masked region, ``(visual_width,)``."""
        return self.region_mask.detach()

    def image_encoder_parameters(self) -> list[nn.Parameter]:
        """Return what early adaptation trains: region projections and their norms."""
        projections = (self.region_feature, self.region_box)
        parts = (*projections, self.image_layers, self.feature_norm, self.box_norm)
        return [parameter for part in parts for parameter in part.parameters()]


class ProductPooler(nn.Module):
    """The product of a pooler of <s> and one of the first region, as in VOLTA's own UNITERs."""

    def __init__(self, width: int, pooled_size: int, activation: nn.Module) -> None:
        super().__init__()
        self.text, self.image = bert_linear(width, pooled_size), bert_linear(width, pooled_size)
        self.activation = activation

    def forward(self, rows: Tensor) -> Tensor:
        """Pool ``(pairs, 2 * hidden_size)``, the vectors of <s> and of the first region."""
        text, image = rows.chunk(2, dim=1)
        pooled: Tensor = self.activation(self.text(text)) * self.activation(self.image(image))
        return pooled


def _concat_all(parts: Sequence[PackedRows]) -> tuple[PackedRows, list[Tensor]]:
    """Concatenate the n-th sequences of all parts; also return where each part's rows went."""
    joint = parts[0]
    positions = [torch.arange(joint.packing.num_tokens, device=joint.rows.device)]
    for part in parts[1:]:
        pairs = concat_packed(joint, part)
        earlier, added = pairs.positions
        positions = [*(earlier[rows] for rows in positions), added]
        joint = PackedRows(pairs.rows, pairs.packing)
    return joint, positions

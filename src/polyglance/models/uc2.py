"""UC2: one transformer over a picture's regions and what is said of it, in one language or two.

Zhou et al. 2021, "UC2: Universal Cross-lingual Cross-modal Vision-and-Language
Pre-training". UNITER with the encoder of XLM-R (section 3.2): words and regions enter
as one sequence, and all attend to all,

    <s> a dog runs </s> region region region
    <s> a dog runs </s> <s> ein Hund läuft </s> region region region

the second for VTLM, where the positions of words begin anew. Languages are not
told: the sub-words tell. `UC2Config.form` chooses between what the paper writes and
what its published code does:

| | ``paper`` | ``reference`` |
|---|---|---|
| a region | feature, location and segment, summed | the same, normed once more |
| words | by the table of words | a layer, GELU and norm before it |
| matching | a layer on <s>, one logit | tanh and a layer, two classes |

A region's feature and location have a projection and a norm each, in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.config import check
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.joint import Regions, Rows, Text, box_location, first_of_each, joined
from polyglance.nn.sending import sent

Form = Literal["paper", "reference"]
Pooling = Literal["tanh", "relu"]


@dataclass(frozen=True)
class UC2Config:
    """The shape of a UC2 model. The defaults are the paper's (section 4)."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    visual_width: int = 2048
    form: Form = "paper"
    pooling: Pooling = "tanh"
    """What follows the layer on <s> in the reference form; VOLTA fine-tunes with ``relu``."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "visual_width")


@dataclass(frozen=True, eq=False)
class Contextual:
    """What the transformer made of a batch; None for a side that was missing."""

    text: Tensor | None
    """One vector a sub-word, in the order of the batch."""
    translation: Tensor | None
    """Likewise of the sentences beside them."""
    regions: Tensor | None
    """One vector a region."""
    first: Tensor
    """The vector that stands for each pair: that of <s>, or of the first region alone."""


class UC2(nn.Module):
    """The cross-lingual cross-modal encoder with the heads of its objectives."""

    def __init__(self, config: UC2Config, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        width, eps = config.encoder.width, config.encoder.norm_eps
        reference = config.form == "reference"

        self.region_feature = _linear(config.visual_width, width)
        self.feature_norm = nn.LayerNorm(width, eps)
        self.region_box = _linear(7, width)
        self.box_norm = nn.LayerNorm(width, eps)
        # The segment of text is the encoder's first; this one is beside it.
        self.image_segment = nn.Parameter(0.02 * torch.randn(width))
        self.region_norm = nn.LayerNorm(width, eps) if reference else nn.Identity()
        self.region_mask = nn.Parameter(torch.zeros(config.visual_width))

        self.word_transform = (
            nn.Sequential(_linear(width, width), nn.GELU(), nn.LayerNorm(width, eps))
            if reference
            else nn.Identity()
        )
        self.word_bias = nn.Parameter(torch.zeros(config.encoder.vocabulary))
        bent = nn.Tanh() if config.pooling == "tanh" else nn.ReLU()
        self.pooler = nn.Sequential(_linear(width, width), bent) if reference else nn.Identity()
        self.match = _linear(width, 2 if reference else 1)

    def forward(
        self, text: Text | None, regions: Regions | None, translation: Text | None = None
    ) -> Contextual:
        """Read sentences, perhaps with another each beside them, and pictures, or either alone."""
        return self.read(
            text, None if regions is None else self.embed_regions(regions), translation
        )

    def see(self, regions: Regions) -> Tensor:
        """The image encoder: a vector a region, which early adaptation brings among words."""
        feature = self.feature_norm(self.region_feature(regions.features))
        location = self.box_norm(self.region_box(box_location(regions.boxes)))
        seen: Tensor = feature + location
        return seen

    def embed_regions(self, regions: Regions) -> Rows:
        """What regions enter the first layer as, whatever is said of them."""
        rows = self.region_norm(self.see(regions) + self.image_segment)
        return Rows(self.encoder.dropout(rows), regions.packing)

    def embed_text(self, text: Text) -> Rows:
        """What sub-words enter the first layer as, just as in the encoder by itself."""
        return Rows(self.encoder.embed(text.ids, text.packing), text.packing)

    def read(
        self, text: Text | None, seen: Rows | None, translation: Text | None = None
    ) -> Contextual:
        """The same with regions already embedded, which may serve many sentences."""
        sides = self._sides(text, seen, translation)
        whole, places = _in_a_row([side for side in sides if side is not None])
        out = self.encoder.contextualise(whole.rows, whole.packing)
        found = iter(places)
        words, others, shown = (None if side is None else out[next(found)] for side in sides)
        return Contextual(words, others, shown, whole.packing.first(out))

    def read_at(
        self, places: Tensor, text: Text, seen: Rows | None, translation: Text | None = None
    ) -> Tensor:
        """What some rows alone become: counted through text, translation and regions.

        What comes after attention in the last layer is computed for them alone.
        """
        sides = self._sides(text, seen, translation)
        whole, went = _in_a_row([side for side in sides if side is not None])
        return self.encoder.contextualise(
            whole.rows, whole.packing, only=torch.cat(went)[sent(places, whole.rows.device)]
        )

    def _sides(
        self, text: Text | None, seen: Rows | None, translation: Text | None
    ) -> tuple[Rows | None, ...]:
        """Text, translation and regions, as they enter the first layer."""
        if text is None and translation is None and seen is None:
            raise ValueError("there is neither text nor picture to read")
        return (
            None if text is None else self.embed_text(text),
            None if translation is None else self.embed_text(translation),
            seen,
        )

    def pair(self, text: Text, seen: Rows) -> Tensor:
        """`Contextual.first` of each pair; the last layer is computed for that row alone."""
        return first_of_each(self.encoder, joined(self.embed_text(text), seen))

    def score(self, text: Text, seen: Rows) -> Tensor:
        """How well each sentence fits its picture: what ranking trains, and retrieval sorts by."""
        return self.ranking(self.pair(text, seen))

    def matching(self, first: Tensor) -> Tensor:
        """Logits of whether pairs belong together (ITM), from `Contextual.first`.

        Two classes have the difference of theirs: the cross-entropy of the two is
        the binary one of that.
        """
        logits: Tensor = self.match(self.pooler(first))
        return logits[:, -1] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]

    def ranking(self, first: Tensor) -> Tensor:
        """Scores of pairs for fine-tuning: by the row of the matching head that says yes."""
        scores: Tensor = self.match(self.pooler(first))
        return scores[:, -1]

    def word_logits(self, rows: Tensor) -> Tensor:
        """Logits of words, from the vectors of hidden words (MLM, VTLM) and regions (MRTM)."""
        table = self.encoder.words.weight
        assert isinstance(table, Tensor)
        return F.linear(self.word_transform(rows), table, self.word_bias)

    def image_encoder(self) -> list[nn.Parameter]:
        """What early adaptation trains: the projections of regions and their norms."""
        parts = (self.region_feature, self.feature_norm, self.region_box, self.box_norm)
        return [parameter for part in parts for parameter in part.parameters()]


def _in_a_row(sides: Sequence[Rows]) -> tuple[Rows, list[Tensor]]:
    """Each sequence of the first side followed by those of the others, and where all rows went."""
    whole = sides[0]
    went = [torch.arange(whole.packing.num_tokens, device=whole.rows.device)]
    for side in sides[1:]:
        pairs = joined(whole, side)
        before, added = pairs.places
        went = [*(before[places] for places in went), added]
        whole = Rows(pairs.rows, pairs.packing)
    return whole, went


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer

"""MMP: a dual encoder for sentences in many languages and clips or images.

Huang et al., "Multilingual Multimodal Pre-training for Zero-Shot Cross-Lingual
Transfer of Vision-Language Models". Two encoders share one embedding space:

    sentence -> multilingual transformer -> e_x -> pooling head -> c_x
    image or clip -> features, linear layer -> e_v -> pooling head -> c_v

Both outputs are unit vectors; their dot product is the similarity (section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.config import as_plain, load, validate_fields
from polyglance.errors import PolyglanceError
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing, join_packings
from polyglance.nn.pooling import MeanHead, PoolingHead
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.nce import Negatives, nce
from polyglance.objectives.noise import noise_features, noise_tokens
from polyglance.objectives.triplet import triplet

_STORED_ENCODER_KEYS = {
    "vocabulary": "vocab_size",
    "width": "hidden_size",
    "layers": "num_layers",
    "heads": "num_heads",
    "inner": "intermediate_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
}
"""Keys of `EncoderConfig` in ``model.json``, part of the format of exported models."""


@dataclass(frozen=True)
class MMPConfig:
    """The shape of an MMP model. The defaults are the paper's (section 5.2)."""

    encoder: EncoderConfig = field(
        default_factory=lambda: EncoderConfig(
            hidden_size=1024, num_layers=24, num_heads=16, intermediate_size=4096
        )
    )
    text_layer: int | None = 12
    """The encoder layer whose output is used; None for the last."""
    frozen_layers: int = 9
    """How many encoder layers stay as pre-trained."""
    visual_width: int = 1024
    """The size of the features of an image's cells or a clip's seconds."""
    width: int = 1024
    """D: the size of the embedding space."""
    pooling_layers: int = 2
    """Depth of the pooling heads."""
    visual_pooling_layers: int | None = None
    """Depth of the visual head where it differs (Table 2); None for that of the text head."""
    pooling_heads: int = 4
    dropout: float = 0.3
    share_pooling: bool = False
    """Whether text and images share one pooling head (the starred row of Table 2)."""
    text_pooling: Literal["transformer", "mean"] = "transformer"
    """How sentences are pooled; ``mean`` keeps the space of an encoder trained with its mean."""

    def __post_init__(self) -> None:
        depths = ("pooling_layers", "visual_pooling_layers")
        sizes = ("visual_width", "width", "pooling_heads", *depths)
        validate_fields(self, lambda value: value >= 1, "1 or more", *sizes)
        validate_fields(
            self, lambda value: 0 <= value < 1, "a share from 0 to less than 1", "dropout"
        )
        if self.share_pooling and self.visual_pooling_layers not in (None, self.pooling_layers):
            raise PolyglanceError(
                f"one shared pooling head cannot have {self.pooling_layers} and"
                f" {self.visual_pooling_layers} layers: set visual_pooling_layers to null or"
                " share_pooling to false"
            )
        if self.width % self.pooling_heads:
            raise PolyglanceError(
                f"a width of {self.width} does not divide into {self.pooling_heads} heads:"
                " change width or pooling_heads"
            )
        for name in ("text_layer", "frozen_layers"):
            if not 0 <= (getattr(self, name) or 0) <= self.encoder.num_layers:
                raise PolyglanceError(
                    f"{name} is {getattr(self, name)} and the encoder has {self.encoder.num_layers}"
                    f" layers: lower {name}"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as exported models store it."""
        fields: dict[str, Any] = as_plain(self)
        if fields["visual_pooling_layers"] is None:
            del fields["visual_pooling_layers"]  # unknown to versions before 0.2
        keys = {name: key for key, name in _STORED_ENCODER_KEYS.items()}
        encoder = {keys.get(name, name): value for name, value in fields["encoder"].items()}
        return fields | {"encoder": encoder}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MMPConfig:
        """Read what `to_json` returned."""
        encoder = fields["encoder"].items()
        renamed = {_STORED_ENCODER_KEYS.get(key, key): value for key, value in encoder}
        return load(cls, {**fields, "encoder": renamed})


class MMP(nn.Module):
    """A tower for sentences in any language and one for images and clips."""

    def __init__(self, config: MMPConfig, encoder: Encoder | None = None) -> None:
        """Build the model around ``encoder``, or around a new one of the configured shape."""
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        self.encoder.freeze_below(config.frozen_layers)
        same_width = config.encoder.hidden_size == config.width
        self.text_input = (
            nn.Identity() if same_width else nn.Linear(config.encoder.hidden_size, config.width)
        )
        self.visual_input = nn.Linear(config.visual_width, config.width)
        self.text_pooling = (
            MeanHead(config.width)
            if config.text_pooling == "mean"
            else self._pooling_head(config.pooling_layers)
        )
        self.visual_pooling = (
            self.text_pooling
            if config.share_pooling
            else self._pooling_head(config.visual_pooling_layers or config.pooling_layers)
        )

    def _pooling_head(self, layers: int) -> PoolingHead:
        config = self.config
        return PoolingHead(
            config.width,
            layers=layers,
            heads=config.pooling_heads,
            dropout=config.dropout,
        )

    def encode_text(self, ids: Tensor, sentences: Packing) -> Tensor:
        """Return ``c_x``, a unit vector per sentence, ``(sentences, width)``."""
        return self.pool_text(self.encode_tokens(ids, sentences), sentences)

    def encode_visual(self, features: Tensor, visuals: Packing) -> Tensor:
        """Return ``c_v``, a unit vector per image or clip, ``(visuals, width)``."""
        return self.pool_visual(self.visual_input(features), visuals)

    def encode_tokens(self, ids: Tensor, sentences: Packing) -> Tensor:
        """Return ``e_x``, a contextual vector per sub-word, ``(tokens, width)``."""
        rows: Tensor = self.text_input(self.encoder(ids, sentences, layer=self.config.text_layer))
        return rows

    def pool_text(
        self,
        rows: Tensor,
        sentences: Packing,
        visual_rows: Tensor | None = None,
        visuals: Packing | None = None,
    ) -> Tensor:
        """Pool rows ``e_x`` into ``c_x``, or with rows ``e_v`` into ``c_x|v`` (equation 6)."""
        return F.normalize(self.text_pooling(rows, sentences, visual_rows, visuals), dim=1)

    def pool_visual(self, rows: Tensor, visuals: Packing) -> Tensor:
        """Pool rows ``e_v`` into ``c_v``."""
        return F.normalize(self.visual_pooling(rows, visuals), dim=1)


@dataclass(frozen=True)
class MMPObjective:
    """The training objective. The defaults are the paper's for one language per step."""

    loss: Literal["nce", "triplet"] = "nce"
    temperature: float = 0.1
    negatives: Negatives = "joint"
    """The reading of equation 2: see `polyglance.objectives.nce`."""
    margin: float = 0.2
    """Margin of the triplet loss, for the comparison of Table 3."""
    intra: bool = True
    """Whether to add equation 3 or 5: sentences and clips stay near their noised copies."""
    noise: float = 0.05
    """The share of sub-words and of visual rows that noise removes."""
    cross: bool = False
    """Whether to add equation 6: captions in two languages, each conditioned on the visual."""
    mask_id: int = 250_001
    """The tokenizer's mask, which replaces sub-words that noise removes."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value > 0, "a number above 0", "temperature")
        validate_fields(self, lambda value: value >= 0, "0 or more", "margin")
        validate_fields(
            self, lambda value: 0 <= value < 1, "a share from 0 to less than 1", "noise"
        )


Gather = Callable[[Tensor], Tensor]


def contrast(first: Tensor, second: Tensor, objective: MMPObjective) -> Tensor:
    """Return the contrastive loss of two sets of vectors, row by row (equation 1)."""
    if objective.loss == "triplet":
        return triplet(first, second, margin=objective.margin)
    return nce(first, second, temperature=objective.temperature, negatives=objective.negatives)


def mmp_losses(
    model: MMP,
    features: Tensor,
    visuals: Packing,
    captions: list[Text],
    objective: MMPObjective,
    draws: ItemDraws,
    gather: Gather = lambda rows: rows,
) -> dict[str, Tensor]:
    """Return the losses of a batch of images or clips with captions in one or two languages.

    Args:
        model: the model.
        features: ``(rows, visual_width)``.
        visuals: the packing of ``features``.
        captions: in one language (equations 1 and 3), or in two, x and y, the visually pivoted
            setting (equations 4, 5 and, if set, 6).
        objective: which losses, and their settings.
        draws: random numbers of the clips, for noise.
        gather: collects the rows of all processes, as negatives.

    Returns:
        ``inter`` and, if set, ``intra`` and ``cross``, to be summed.
    """

    if objective.cross and len(captions) != 2:
        raise ValueError(f"equation 6 compares two captions per clip, not {len(captions)}")
    ids, packings = [text.ids for text in captions], [text.packing for text in captions]
    versions = [features]
    if objective.intra:  # noised copies go through the same passes, which halves their number
        versions.append(
            noise_features(features, visuals, draws.named("visual"), rate=objective.noise)
        )
        ids += [
            noise_tokens(
                text.ids,
                text.packing,
                draws.named(f"captions {number}"),
                mask_id=objective.mask_id,
                rate=objective.noise,
            )
            for number, text in enumerate(captions)
        ]
        packings *= 2
    visual_rows, clips = _encode_visuals(model, versions, visuals)
    text_rows, sentences = _encode_texts(model, ids, packings)
    clips, sentences = [gather(rows) for rows in clips], [gather(rows) for rows in sentences]
    originals, noised = sentences[: len(captions)], sentences[len(captions) :]
    losses = {"inter": _total(contrast(text, clips[0], objective) for text in originals)}
    if objective.intra:
        pairs = [(clips[0], clips[1]), *zip(originals, noised, strict=True)]
        losses["intra"] = _total(contrast(*pair, objective) for pair in pairs)
    if objective.cross:
        x, y = (
            gather(rows)
            for rows in _pool_texts(model, text_rows[:2], packings[:2], visual_rows, visuals)
        )
        losses["cross"] = contrast(x, y, objective)
    return losses


def _encode_visuals(
    model: MMP, features: Sequence[Tensor], visuals: Packing
) -> tuple[Tensor, list[Tensor]]:
    """Encode versions of the same clips in one pass; return rows of the first, and all vectors."""
    rows = model.visual_input(torch.cat([*features]))
    vectors = model.pool_visual(rows, join_packings([visuals] * len(features)))
    return rows[: visuals.num_tokens], list(torch.split(vectors, len(visuals)))


def _encode_texts(
    model: MMP, ids: Sequence[Tensor], packings: Sequence[Packing]
) -> tuple[list[Tensor], list[Tensor]]:
    """Encode several texts in one pass; return the rows and the vectors of each."""
    joined = model.encode_tokens(torch.cat([*ids]), join_packings(packings))
    rows = list(torch.split(joined, [packing.num_tokens for packing in packings]))
    return rows, _pool_texts(model, rows, packings)


def _pool_texts(
    model: MMP,
    rows: Sequence[Tensor],
    packings: Sequence[Packing],
    visual_rows: Tensor | None = None,
    visuals: Packing | None = None,
) -> list[Tensor]:
    """Pool the rows of several texts in one pass, each with the clips' rows if there are any."""
    if visual_rows is not None and visuals is not None:
        visual_rows = torch.cat([visual_rows] * len(rows))
        visuals = join_packings([visuals] * len(rows))
    vectors = model.pool_text(torch.cat([*rows]), join_packings(packings), visual_rows, visuals)
    return list(torch.split(vectors, [len(packing) for packing in packings]))


def _total(losses: Iterable[Tensor]) -> Tensor:
    first, *others = losses
    for other in others:
        first = first + other
    return first

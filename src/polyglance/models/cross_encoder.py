"""What UC2 and M3P have in common: a transformer over a sentence and an image's regions.

Training, evaluation and inference work with any `CrossEncoderModel`; they never ask which
system it is. A new cross-encoder implements the abstract methods below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.errors import PolyglanceError
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.layer_norm import LayerNorm
from polyglance.nn.packed_pairs import (
    PackedPairs,
    PackedRows,
    Regions,
    Text,
    concat_packed,
    encode_first,
)
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import WordHead
from polyglance.objectives.masked_language import mlm_loss

Variant = Literal["paper", "reference"]
"""Where the two differ: what the paper writes, or what its published code does."""


class CrossEncoderConfig(Protocol):
    """What the configuration of every cross-encoder holds."""

    @property
    def encoder(self) -> EncoderConfig:
        """The shape of the transformer."""
        ...

    @property
    def visual_width(self) -> int:
        """The size of a region's feature vector."""
        ...


@dataclass(frozen=True, eq=False)
class CrossEncoderOutput:
    """The last layer's vectors for a batch; None for an input that was not given."""

    text: Tensor | None
    """``(sub-words, hidden_size)``, in the order of the batch."""
    regions: Tensor | None
    """``(regions, hidden_size)``."""
    pooled: Tensor
    """``(pairs, hidden_size)``: the first vector of each sequence, which represents the pair; in
    mUNITER and xUNITER followed by the first region's, ``(pairs, 2 * hidden_size)``."""
    translation: Tensor | None = None
    """``(sub-words, hidden_size)`` of the second sentences, if any."""


class CrossEncoderModel(nn.Module, ABC):
    """A transformer that encodes a sentence and an image's regions as one sequence."""

    config_class: ClassVar[type[Any]]
    """The dataclass of the model's configuration, which its constructor takes."""
    config: CrossEncoderConfig
    encoder: Encoder
    word_bias: nn.Parameter

    def forward(self, text: Text | None, regions: Regions | None) -> CrossEncoderOutput:
        """Encode sentences and images together, or either alone."""
        return self.encode(text, None if regions is None else self.embed_regions(regions))

    @abstractmethod
    def embed_regions(self, regions: Regions) -> PackedRows:
        """Return the first layer's input for regions; it does not depend on any text."""

    @abstractmethod
    def embed_text(self, text: Text, images: PackedRows | None = None) -> PackedRows:
        """Return the first layer's input for sub-words next to ``images``, if there are any."""

    @abstractmethod
    def encode(self, text: Text | None, images: PackedRows | None) -> CrossEncoderOutput:
        """Encode like `forward`, with regions already embedded, to reuse for many sentences."""

    @abstractmethod
    def match_logits(self, pooled: Tensor) -> Tensor:
        """Return the logit that each pair matches, ``(pairs,)``, from ``pooled`` vectors."""

    @abstractmethod
    def masked_region(self) -> Tensor:
        """Return the feature vector that replaces a masked region, ``(visual_width,)``."""

    def rank_scores(self, pooled: Tensor) -> Tensor:
        """Return the scores that retrieval sorts by, ``(pairs,)``."""
        return self.match_logits(pooled)

    def encode_pair(self, text: Text, images: PackedRows) -> Tensor:
        """Return `CrossEncoderOutput.pooled`; the last layer is computed for that row alone."""
        return encode_first(self.encoder, self.join(self.embed_text(text, images), images))

    def score(self, text: Text, images: PackedRows) -> Tensor:
        """Return how well each sentence fits its image, ``(pairs,)``."""
        return self.rank_scores(self.encode_pair(text, images))

    def word_logits(self, rows: Tensor) -> Tensor:
        """Return logits over the vocabulary; output weights are tied to the word embeddings."""
        return F.linear(self.word_head(rows), self.word_table, self.word_bias)

    def word_loss(self, rows: Tensor, targets: Tensor) -> Tensor:
        """Return `mlm_loss` of predicting ``targets`` ``(n,)`` from ``(n, hidden_size)``."""
        return mlm_loss(self.word_head(rows), self.word_table, self.word_bias, targets)

    @property
    def word_table(self) -> Tensor:
        """The word embeddings, ``(vocab_size, hidden_size)``, which are the output weights too."""
        table = self.encoder.words.weight
        assert isinstance(table, Tensor)
        return table

    def word_head(self, rows: Tensor) -> Tensor:
        """Apply ``word_transform``, if the model has one, before the vocabulary's logits."""
        transformed: Tensor = getattr(self, "word_transform", nn.Identity())(rows)
        return transformed

    def word_head_parameters(self) -> list[nn.Parameter]:
        """Return what predicts words besides the encoder: a bias and, if any, a transform."""
        transform = getattr(self, "word_transform", nn.Identity())
        return [self.word_bias, *transform.parameters()]

    @torch.no_grad()
    def load_word_head(self, head: WordHead) -> None:
        """Copy a language model's own head; the model needs layers of its shape."""
        transform = getattr(self, "word_transform", None)
        assert isinstance(transform, nn.Sequential)
        transform.load_state_dict(
            {
                "0.weight": head.dense_weight,
                "0.bias": head.dense_bias,
                "2.weight": head.norm_weight,
                "2.bias": head.norm_bias,
            }
        )
        self.word_bias.copy_(head.word_bias)

    def join(self, text: PackedRows, images: PackedRows) -> PackedPairs:
        """Concatenate each sentence with its image, in the model's order."""
        return concat_packed(text, images)

    def split(self, pairs: PackedPairs, images: Packing) -> tuple[Tensor, Tensor]:
        """Return where `join` put the sub-words and the regions of ``images``."""
        return pairs.positions

    @property
    def embedded_languages(self) -> tuple[str, ...]:
        """Languages with an embedding; none for a model that does not take a language."""
        return ()

    def language_ids(self, names: Sequence[str]) -> NDArray[np.int64] | None:
        """Return each language's row of the language embeddings, or None if there are none.

        Raises:
            PolyglanceError: a name is not among `embedded_languages`, which are not empty.
        """
        return None


def cross_encoder_class(system: str) -> type[CrossEncoderModel]:
    """Return the model class of a system: the `CrossEncoderModel` in ``models/<system>.py``."""
    try:
        module = import_module(f"polyglance.models.{system}") if system.isidentifier() else None
    except ModuleNotFoundError:
        module = None
    for member in vars(module).values() if module else ():
        own = getattr(member, "__module__", "") == f"polyglance.models.{system}"
        if own and isinstance(member, type) and issubclass(member, CrossEncoderModel):
            return member
    raise PolyglanceError(f"there is no cross-encoder {system!r} in polyglance.models")


def word_transform(width: int, eps: float) -> nn.Sequential:
    """Build the layers of XLM-R's and BERT's language-model head before its output weights."""
    return nn.Sequential(bert_linear(width, width), nn.GELU(), LayerNorm(width, eps))


def bert_linear(inputs: int, outputs: int) -> nn.Linear:
    """Build a linear layer initialised as in BERT: normal weights (std 0.02), zero bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer

"""MMP: multilingual multimodal transformers for clips and pictures.

Huang et al., "Multilingual Multimodal Pre-training for Zero-Shot Cross-Lingual
Transfer of Vision-Language Models". Two towers meet in one space of meaning:

    sentence -> multilingual transformer -> e_x -> pooling head -> c_x
    picture or clip -> features, linear layer -> e_v -> pooling head -> c_v

Both ends are unit vectors; their dot product says how well they fit (section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.nn.pooling import PoolingHead


@dataclass(frozen=True)
class MMPConfig:
    """The shape of an MMP model. The defaults are the paper's (section 5.2)."""

    encoder: EncoderConfig = field(
        default_factory=lambda: EncoderConfig(width=1024, layers=24, heads=16, inner=4096)
    )
    text_layer: int | None = 12
    """The encoder's layer whose output is used; None for the last."""
    frozen_layers: int = 9
    """Encoder layers that stay as they were pre-trained."""
    visual_width: int = 1024
    """The width of the features of a picture's cells or a clip's seconds."""
    width: int = 1024
    pooling_layers: int = 2
    pooling_heads: int = 4
    dropout: float = 0.3
    share_pooling: bool = False
    """One pooling head for both towers (the starred row of Table 2)."""


class MMP(nn.Module):
    """A tower for sentences in any language and one for pictures and clips."""

    def __init__(self, config: MMPConfig, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        self.encoder.freeze_below(config.frozen_layers)
        same_width = config.encoder.width == config.width
        self.text_input = (
            nn.Identity() if same_width else nn.Linear(config.encoder.width, config.width)
        )
        self.visual_input = nn.Linear(config.visual_width, config.width)
        self.text_pooling = self._pooling_head()
        self.visual_pooling = self.text_pooling if config.share_pooling else self._pooling_head()

    def _pooling_head(self) -> PoolingHead:
        config = self.config
        return PoolingHead(
            config.width,
            layers=config.pooling_layers,
            heads=config.pooling_heads,
            dropout=config.dropout,
        )

    def encode_text(self, ids: Tensor, sentences: Packing) -> Tensor:
        """``c_x``: a unit vector for each sentence."""
        return self.pool_text(self.text_rows(ids, sentences), sentences)

    def encode_visual(self, features: Tensor, visuals: Packing) -> Tensor:
        """``c_v``: a unit vector for each picture or clip."""
        return self.pool_visual(self.visual_input(features), visuals)

    def text_rows(self, ids: Tensor, sentences: Packing) -> Tensor:
        """``e_x``: one contextual vector a sub-word."""
        rows: Tensor = self.text_input(self.encoder(ids, sentences, layer=self.config.text_layer))
        return rows

    def pool_text(
        self,
        rows: Tensor,
        sentences: Packing,
        visual_rows: Tensor | None = None,
        visuals: Packing | None = None,
    ) -> Tensor:
        """``c_x``, or ``c_x|v`` where the rows ``e_v`` of what it describes are given (eq. 6)."""
        return F.normalize(self.text_pooling(rows, sentences, visual_rows, visuals), dim=1)

    def pool_visual(self, rows: Tensor, visuals: Packing) -> Tensor:
        """``c_v`` from rows ``e_v``."""
        return F.normalize(self.visual_pooling(rows, visuals), dim=1)

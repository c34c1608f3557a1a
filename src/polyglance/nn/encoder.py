"""The XLM-R and BERT shaped text encoder, on packed batches.

Sub-word ids in, one vector per sub-word out, from any layer. `polyglance.nn.pretrained`
loads published weights into it; M3P and UC2 feed image regions through the same layers with
`Encoder.contextualise`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polyglance.nn.layer_norm import LayerNorm
from polyglance.nn.packing import Packing
from polyglance.nn.transformer import Activation, TransformerLayer


@dataclass(frozen=True)
class EncoderConfig:
    """The shape of an encoder. The defaults are XLM-R base's."""

    vocab_size: int = 250_002
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 514
    first_position: int = 2
    """The position embedding of the first token: 2 in XLM-R, 0 in BERT."""
    type_vocab_size: int = 1
    activation: Activation = "gelu"
    norm_eps: float = 1e-5
    """Of the layer norms."""
    embedding_norm_eps: float | None = None
    """Of the layer norm of the embeddings, where it differs from the layers' (UC2's code)."""
    dropout: float = 0.1
    attention_dropout: float = 0.0
    """On attention weights. 0 by default: flash attention on packed rows has none."""

    @property
    def max_tokens(self) -> int:
        """The longest sentence, in sub-words with special tokens."""
        return self.max_position_embeddings - self.first_position

    @property
    def embedding_eps(self) -> float:
        """The epsilon of the layer norm of the embeddings."""
        return self.norm_eps if self.embedding_norm_eps is None else self.embedding_norm_eps


class Encoder(nn.Module):
    """A multilingual transformer over packed sub-words."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.words: nn.Module = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segments = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = LayerNorm(config.hidden_size, config.embedding_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(
                config.hidden_size,
                config.num_heads,
                config.intermediate_size,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                activation=config.activation,
                norm_eps=config.norm_eps,
            )
            for _ in range(config.num_layers)
        )
        self.gradient_checkpointing = False
        self.frozen_layers = 0
        self.apply(_initialise)

    def forward(
        self,
        ids: Tensor,
        packing: Packing,
        *,
        segments: Tensor | None = None,
        layer: int | None = None,
    ) -> Tensor:
        """Return one vector per sub-word, ``(tokens, hidden_size)``.

        Args:
            ids: ``(tokens,)`` sub-word ids.
            packing: the packing of ``ids``.
            segments: ``(tokens,)`` segment ids; 0 by default.
            layer: the layer whose output is returned; the last by default, 0 for embeddings.
        """
        return self.contextualise(self.embed(ids, packing, segments=segments), packing, layer=layer)

    def embed(
        self,
        ids: Tensor,
        packing: Packing,
        *,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return the first layer's input: word + position + segment, normalised."""
        if packing.max_seqlen > self.config.max_tokens:
            raise ValueError(
                f"a sequence has {packing.max_seqlen} sub-words and the encoder takes"
                f" {self.config.max_tokens}: truncate when tokenising"
            )
        positions = packing.positions if positions is None else positions
        segments = torch.zeros_like(ids) if segments is None else segments
        trainable = any(p.requires_grad for p in self.words.parameters())
        with torch.set_grad_enabled(torch.is_grad_enabled() and trainable):
            summed = (
                self.words(ids)
                + self.positions(positions + self.config.first_position)
                + self.segments(segments)
            )
            rows: Tensor = self.dropout(self.norm(summed))
            return rows

    def contextualise(
        self,
        rows: Tensor,
        packing: Packing,
        *,
        layer: int | None = None,
        output_rows: Tensor | None = None,
    ) -> Tensor:
        """Apply the layers to rows that are already embedded.

        Args:
            rows: ``(rows, hidden_size)``.
            packing: the packing of ``rows``.
            layer: the number of layers to apply; all by default.
            output_rows: indices of the rows to return; all by default. After attention, the
                last layer is computed for these alone.
        """
        last = self.config.num_layers if layer is None else layer
        device = rows.device.type
        if torch.is_autocast_enabled(device):
            rows = rows.to(torch.get_autocast_dtype(device))
        if not 0 <= last <= self.config.num_layers:
            raise ValueError(f"there is no layer {last}: the encoder has {self.config.num_layers}")
        for number, module in enumerate(self.layers[:last]):
            wanted = output_rows if number == last - 1 else None
            if number < self.frozen_layers and not rows.requires_grad:
                with torch.no_grad():
                    rows = module(rows, packing, output_rows=wanted)
            elif self.gradient_checkpointing and self.training:
                rows = checkpoint(module, rows, packing, output_rows=wanted, use_reentrant=False)
            else:
                rows = module(rows, packing, output_rows=wanted)
        return rows if last or output_rows is None else rows[output_rows]

    def freeze_below(self, layer: int) -> None:
        """Freeze the embeddings and the first ``layer`` layers (MMP freezes 9); 0 unfreezes all."""
        if not 0 <= layer <= self.config.num_layers:
            raise ValueError(f"there is no layer {layer}: the encoder has {self.config.num_layers}")
        self.frozen_layers = layer
        frozen = set(self.layers[:layer])
        if layer:
            frozen |= {self.words, self.positions, self.segments, self.norm}
        for module in (self.words, self.positions, self.segments, self.norm, *self.layers):
            module.requires_grad_(module not in frozen)
        self.train(self.training)

    def train(self, mode: bool = True) -> Encoder:
        """Set the mode; frozen layers stay in evaluation mode, so that their output is fixed."""
        super().train(mode)
        if self.frozen_layers:
            self.dropout.eval()
            for module in self.layers[: self.frozen_layers]:
                module.eval()
        return self


def _initialise(module: nn.Module) -> None:
    """Initialise as BERT does: normal weights (std 0.02), zero biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)

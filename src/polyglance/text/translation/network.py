"""A small Transformer for translation: encoder, decoder, one table of sub-words.

After Vaswani et al. (2017) with layer norms before each part, which needs no careful warm-up,
and a decoder of fewer layers than the encoder, which translates faster for the same quality
(Kasai et al. 2021). The embedding is shared by source, target and output. Batches are padded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError


@dataclass(frozen=True)
class NetworkConfig:
    """The shape of a `TranslationNetwork`."""

    hidden_size: int = 384
    num_heads: int = 6
    intermediate_size: int = 1536
    encoder_layers: int = 6
    decoder_layers: int = 3
    dropout: float = 0.2
    max_tokens: int = 128
    """Longest source and longest translation, in sub-words; longer sources are cut."""

    def __post_init__(self) -> None:
        counts = ("hidden_size", "num_heads", "intermediate_size", "encoder_layers")
        validate_fields(self, lambda n: n >= 1, "1 or more", *counts, "decoder_layers")
        validate_fields(self, lambda n: n >= 4, "4 or more", "max_tokens")
        validate_fields(self, lambda p: 0 <= p < 1, "a number from 0 to less than 1", "dropout")
        if self.hidden_size % (2 * self.num_heads):
            raise PolyglanceError(
                f"hidden_size is {self.hidden_size}: give a multiple of twice num_heads"
                f" ({2 * self.num_heads})"
            )


KeyValues = tuple[Tensor, Tensor]
"""Keys and values, each ``(batch, heads, steps, head_size)``."""


class TranslationNetwork(nn.Module):
    """Encoder and decoder with shared embeddings; sub-word 0 is padding."""

    def __init__(self, config: NetworkConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = nn.Embedding(vocab_size, config.hidden_size)
        self.encoder = nn.ModuleList(_Layer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(
            _Layer(config, cross=True) for _ in range(config.decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(config.hidden_size)
        self.decoder_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer(
            "positions", _sinusoids(config.max_tokens + 1, config.hidden_size), persistent=False
        )
        self.positions: Tensor
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=config.hidden_size**-0.5)

    def embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Return ``(batch, steps, hidden_size)`` for tokens at positions from ``first`` on."""
        scaled = self.embedding(tokens) * math.sqrt(self.config.hidden_size)
        steps = self.positions[first : first + tokens.shape[1]].to(scaled.dtype)
        embedded: Tensor = self.dropout(scaled + steps)
        return embedded

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode padded sources ``(batch, steps)``.

        Returns:
            ``(batch, steps, hidden_size)``, and a mask ``(batch, 1, 1, steps)``, true at tokens.
        """
        mask = (source != 0)[:, None, None, :]
        rows = self.embed(source)
        for layer in self.encoder:
            rows = layer(rows, mask)
        return self.encoder_norm(rows), mask

    def decode(self, target: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return the decoder's output for all steps of padded targets at once, as in training.

        Args:
            target: ``(batch, steps)``, padded at the end.
            memory: the encoder's output.
            mask: likewise.

        Returns:
            ``(batch, steps, hidden_size)``.
        """
        rows = self.embed(target)
        for layer in self.decoder:
            assert isinstance(layer, _Layer)
            rows = layer(rows, None, layer.cross_key_values(memory), mask)
        output: Tensor = self.decoder_norm(rows)
        return output

    def decode_step(
        self, tokens: Tensor, step: int, caches: list[KeyValues], memory: list[KeyValues],
        mask: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return the output of one step; keys and values of the steps before are in a cache.

        Beams of one sentence attend to its source together, so that nothing of the source is
        repeated.

        Args:
            tokens: ``(batch, beams)``, the last token of each hypothesis.
            step: its position, from 0.
            caches: of each decoder layer, ``(batch * beams, heads, max steps, head_size)``;
                written at ``step``.
            memory: of each decoder layer, keys and values of the sources (`memory_key_values`).
            mask: ``(batch, 1, 1, steps)``, of the encoder.

        Returns:
            ``(batch, beams, hidden_size)``.
        """
        rows = self.embed(tokens.reshape(-1, 1), step)
        for layer, cache, key_values in zip(self.decoder, caches, memory, strict=True):
            assert isinstance(layer, _Layer)
            rows = layer.step(rows, step, cache, key_values, mask)
        output: Tensor = self.decoder_norm(rows)
        return output.view(*tokens.shape, -1)

    def memory_key_values(self, memory: Tensor) -> list[KeyValues]:
        """Return each decoder layer's keys and values of encoded sources."""
        return [
            layer.cross_key_values(memory) for layer in self.decoder if isinstance(layer, _Layer)
        ]

    def logits(self, rows: Tensor) -> Tensor:
        """Return ``(..., vocab_size)`` scores of the next sub-word."""
        return F.linear(rows, self.embedding.weight)


class _Layer(nn.Module):
    """Self-attention, in the decoder attention to the source, and a feed-forward network."""

    def __init__(self, config: NetworkConfig, *, cross: bool = False) -> None:
        super().__init__()
        size, self.num_heads = config.hidden_size, config.num_heads
        self.attention_norm = nn.LayerNorm(size)
        self.query_key_value = nn.Linear(size, 3 * size)
        self.attended = nn.Linear(size, size)
        self.cross = cross
        if cross:
            self.cross_norm = nn.LayerNorm(size)
            self.cross_query = nn.Linear(size, size)
            self.cross_key_value = nn.Linear(size, 2 * size)
            self.cross_attended = nn.Linear(size, size)
        self.output_norm = nn.LayerNorm(size)
        self.widen = nn.Linear(size, config.intermediate_size)
        self.narrow = nn.Linear(config.intermediate_size, size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        rows: Tensor,
        mask: Tensor | None,
        key_values: KeyValues | None = None,
        cross_mask: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer; without ``mask`` self-attention is causal."""
        query, key, value = self._split(self.query_key_value(self.attention_norm(rows)), 3)
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
        rows = rows + self.dropout(self.attended(_merge(attended)))
        return self._after_attention(rows, key_values, cross_mask, beams=0)

    def step(
        self, rows: Tensor, step: int, cache: KeyValues, key_values: KeyValues, mask: Tensor
    ) -> Tensor:
        """Apply the layer to one step of each hypothesis, ``(batch * beams, 1, size)``."""
        query, key, value = self._split(self.query_key_value(self.attention_norm(rows)), 3)
        for store, new in zip(cache, (key, value), strict=True):
            store[:, :, step : step + 1] = new
        keys, values = (store[:, :, : step + 1] for store in cache)
        attended = F.scaled_dot_product_attention(query, keys, values)
        rows = rows + self.attended(_merge(attended))
        beams = len(rows) // len(mask)
        return self._after_attention(rows, key_values, mask, beams=beams)

    def cross_key_values(self, memory: Tensor) -> KeyValues:
        """Return keys and values of encoded sources."""
        key, value = self._split(self.cross_key_value(memory), 2)
        return key, value

    def _after_attention(
        self, rows: Tensor, key_values: KeyValues | None, mask: Tensor | None, *, beams: int
    ) -> Tensor:
        if key_values is not None:
            query = self.cross_query(self.cross_norm(rows))
            if beams:  # (batch * beams, 1, size) as (batch, beams, size)
                query = query.view(-1, beams, query.shape[-1])
            (query,) = self._split(query, 1)
            attended = F.scaled_dot_product_attention(query, *key_values, attn_mask=mask)
            merged = self.cross_attended(_merge(attended)).view(rows.shape)
            rows = rows + self.dropout(merged)
        wide = F.relu(self.widen(self.output_norm(rows)))
        output: Tensor = rows + self.dropout(self.narrow(wide))
        return output

    def _split(self, rows: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Split ``(batch, steps, parts * size)`` into ``(batch, heads, steps, head_size)`` each."""
        shape = (*rows.shape[:2], parts, self.num_heads, -1)
        return rows.view(shape).permute(2, 0, 3, 1, 4).unbind(0)


def _merge(attended: Tensor) -> Tensor:
    return attended.transpose(1, 2).flatten(2)


def _sinusoids(steps: int, size: int) -> Tensor:
    """Return positions as sines and cosines (Vaswani et al. 2017, section 3.5)."""
    angles = torch.arange(steps)[:, None] * torch.exp(
        torch.arange(0, size, 2) * (-math.log(10_000.0) / size)
    )
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)

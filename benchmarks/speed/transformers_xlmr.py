"""transformers' XLM-R with random weights, which speed benchmarks run beside ours."""

from __future__ import annotations

import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.m3p import M3P
from polyglance.models.uc2 import UC2
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packed_pairs import PackedRows, Text
from polyglance.nn.packing import Packing


def xlmr(config: EncoderConfig, device: str, *, half: bool = False) -> nn.Module:
    """Build transformers' XLM-R of the same shape, with scaled dot-product attention."""
    model = transformers.XLMRobertaModel(
        transformers.XLMRobertaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_position_embeddings,
            type_vocab_size=config.type_vocab_size,
            attention_probs_dropout_prob=config.attention_dropout,
            hidden_dropout_prob=config.dropout,
            attn_implementation="sdpa",
        ),
        add_pooling_layer=False,
    )
    model = model.to(device).train()
    return model.half() if half else model


class PaddedEncoder(Encoder):
    """Our embeddings, then transformers' XLM-R on the padded batch."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList()
        self.xlmr = xlmr(config, "cpu")

    def contextualise(
        self,
        rows: Tensor,
        packing: Packing,
        *,
        layer: int | None = None,
        output_rows: Tensor | None = None,
    ) -> Tensor:
        """Apply all layers to padded rows; positions and a norm are added once more."""
        del layer
        out = self.xlmr(inputs_embeds=packing.pad(rows), attention_mask=packing.mask.long())
        rows = packing.unpad(out.last_hidden_state)
        return rows if output_rows is None else rows[output_rows]


class _PlainHeads(CrossEncoderModel):
    """Logits are computed in full, and pairs from the last layer of all rows."""

    def encode_pair(self, text: Text, images: PackedRows) -> Tensor:
        pairs = self.join(self.embed_text(text, images), images)
        first = pairs.packing.cu_seqlens[:-1].long()
        return self.encoder.contextualise(pairs.rows, pairs.packing, output_rows=first)

    def word_loss(self, rows: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.word_logits(rows).float(), targets)


class TransformersUC2(_PlainHeads, UC2):
    """UC2 on transformers' XLM-R."""


class TransformersM3P(_PlainHeads, M3P):
    """M3P on transformers' XLM-R."""

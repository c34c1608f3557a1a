"""transformers' XLM-R with random weights, which speed benchmarks run beside ours."""

from __future__ import annotations

from torch import nn
from transformers import XLMRobertaConfig, XLMRobertaModel

from polyglance.nn.encoder import EncoderConfig


def xlmr(config: EncoderConfig, device: str, *, half: bool = False) -> nn.Module:
    """Build transformers' XLM-R of the same shape, with scaled dot-product attention."""
    model = XLMRobertaModel(
        XLMRobertaConfig(
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
    model = model.to(device).eval()
    return model.half() if half else model

from __future__ import annotations

import torch

from polyglance.nn.attention_weights import forward_with_attention, layer_with_attention
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.nn.transformer import TransformerLayer

CONFIG = EncoderConfig(
    vocab_size=30,
    hidden_size=16,
    num_layers=3,
    num_heads=4,
    intermediate_size=32,
    max_position_embeddings=20,
)


def lively() -> Encoder:
    torch.manual_seed(0)
    encoder = Encoder(CONFIG).eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return encoder


@torch.no_grad()
def test_forward_with_attention_equals_forward() -> None:
    encoder, rows = lively(), torch.randn(7, 16)
    out, weights = forward_with_attention(encoder, rows)
    assert torch.allclose(out, encoder.contextualise(rows, Packing.of([7])), atol=1e-5)
    assert len(weights) == 3
    for of_layer in weights:
        assert of_layer.shape == (4, 7, 7)
        assert torch.allclose(of_layer.sum(-1), torch.ones(4, 7), atol=1e-6)
        assert (of_layer >= 0).all()


@torch.no_grad()
def test_weights_times_values_are_the_layers_attention() -> None:
    layer = lively().layers[0]
    assert isinstance(layer, TransformerLayer)
    rows = torch.randn(5, 16)
    out, weights = layer_with_attention(layer, rows)
    _, _, value = layer.project_query_key_value(rows)
    attended = torch.zeros(5, 4, 4)
    for head in range(4):
        for asks in range(5):
            for offers in range(5):
                attended[asks, head] += weights[head, asks, offers] * value[offers, head]
    expected = layer(rows, Packing.of([5]))
    assert torch.allclose(layer.after_attention(rows, attended), expected, atol=1e-5)
    assert torch.allclose(out, expected, atol=1e-5)

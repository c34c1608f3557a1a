"""The modules of `polyglance.nn` as ONNX nodes, with the weights of the compact state.

The structure is taken from the modules and the weights by their names, so that graph and
module cannot disagree.
"""

from __future__ import annotations

import torch.nn.functional as F
from onnx import TensorProto
from torch import nn

from polyglance.export.graph import GraphWriter
from polyglance.nn.pooling import MeanHead, PoolingHead
from polyglance.nn.transformer import TransformerLayer

_FLOAT_INPUT, _EIGHT_BIT_INPUT = 1, 4
"""``MatMulNBits``'s accuracy levels: the precision of its input."""


def linear(graph: GraphWriter, x: str, module: nn.Linear, name: str, *, exact: bool = False) -> str:
    """Add a linear layer of 4-bit weights with a scale per block.

    Its input is rounded to 8 bits, which more than halves the time, unless ``exact``. Weights
    that the state holds as numbers, not as codes, stay so.
    """
    if f"{name}.weight.codes" not in graph.state:
        weight = graph.node("Transpose", graph.float_weight(f"{name}.weight"), perm=[1, 0])
        product = graph.node("MatMul", x, weight)
        return graph.node("Add", product, graph.float_weight(f"{name}.bias"))
    codes = graph.state[f"{name}.weight.codes"]
    scales = graph.node(
        "Reshape", graph.float_weight(f"{name}.weight.scales"), graph.constant([-1], "int64")
    )
    return graph.node(
        "MatMulNBits",
        x,
        graph.weight(f"{name}.weight.codes"),
        scales,
        "",  # zero points: 8 by default
        "",  # no permutation of the columns
        graph.float_weight(f"{name}.bias"),
        domain="com.microsoft",
        K=module.in_features,
        N=module.out_features,
        bits=4,
        block_size=2 * codes.shape[2],
        accuracy_level=_FLOAT_INPUT if exact else _EIGHT_BIT_INPUT,
    )


def layer_weight(graph: GraphWriter, name: str) -> str:
    """Add weights in float32, which may be stored in 8 bits with a scale per output channel."""
    if f"{name}.weight.codes" not in graph.state:
        return graph.float_weight(f"{name}.weight")
    # Not DequantizeLinear, which the runtime would run for every picture: a cast and a product
    # of constants are computed once, at load.
    codes = graph.node("Cast", graph.weight(f"{name}.weight.codes"), to=TensorProto.FLOAT)
    inner = list(range(1, graph.state[f"{name}.weight.codes"].ndim))
    scales = graph.node(
        "Unsqueeze", graph.weight(f"{name}.weight.scales"), graph.constant(inner, "int64")
    )
    return graph.node("Mul", codes, scales)


def layer_norm(graph: GraphWriter, x: str, module: nn.LayerNorm, name: str) -> str:
    """Add a layer norm over the last axis."""
    return graph.node(
        "LayerNormalization",
        x,
        graph.float_weight(f"{name}.weight"),
        graph.float_weight(f"{name}.bias"),
        axis=-1,
        epsilon=module.eps,
    )


def transformer_layer(
    graph: GraphWriter,
    rows: str,
    module: TransformerLayer,
    name: str,
    bias: str | None,
    *,
    first_only: bool = False,
    exact_attention: bool = False,
    exact: bool = False,
) -> str:
    """Add a transformer layer.

    Args:
        graph: The graph.
        rows: (batch, steps, width).
        module: The layer.
        name: Prefix of its weights in the state.
        bias: (batch, 1, 1, steps), added to the attention logits; large and negative at
            padding.
        first_only: Compute only the first row of each sequence.
        exact_attention: Compute queries, keys and values from unrounded rows.
        exact: Round no input of the layer.

    Returns:
        (batch, steps, width), or (batch, 1, width) with ``first_only``.
    """
    projected = linear(
        graph,
        rows,
        module.query_key_value,
        f"{name}.query_key_value",
        exact=exact or exact_attention,
    )
    query, key, value = graph.nodes("Split", projected, outputs=3, axis=-1, num_outputs=3)
    if first_only:
        query, rows = first_row(graph, query), first_row(graph, rows)
    split_heads = graph.constant([0, 0, module.num_heads, module.head_size], "int64")

    def by_head(x: str, order: list[int]) -> str:
        return graph.node("Transpose", graph.node("Reshape", x, split_heads), perm=order)

    query, value = by_head(query, [0, 2, 1, 3]), by_head(value, [0, 2, 1, 3])
    scaled = graph.node("Mul", query, graph.constant(module.head_size**-0.5, "float32"))
    logits = graph.node("MatMul", scaled, by_head(key, [0, 2, 3, 1]))
    if bias is not None:
        logits = graph.node("Add", logits, bias)
    attended = graph.node("MatMul", graph.node("Softmax", logits, axis=-1), value)
    attended = graph.node("Transpose", attended, perm=[0, 2, 1, 3])
    attended = graph.node("Reshape", attended, graph.constant([0, 0, -1], "int64"))
    attended = linear(graph, attended, module.attended, f"{name}.attended", exact=exact)
    rows = layer_norm(
        graph, graph.node("Add", rows, attended), module.attention_norm, f"{name}.attention_norm"
    )
    inner = linear(graph, rows, module.widen, f"{name}.widen", exact=exact)
    inner = graph.node("Relu" if module.activation is F.relu else "Gelu", inner)
    output = linear(graph, inner, module.narrow, f"{name}.narrow", exact=exact)
    return layer_norm(
        graph, graph.node("Add", rows, output), module.output_norm, f"{name}.output_norm"
    )


def pooling(
    graph: GraphWriter,
    rows: str,
    module: PoolingHead | MeanHead,
    name: str,
    *,
    mask: str | None = None,
    bias: str | None = None,
) -> str:
    """Add a pooling head.

    Args:
        graph: The graph.
        rows: (batch, steps, width).
        module: The head.
        name: Prefix of its weights in the state.
        mask: (batch, steps, 1): 1 for a row, 0 for padding; None without padding.
        bias: As for `transformer_layer`.

    Returns:
        Unit vectors (batch, width).
    """
    if isinstance(module, MeanHead):
        pooled = linear(graph, mean(graph, rows, mask), module.linear, f"{name}.linear")
    else:
        last = len(module.layers) - 1
        for number, layer in enumerate(module.layers):
            assert isinstance(layer, TransformerLayer)
            prefix = f"{name}.layers.{number}"
            rows = transformer_layer(graph, rows, layer, prefix, bias, first_only=number == last)
        pooled = graph.node("Squeeze", first_row(graph, rows), graph.constant([1], "int64"))
    return l2_normalize(graph, pooled)


def mean(graph: GraphWriter, rows: str, mask: str | None) -> str:
    """Add the mean of (batch, steps, width) over the steps, without padding."""
    steps = graph.constant([1], "int64")
    if mask is None:
        return graph.node("ReduceMean", rows, steps, keepdims=0)
    total = graph.node("ReduceSum", graph.node("Mul", rows, mask), steps, keepdims=0)
    return graph.node("Div", total, graph.node("ReduceSum", mask, steps, keepdims=0))


def first_row(graph: GraphWriter, rows: str) -> str:
    """Add the first row of each sequence, (batch, 1, width)."""
    zero, one = graph.constant([0], "int64"), graph.constant([1], "int64")
    return graph.node("Slice", rows, zero, one, one)


def l2_normalize(graph: GraphWriter, vectors: str) -> str:
    """Normalise vectors (batch, width) to unit length."""
    length = graph.node("ReduceL2", vectors, graph.constant([1], "int64"), keepdims=1)
    # as in torch's normalize
    safe = graph.node("Max", length, graph.constant(1e-12, "float32"))
    return graph.node("Div", vectors, safe)

"""The ONNX graphs of SMALR: rows of a word table, and pixels, to unit vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from onnx import ModelProto, TensorProto
from torch import Tensor, nn

from polyglance.encoders.model_folder import ImagePreprocessing
from polyglance.export.convolutions import feature_map
from polyglance.export.graph import Array, GraphWriter
from polyglance.export.inputs import IMAGE_OUTPUT, TEXT_OUTPUT, pixels_input, token_inputs
from polyglance.export.layers import l2_normalize, layer_weight
from polyglance.models.smalr import FoldedText, ImageBranch
from polyglance.nn.compression import quantise_8bit
from polyglance.nn.sentence_gru import SentenceGRU

_GRU, _SENTENCE = "sentences.words.gru", "sentences.output"
_HIDDEN, _OUTPUT = "pictures.hidden", "pictures.output"


def text_state(text: FoldedText) -> dict[str, Array]:
    """Return the weights of the text graph: table in 8 bits, sentence branch in float16.

    Together they keep a cosine of 0.9999 with float32. Recurrent weights are applied once
    per word, so that coarser rounding would accumulate.
    """
    state = _to_eight_bits({"words.weight": text.table})
    state |= _to_float16({f"sentences.{n}": v for n, v in text.sentences.state_dict().items()})
    for name in state:
        if name.startswith(f"{_GRU}."):
            state[name] = _onnx_gates(state[name])
    return state


@torch.no_grad()
def image_state(network: nn.Module, branch: ImageBranch) -> dict[str, Array]:
    """Return the weights of the image graph: network in float16, branch in 8 bits.

    The branch's batch norm is folded into the layer before it. The network was not trained
    for 8 bits, in which some photographs' cosine with float32 would drop to 0.998
    (ResNet-50) or 0.959 (EfficientNet-Lite2).
    """
    first, norm, _, _, last = branch.layers
    assert isinstance(first, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(last, nn.Linear)
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scale = norm.weight / torch.sqrt(variance + norm.eps)
    layers = {
        f"{_HIDDEN}.weight": first.weight * scale[:, None],
        f"{_HIDDEN}.bias": (first.bias - mean) * scale + norm.bias,
        f"{_OUTPUT}.weight": last.weight,
        f"{_OUTPUT}.bias": last.bias,
    }
    weights = {n: v for n, v in network.state_dict().items() if not n.startswith("classifier.")}
    halves = _to_float16({f"image_backbone.{n}": v for n, v in weights.items()})
    return halves | _to_eight_bits(layers)


def _to_float16(weights: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: value.half().numpy() for name, value in weights.items()}


def _to_eight_bits(weights: Mapping[str, Tensor]) -> dict[str, Array]:
    """Quantise matrices to 8 bits with a scale per row; biases stay."""
    state: dict[str, Array] = {}
    for name, value in weights.items():
        if value.dim() == 1:
            state[name] = value.numpy()
        else:
            codes, scales = quantise_8bit(value)
            state[f"{name}.codes"], state[f"{name}.scales"] = codes.numpy(), scales.numpy()
    return state


def write_sentence_graph(graph: GraphWriter, branch: SentenceGRU) -> ModelProto:
    """Return the graph from ``input_ids`` and ``attention_mask`` to ``text_embeds``.

    Both inputs are (batch, steps). Ids are rows of the table; padding is on the right. A
    sentence without words gets the vector of the GRU's initial state. ``text_embeds`` are unit
    vectors, (batch, width).
    """
    ids, attention_mask = token_inputs(graph)
    lengths = graph.node("ReduceSum", attention_mask, graph.constant([1], "int64"), keepdims=0)
    last = graph.constant([-1], "int64")
    # Only the rows that are looked up are cast to float32.
    steps = graph.node("Transpose", ids, perm=[1, 0])
    codes = graph.node("Gather", graph.weight("words.weight.codes"), steps)
    scales = graph.node("Gather", graph.weight("words.weight.scales"), steps)
    rows = graph.node(
        "Mul",
        graph.node("Cast", codes, to=TensorProto.FLOAT),
        graph.node("Unsqueeze", scales, last),
    )
    direction = graph.constant([0], "int64")

    def gru_weight(*parts: str) -> str:
        weights = [graph.float_weight(f"{_GRU}.{part}") for part in parts]
        stacked = weights[0] if len(weights) == 1 else graph.node("Concat", *weights, axis=0)
        return graph.node("Unsqueeze", stacked, direction)

    _, states = graph.nodes(
        "GRU",
        rows,
        gru_weight("weight_ih_l0"),
        gru_weight("weight_hh_l0"),
        gru_weight("bias_ih_l0", "bias_hh_l0"),
        graph.node("Cast", lengths, to=TensorProto.INT32),
        outputs=2,
        hidden_size=branch.words.width,
        linear_before_reset=1,  # as torch: the reset gate after the product
    )
    state = graph.node("Squeeze", states, direction)
    vectors = l2_normalize(graph, _linear(graph, state, _SENTENCE))
    graph.output(vectors, TEXT_OUTPUT, "float32", ("batch", branch.output.out_features))
    return graph.build("text")


def write_image_graph(
    graph: GraphWriter, network: nn.Module, width: int, settings: ImagePreprocessing
) -> ModelProto:
    """Return the graph from ``pixel_values`` (batch, RGB, size, size) to ``image_embeds``.

    The branch takes the mean of the feature map, as in training.

    Args:
        graph: Writer over the weights of `image_state`.
        network: The image network.
        width: Dimension of the vectors.
        settings: Size of the pixels.
    """
    cells = feature_map(graph, pixels_input(graph, settings), network, "image_backbone")
    pooled = graph.node("ReduceMean", cells, graph.constant([2, 3], "int64"), keepdims=0)
    hidden = graph.node("Relu", _linear(graph, pooled, _HIDDEN))
    vectors = l2_normalize(graph, _linear(graph, hidden, _OUTPUT))
    graph.output(vectors, IMAGE_OUTPUT, "float32", ("batch", width))
    return graph.build("picture")


def _linear(graph: GraphWriter, x: str, name: str) -> str:
    weight = layer_weight(graph, name)
    return graph.node("Gemm", x, weight, graph.float_weight(f"{name}.bias"), transB=1)


def _onnx_gates(weight: Array) -> Array:
    """Reorder a GRU's gates from torch's reset, update, new to ONNX's update, reset, new."""
    reset, update, new = np.split(weight, 3)
    return np.concatenate([update, reset, new])

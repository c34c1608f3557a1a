"""The graphs of a word model: rows of a table of words, and pixels, to unit vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from onnx import ModelProto, TensorProto
from torch import Tensor, nn

from polyglance.encoders.folder import PictureSettings
from polyglance.export.convolutions import feature_map, pixels_input
from polyglance.export.graph import Array, GraphWriter
from polyglance.export.layers import layer_weight, unit
from polyglance.models.smalr import FoldedText, PictureBranch
from polyglance.nn.compression import eight_bits
from polyglance.nn.sentence_gru import SentenceGRU

_GRU, _SENTENCE = "sentences.words.gru", "sentences.output"
_HIDDEN, _OUTPUT = "pictures.hidden", "pictures.output"


def word_state(text: FoldedText) -> dict[str, Array]:
    """What the text graph stores: the table in 8 bits, the sentence branch in float16.

    Together they keep a cosine of 0.9999 with float32. Recurrent weights are used once
    a word, so that more rounding would add up.
    """
    state = _in_eight_bits({"words.weight": text.table})
    state |= _in_halves({f"sentences.{n}": v for n, v in text.sentences.state_dict().items()})
    for name in state:
        if name.startswith(f"{_GRU}."):
            state[name] = _onnx_gates(state[name])
    return state


@torch.no_grad()
def picture_state(eyes: nn.Module, branch: PictureBranch) -> dict[str, Array]:
    """What the picture graph stores: the network in float16, the branch in 8 bits.

    The branch's batch norm becomes part of the layer before it. In 8 bits the network,
    which was never taught to live with them, would leave a cosine with float32 of only
    0.998 (ResNet-50) or 0.959 (EfficientNet-Lite2) for some photographs.
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
    seen = {n: v for n, v in eyes.state_dict().items() if not n.startswith("classifier.")}
    return _in_halves({f"eyes.{n}": v for n, v in seen.items()}) | _in_eight_bits(layers)


def _in_halves(weights: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: value.half().numpy() for name, value in weights.items()}


def _in_eight_bits(weights: Mapping[str, Tensor]) -> dict[str, Array]:
    """Matrices in 8 bits with a scale for every row, biases as they are."""
    state: dict[str, Array] = {}
    for name, value in weights.items():
        if value.dim() == 1:
            state[name] = value.numpy()
        else:
            codes, scales = eight_bits(value)
            state[f"{name}.codes"], state[f"{name}.scales"] = codes.numpy(), scales.numpy()
    return state


def write_sentence_graph(graph: GraphWriter, branch: SentenceGRU) -> ModelProto:
    """``places`` (batch, steps) and ``lengths`` (batch) to ``vectors`` (batch, width).

    ``places`` are rows of the table. What lies beyond a sentence's length may be any of
    them; a sentence of no word gets the vector of the state at the start.
    """
    places = graph.input("places", "int64", ("batch", "steps"))
    lengths = graph.input("lengths", "int64", ("batch",))
    last = graph.constant([-1], "int64")
    # Only the rows that are asked for are widened.
    steps = graph.node("Transpose", places, perm=[1, 0])
    codes = graph.node("Gather", graph.weight("words.weight.codes"), steps)
    scales = graph.node("Gather", graph.weight("words.weight.scales"), steps)
    rows = graph.node(
        "Mul",
        graph.node("Cast", codes, to=TensorProto.FLOAT),
        graph.node("Unsqueeze", scales, last),
    )
    one_way = graph.constant([0], "int64")

    def gru_weight(*parts: str) -> str:
        found = [graph.float_weight(f"{_GRU}.{part}") for part in parts]
        joined = found[0] if len(found) == 1 else graph.node("Concat", *found, axis=0)
        return graph.node("Unsqueeze", joined, one_way)

    _, states = graph.nodes(
        "GRU",
        rows,
        gru_weight("weight_ih_l0"),
        gru_weight("weight_hh_l0"),
        gru_weight("bias_ih_l0", "bias_hh_l0"),
        graph.node("Cast", lengths, to=TensorProto.INT32),
        outputs=2,
        hidden_size=branch.words.width,
        linear_before_reset=1,  # torch's way: the reset gate comes after the product
    )
    state = graph.node("Squeeze", states, one_way)
    vectors = unit(graph, _linear(graph, state, _SENTENCE))
    graph.output(vectors, "vectors", "float32", ("batch", branch.output.out_features))
    return graph.model("text")


def write_branch_graph(
    graph: GraphWriter, eyes: nn.Module, width: int, settings: PictureSettings
) -> ModelProto:
    """``pixels`` uint8 (batch, size, size, RGB) to ``vectors`` (batch, width).

    The branch sees the mean of the feature map, as it is trained.
    """
    cells = feature_map(graph, pixels_input(graph, settings), eyes, "eyes")
    whole = graph.node("ReduceMean", cells, graph.constant([2, 3], "int64"), keepdims=0)
    hidden = graph.node("Relu", _linear(graph, whole, _HIDDEN))
    vectors = unit(graph, _linear(graph, hidden, _OUTPUT))
    graph.output(vectors, "vectors", "float32", ("batch", width))
    return graph.model("picture")


def _linear(graph: GraphWriter, x: str, name: str) -> str:
    weight = layer_weight(graph, name)
    return graph.node("Gemm", x, weight, graph.float_weight(f"{name}.bias"), transB=1)


def _onnx_gates(weight: Array) -> Array:
    """Torch has a GRU's gates in the order reset, update, new; ONNX update, reset, new."""
    reset, update, new = np.split(weight, 3)
    return np.concatenate([update, reset, new])

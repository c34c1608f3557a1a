"""Run an exported graph with torch, on any of its devices, from the same stored weights.

ONNX Runtime's usual package computes on the CPU. Where torch has an accelerator and ONNX Runtime
none, the nodes of a graph are computed one by one with torch's operators, in float32; constants,
such as weights that are stored in 4 bits, are computed once. `TorchSession` has the few methods of
an ``InferenceSession`` that `OnnxEncoder` uses.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyglance.encoders.graph_reader import DTYPES, GraphNode, GraphValue, read_graph
from polyglance.errors import PolyglanceError

_SMALL = 64
"""Integers of so many elements are shapes, axes and the like, and stay on the CPU."""
_FOUR_BIT_ZERO = 8

Inputs = Sequence[Tensor | None]
Attributes = Mapping[str, Any]
Operator = Callable[[Any, Any], Any]


class TorchSession:
    """Runs a graph on a device of torch."""

    def __init__(self, content: bytes, device: str) -> None:
        """``content`` is an ONNX file; a ValueError says that it is none."""
        graph = read_graph(content)
        self._device = torch.device(device)
        self._inputs, self._outputs = graph.inputs, graph.outputs
        known = {*OPERATORS, "MatMulNBits"}
        unknown = sorted({node.operator for node in graph.nodes} - known)
        if unknown:
            raise PolyglanceError(
                f"torch does not run this model's {', '.join(unknown)} for us: use the device cpu,"
                " or install onnxruntime-gpu"
            )
        self._constants = {name: self._place(array) for name, array in graph.weights.items()}
        self._nodes: list[GraphNode] = []
        with torch.inference_mode():
            for node in graph.nodes:
                if all(name in self._constants or not name for name in node.inputs):
                    self._compute(node, self._constants)
                else:
                    self._nodes.append(self._unpacked(node))
        used = {name for node in self._nodes for name in node.inputs}
        used |= {value.name for value in graph.outputs}
        self._constants = {name: v for name, v in self._constants.items() if name in used}

    def get_inputs(self) -> tuple[GraphValue, ...]:
        """Return the names and shapes of inputs."""
        return self._inputs

    def get_outputs(self) -> tuple[GraphValue, ...]:
        """Return the names and shapes of outputs."""
        return self._outputs

    @torch.inference_mode()
    def run(self, _: None, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Compute all outputs."""
        values = dict(self._constants)
        for name, array in inputs.items():
            values[name] = torch.tensor(array, device=self._device)
        for node in self._nodes:
            self._compute(node, values)
        return [values[value.name].cpu().numpy() for value in self._outputs]

    def _compute(self, node: GraphNode, values: dict[str, Tensor]) -> None:
        inputs = _together([values[name] if name else None for name in node.inputs])
        made = OPERATORS[node.operator](inputs, node.attributes)
        outputs = [made] if isinstance(made, Tensor) else made
        values.update(zip(node.outputs, outputs, strict=False))

    def _unpacked(self, node: GraphNode) -> GraphNode:
        """Return a product with weights of 4 bits as one with weights in float32."""
        if node.operator != "MatMulNBits":
            return node
        x, codes, scales, *_ = node.inputs
        bias = node.inputs[5] if len(node.inputs) > 5 else ""
        weight = f"{codes}/float32"
        self._constants[weight] = _four_bit_weight(
            self._constants[codes], self._constants[scales], node.attributes
        )
        return GraphNode("Gemm", (x, weight, bias), node.outputs, {"transB": 1})

    def _place(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(np.array(array, array.dtype.newbyteorder("=")))
        is_shape = not tensor.is_floating_point() and tensor.numel() <= _SMALL
        return tensor if is_shape else tensor.to(self._device)


def _together(inputs: list[Tensor | None]) -> list[Tensor | None]:
    """Move tensors from the CPU to the device of the others."""
    devices = {tensor.device for tensor in inputs if tensor is not None} - {torch.device("cpu")}
    if not devices:
        return inputs
    [device] = devices
    return [None if tensor is None else tensor.to(device) for tensor in inputs]


def _elementwise(function: Callable[..., Tensor]) -> Operator:
    return lambda inputs, _: function(*inputs)


def _integers(tensor: Tensor) -> list[int]:
    return [int(value) for value in tensor.flatten().tolist()]


def _cast(inputs: Inputs, attributes: Attributes) -> Tensor:
    dtype: torch.dtype = getattr(torch, DTYPES[attributes["to"]])
    return _given(inputs[0]).to(dtype)


def _gather(inputs: Inputs, attributes: Attributes) -> Tensor:
    data, indices = _given(inputs[0]), _given(inputs[1])
    axis = attributes.get("axis", 0) % data.dim()
    flat = torch.index_select(data, axis, indices.flatten().long() % data.shape[axis])
    return flat.reshape([*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]])


def _range(inputs: Inputs, _: Attributes) -> Tensor:
    start, end, step = (_given(tensor).item() for tensor in inputs)
    return torch.arange(start, end, step, device=_given(inputs[0]).device)


def _unsqueeze(inputs: Inputs, _: Attributes) -> Tensor:
    data, axes = _given(inputs[0]), _integers(_given(inputs[1]))
    for axis in sorted(axis % (data.dim() + len(axes)) for axis in axes):
        data = data.unsqueeze(axis)
    return data


def _squeeze(inputs: Inputs, _: Attributes) -> Tensor:
    return _given(inputs[0]).squeeze(tuple(_integers(_given(inputs[1]))))


def _reshape(inputs: Inputs, _: Attributes) -> Tensor:
    data, shape = _given(inputs[0]), _integers(_given(inputs[1]))
    return data.reshape([data.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def _reduce(function: Callable[..., Tensor]) -> Operator:
    def reduced(inputs: Inputs, attributes: Attributes) -> Tensor:
        axes = _integers(_given(inputs[1]))
        return function(_given(inputs[0]), dim=axes, keepdim=bool(attributes.get("keepdims", 1)))

    return reduced


def _layer_norm(inputs: Inputs, attributes: Attributes) -> Tensor:
    x, weight, *bias = inputs
    x, eps = _given(x), attributes.get("epsilon", 1e-5)
    shape = list(x.shape[attributes.get("axis", -1) :])
    return F.layer_norm(x, shape, weight, bias[0] if bias else None, eps)


def _four_bit_weight(codes: Tensor, scales: Tensor, attributes: Attributes) -> Tensor:
    """Return the weights (N, K) of ``MatMulNBits``: two in a byte, with a scale for each block."""
    width, outputs = attributes["K"], attributes["N"]
    halves = torch.stack([codes & 15, codes >> 4], dim=-1).reshape(outputs, codes.shape[1], -1)
    weight = (halves.float() - _FOUR_BIT_ZERO) * scales.reshape(outputs, -1, 1)
    return weight.reshape(outputs, -1)[:, :width].contiguous()


def _split(inputs: Inputs, attributes: Attributes) -> Sequence[Tensor]:
    data, axis = _given(inputs[0]), attributes.get("axis", 0)
    if len(inputs) > 1:
        return torch.split_with_sizes(data, _integers(_given(inputs[1])), axis)
    return data.chunk(attributes["num_outputs"], axis)


def _slice(inputs: Inputs, _: Attributes) -> Tensor:
    data, starts, ends = (_given(tensor) for tensor in inputs[:3])
    others = [_integers(tensor) for tensor in inputs[3:] if tensor is not None]
    axes = others[0] if others else list(range(len(starts)))
    steps = others[1] if len(others) > 1 else [1] * len(axes)
    for start, end, axis, step in zip(_integers(starts), _integers(ends), axes, steps, strict=True):
        index = [slice(None)] * data.dim()
        index[axis] = slice(start, end, step)
        data = data[tuple(index)]
    return data


def _convolution(inputs: Inputs, attributes: Attributes) -> Tensor:
    x, weight = _given(inputs[0]), _given(inputs[1])
    bias = inputs[2] if len(inputs) > 2 else None
    strides = attributes.get("strides", [1, 1])
    if attributes.get("auto_pad") == "SAME_UPPER":
        pads = []
        for axis in (3, 2):  # of the last axis first
            size, kernel, stride = x.shape[axis], weight.shape[axis], strides[axis - 2]
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
    else:
        top, left, bottom, right = attributes.get("pads", [0] * 4)
        pads = [left, right, top, bottom]
    x = F.pad(x, pads) if any(pads) else x
    return F.conv2d(x, weight, bias, stride=strides, groups=attributes.get("group", 1))


def _max_pool(inputs: Inputs, attributes: Attributes) -> Tensor:
    pads, kernel = attributes.get("pads", [0] * 4), attributes["kernel_shape"]
    return F.max_pool2d(_given(inputs[0]), kernel, attributes["strides"], pads[:2])


def _clip(inputs: Inputs, _: Attributes) -> Tensor:
    low, high = [*inputs[1:], None, None][:2]
    return torch.clamp(_given(inputs[0]), min=low, max=high)


def _gemm(inputs: Inputs, attributes: Attributes) -> Tensor:
    x, weight = _given(inputs[0]), _given(inputs[1])
    return F.linear(x, weight if attributes.get("transB") else weight.T, inputs[2])


def _filled(inputs: Inputs, attributes: Attributes) -> Tensor:
    value = attributes.get("value")
    shape = _integers(_given(inputs[0]))
    if value is None:
        return torch.zeros(shape)
    return torch.full(shape, value.flatten()[0].item(), dtype=torch.from_numpy(value.copy()).dtype)


def _expand(inputs: Inputs, _: Attributes) -> Tensor:
    data, shape = _given(inputs[0]), _integers(_given(inputs[1]))
    sizes = [1] * (data.dim() - len(shape)) + shape  # a size of 1 keeps that of the data
    own = [1] * (len(sizes) - data.dim()) + list(data.shape)
    return data.expand([max(pair) for pair in zip(own, sizes, strict=True)])


def _divide(one: Tensor, other: Tensor) -> Tensor:
    is_float = one.is_floating_point()
    return torch.div(one, other, rounding_mode=None if is_float else "trunc")


def _given(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError("an input is missing")
    return tensor


OPERATORS: dict[str, Operator] = {
    "Add": _elementwise(operator.add),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda inputs, attributes: torch.cat(list(inputs), attributes["axis"]),
    "Constant": lambda _, attributes: torch.from_numpy(attributes["value"].copy()),
    "ConstantOfShape": _filled,
    "Conv": _convolution,
    "Div": _elementwise(_divide),
    "Equal": _elementwise(operator.eq),
    "Expand": _expand,
    "Gather": _gather,
    "Gelu": lambda inputs, a: F.gelu(inputs[0], approximate=a.get("approximate", "none")),
    "Gemm": _gemm,
    "Identity": lambda inputs, _: inputs[0],
    "LayerNormalization": _layer_norm,
    "Less": _elementwise(operator.lt),
    "MatMul": _elementwise(operator.matmul),
    "Max": _elementwise(torch.maximum),
    "MaxPool": _max_pool,
    "Min": _elementwise(torch.minimum),
    "Mul": _elementwise(operator.mul),
    "Pow": _elementwise(operator.pow),
    "Range": _range,
    "ReduceL2": _reduce(torch.linalg.vector_norm),
    "ReduceMean": _reduce(torch.mean),
    "ReduceSum": _reduce(torch.sum),
    "Relu": _elementwise(torch.relu),
    "Reshape": _reshape,
    "Shape": lambda inputs, _: torch.tensor(inputs[0].shape),
    "Slice": _slice,
    "Softmax": lambda inputs, attributes: inputs[0].softmax(attributes.get("axis", -1)),
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _elementwise(operator.sub),
    "Tanh": _elementwise(torch.tanh),
    "Transpose": lambda inputs, attributes: inputs[0].permute(attributes["perm"]),
    "Unsqueeze": _unsqueeze,
    "Where": _elementwise(torch.where),
}
"""Torch's equivalents of ONNX operators, from inputs and attributes."""

"""Read an ONNX graph into Python, without the package ``onnx``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.wire_format import Value, as_message, read_fields, read_integer

_GRAPH, _NODES, _INITIALIZERS, _INPUTS, _OUTPUTS = 7, 1, 5, 11, 12
_NODE_INPUTS, _NODE_OUTPUTS, _NODE_KIND, _NODE_ATTRIBUTES = 1, 2, 4, 5
_NAME, _FLOAT, _INTEGER, _TEXT, _TENSOR, _FLOATS, _INTEGERS = 1, 2, 3, 4, 5, 7, 8
_DIMENSIONS, _TYPE, _FLOAT_DATA, _INT32_DATA, _INT64_DATA, _TENSOR_NAME, _RAW = 1, 2, 4, 5, 7, 8, 9
DTYPES: dict[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64",
}  # fmt: skip
"""Types of numbers by their ONNX code."""


@dataclass(frozen=True)
class GraphNode:
    """An operator with its inputs and outputs; an empty name omits an input."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class GraphValue:
    """An input or output; a dynamic dimension is 0."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Graph:
    """A parsed ONNX graph."""

    nodes: tuple[GraphNode, ...]
    weights: dict[str, NDArray[Any]]
    inputs: tuple[GraphValue, ...]
    outputs: tuple[GraphValue, ...]


def read_graph(content: bytes) -> Graph:
    """Parse the content of an ONNX file; raise a ValueError if it is none."""
    try:
        [graph] = (
            as_message(value)
            for number, value, _ in read_fields(memoryview(content))
            if number == _GRAPH
        )
        parts: dict[int, list[memoryview]] = {}
        for number, value, _ in read_fields(graph):
            if isinstance(value, memoryview):
                parts.setdefault(number, []).append(value)
        return Graph(
            tuple(_node(part) for part in parts.get(_NODES, ())),
            dict(_tensor(part) for part in parts.get(_INITIALIZERS, ())),
            tuple(_value(part) for part in parts.get(_INPUTS, ())),
            tuple(_value(part) for part in parts.get(_OUTPUTS, ())),
        )
    except (LookupError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"this is no ONNX graph ({error})") from error


def _node(message: memoryview) -> GraphNode:
    inputs, outputs, kind, attributes = [], [], "", {}
    for number, value, _ in read_fields(message):
        if number == _NODE_INPUTS:
            inputs.append(_text(value))
        elif number == _NODE_OUTPUTS:
            outputs.append(_text(value))
        elif number == _NODE_KIND:
            kind = _text(value)
        elif number == _NODE_ATTRIBUTES:
            name, content = _attribute(as_message(value))
            attributes[name] = content
    return GraphNode(kind, tuple(inputs), tuple(outputs), attributes)


def _attribute(message: memoryview) -> tuple[str, Any]:
    name, content = "", None
    integers: list[int] = []
    floats: list[float] = []
    for number, value, _ in read_fields(message):
        if number == _NAME:
            name = _text(value)
        elif number == _FLOAT:
            [content] = struct.unpack("<f", as_message(value))
        elif number == _INTEGER:
            [content] = _integers(value)
        elif number == _TEXT:
            content = _text(value)
        elif number == _TENSOR:
            content = _tensor(as_message(value))[1]
        elif number == _FLOATS:
            floats += np.frombuffer(as_message(value), "<f4").tolist()
        elif number == _INTEGERS:
            integers += _integers(value)
    return name, integers or floats or content


def _tensor(message: memoryview) -> tuple[str, NDArray[Any]]:
    name, dtype, shape = "", "float32", list[int]()
    raw: NDArray[Any] | None = None
    listed: list[Any] = []
    for number, value, _ in read_fields(message):
        if number == _DIMENSIONS:
            shape += _integers(value)
        elif number == _TYPE:
            [code] = _integers(value)
            dtype = DTYPES[code]
        elif number == _TENSOR_NAME:
            name = _text(value)
        elif number == _RAW:
            raw = np.frombuffer(as_message(value), np.uint8)
        elif number == _FLOAT_DATA:
            listed += np.frombuffer(as_message(value), "<f4").tolist()
        elif number in (_INT32_DATA, _INT64_DATA):
            listed += _integers(value)
    if raw is not None:
        return name, raw.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)
    return name, np.array(listed, dtype).reshape(shape)


def _value(message: memoryview) -> GraphValue:
    """Read ``ValueInfoProto``: name, then type, tensor type, shape and dimensions."""
    name, shape = "", list[int]()
    for number, value, _ in read_fields(message):
        if number == 1:
            name = _text(value)
        elif number == 2:
            for dimension in _descend(as_message(value), 1, 2, 1):
                sizes = [part for field, part, _ in read_fields(dimension) if field == 1]
                shape.append(sizes[0] if sizes and isinstance(sizes[0], int) else 0)
    return GraphValue(name, tuple(shape))


def _descend(message: memoryview, *numbers: int) -> list[memoryview]:
    """Return the messages that lie in each other under these field numbers."""
    found = [message]
    for wanted in numbers:
        found = [
            as_message(value)
            for outer in found
            for number, value, _ in read_fields(outer)
            if number == wanted and isinstance(value, memoryview)
        ]
    return found


def _integers(value: Value) -> list[int]:
    """Return one integer, or those of a packed list; negative ones are in two's complement."""
    if isinstance(value, int):
        return [value - 2**64 if value >= 2**63 else value]
    integers, at = list[int](), 0
    while at < len(value):
        number, at = read_integer(value, at)
        integers += _integers(number)
    return integers


def _text(value: Value) -> str:
    return bytes(as_message(value)).decode()

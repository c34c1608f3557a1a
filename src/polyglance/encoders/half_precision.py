"""Run a graph in float32 where the processor does not compute in float16.

Models are exported with their large depthwise convolutions in float16, for which ONNX Runtime has a
fast kernel on ARM (`polyglance.export.convolutions`). On other processors it computes them in
float32 all the same, and converts values to float16 and back around each: that takes half of the
time. Here the conversions are taken out of the graph before it is loaded. The search installation
has no package that edits graphs, so the few messages are changed as they lie in the file
(protobuf's wire format, and the field numbers of onnx.proto).
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator

_FLOAT, _FLOAT16 = 1, 10
_GRAPH, _NODES, _INITIALIZERS = 7, 1, 5
_NODE_INPUTS, _NODE_KIND, _NODE_ATTRIBUTES = 1, 4, 5
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER = 1, 3
_TENSOR_DIMENSIONS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_CONTENT = 1, 2, 8, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_SCALAR = 200
"""Bytes of a tensor that is one number, with its name."""

Value = int | memoryview
Field = tuple[int, Value, memoryview]
"""Number, value and all bytes of a field."""


def computes_float16() -> bool:
    """Return whether ONNX Runtime computes convolutions in float16 on this machine."""
    return platform.machine().lower() in ("aarch64", "arm64")


def without_float16(model: bytes) -> bytes:
    """Return an ONNX model whose conversions to float16 are conversions to float32.

    Bounds of ``Clip`` in float16 become float32, too; other float16 weights stay as they are. A
    file that is no ONNX model is returned as it is, for the runtime to refuse.
    """
    try:
        parts = list(_fields(memoryview(model)))
        [graph] = (_content(value) for number, value, _ in parts if number == _GRAPH)
        converted = _convert_graph(graph)
    except (ValueError, LookupError, struct.error):
        return model
    return b"".join(
        _message(_GRAPH, converted) if number == _GRAPH else whole for number, _, whole in parts
    )


def _convert_graph(graph: memoryview) -> bytes:
    bounds = set[bytes]()
    converted: list[bytes | memoryview] = []
    scalars: list[tuple[int, memoryview]] = []
    for number, value, whole in _fields(graph):
        converted.append(whole)
        if number == _NODES:
            kind, inputs = _node(value)
            if kind == b"Cast":
                converted[-1] = _message(number, _convert_cast(_content(value)))
            elif kind == b"Clip":
                bounds.update(inputs[1:])
        elif number == _INITIALIZERS and len(whole) < _MAX_SCALAR:
            scalars.append((len(converted) - 1, _content(value)))
    for place, value in scalars:
        tensor = _convert_scalar(value, bounds)
        if tensor is not None:
            converted[place] = _message(_INITIALIZERS, tensor)
    return b"".join(converted)


def _node(value: Value) -> tuple[bytes, list[bytes]]:
    """Return a node's operator and the names of its inputs."""
    kind, inputs = b"", []
    for number, part, _ in _fields(_content(value)):
        if number == _NODE_KIND:
            kind = bytes(_content(part))
        elif number == _NODE_INPUTS:
            inputs.append(bytes(_content(part)))
    return kind, inputs


def _convert_cast(node: memoryview) -> bytes:
    parts: list[bytes | memoryview] = []
    for number, value, whole in _fields(node):
        if number == _NODE_ATTRIBUTES:
            attribute = {part[0]: part[1] for part in _fields(_content(value))}
            name = bytes(_content(attribute[_ATTRIBUTE_NAME]))
            if name == b"to" and attribute.get(_ATTRIBUTE_INTEGER) == _FLOAT16:
                fields = (
                    _integer(field, _FLOAT) if field == _ATTRIBUTE_INTEGER else content
                    for field, _, content in _fields(_content(value))
                )
                parts.append(_message(number, b"".join(fields)))
                continue
        parts.append(whole)
    return b"".join(parts)


def _convert_scalar(tensor: memoryview, names: set[bytes]) -> bytes | None:
    """Return a float16 number as float32 if it has one of these names, else None."""
    found = {number: value for number, value, _ in _fields(tensor)}
    if found.get(_TENSOR_TYPE) != _FLOAT16 or _TENSOR_CONTENT not in found:
        return None
    name, content = bytes(_content(found[_TENSOR_NAME])), _content(found[_TENSOR_CONTENT])
    if name not in names or len(content) != 2:
        return None
    [value] = struct.unpack("<e", content)
    kept = [whole for number, _, whole in _fields(tensor) if number == _TENSOR_DIMENSIONS]
    number = _message(_TENSOR_CONTENT, struct.pack("<f", value))
    named = _message(_TENSOR_NAME, name)
    return b"".join([*kept, _integer(_TENSOR_TYPE, _FLOAT), named, number])


def _content(value: Value) -> memoryview:
    if not isinstance(value, memoryview):
        raise ValueError("a message was expected")
    return value


def _fields(message: memoryview) -> Iterator[Field]:
    at = 0
    while at < len(message):
        start = at
        key, at = _read_integer(message, at)
        kind = key & 7
        value: Value
        if kind == _VARINT:
            value, at = _read_integer(message, at)
        else:
            if kind == _BYTES:
                length, at = _read_integer(message, at)
            elif kind in (_FIXED32, _FIXED64):
                length = 4 if kind == _FIXED32 else 8
            else:
                raise ValueError(f"no field has the kind {kind}")
            if at + length > len(message):
                raise ValueError("a field ends after the message")
            value, at = message[at : at + length], at + length
        yield key >> 3, value, message[start:at]


def _read_integer(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("an integer is too long")


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)

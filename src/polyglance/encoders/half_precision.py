"""Run a graph in float32 where the processor does not compute in float16.

Models are exported with their convolutions in float16, for which ONNX Runtime has fast kernels on
ARM (`polyglance.export.convolutions`). On other processors it computes them in float32 all the
same, and converts values to float16 and back around each, which takes time. Here the
conversions are taken out of the graph before it is loaded. The search installation has no package
that edits graphs, so the few messages are changed as they lie in the file (protobuf's wire format,
and the field numbers of onnx.proto).
"""

from __future__ import annotations

import platform
import struct

from polyglance.encoders.wire_format import (
    Value,
    as_message,
    read_fields,
    write_integer,
    write_message,
)

_FLOAT, _FLOAT16 = 1, 10
_GRAPH, _NODES, _INITIALIZERS = 7, 1, 5
_NODE_INPUTS, _NODE_KIND, _NODE_ATTRIBUTES = 1, 4, 5
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER = 1, 3
_TENSOR_DIMENSIONS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_CONTENT = 1, 2, 8, 9
_MAX_SCALAR = 200
"""Bytes of a tensor that is one number, with its name."""


def computes_float16() -> bool:
    """Return whether ONNX Runtime computes convolutions in float16 on this machine."""
    return platform.machine().lower() in ("aarch64", "arm64")


def without_float16(model: bytes) -> bytes:
    """Return an ONNX model whose conversions to float16 are conversions to float32.

    Bounds of ``Clip`` in float16 become float32, too; other float16 weights stay as they are. A
    file that is no ONNX model is returned as it is, for the runtime to refuse.
    """
    try:
        parts = list(read_fields(memoryview(model)))
        [graph] = (as_message(value) for number, value, _ in parts if number == _GRAPH)
        converted = _convert_graph(graph)
    except (ValueError, LookupError, struct.error):
        return model
    return b"".join(
        write_message(_GRAPH, converted) if number == _GRAPH else whole
        for number, _, whole in parts
    )


def _convert_graph(graph: memoryview) -> bytes:
    bounds = set[bytes]()
    converted: list[bytes | memoryview] = []
    scalars: list[tuple[int, memoryview]] = []
    for number, value, whole in read_fields(graph):
        converted.append(whole)
        if number == _NODES:
            kind, inputs = _node(value)
            if kind == b"Cast":
                converted[-1] = write_message(number, _convert_cast(as_message(value)))
            elif kind == b"Clip":
                bounds.update(inputs[1:])
        elif number == _INITIALIZERS and len(whole) < _MAX_SCALAR:
            scalars.append((len(converted) - 1, as_message(value)))
    for place, value in scalars:
        tensor = _convert_scalar(value, bounds)
        if tensor is not None:
            converted[place] = write_message(_INITIALIZERS, tensor)
    return b"".join(converted)


def _node(value: Value) -> tuple[bytes, list[bytes]]:
    """Return a node's operator and the names of its inputs."""
    kind, inputs = b"", []
    for number, part, _ in read_fields(as_message(value)):
        if number == _NODE_KIND:
            kind = bytes(as_message(part))
        elif number == _NODE_INPUTS:
            inputs.append(bytes(as_message(part)))
    return kind, inputs


def _convert_cast(node: memoryview) -> bytes:
    parts: list[bytes | memoryview] = []
    for number, value, whole in read_fields(node):
        if number == _NODE_ATTRIBUTES:
            attribute = {part[0]: part[1] for part in read_fields(as_message(value))}
            name = bytes(as_message(attribute[_ATTRIBUTE_NAME]))
            if name == b"to" and attribute.get(_ATTRIBUTE_INTEGER) == _FLOAT16:
                fields = (
                    write_integer(field, _FLOAT) if field == _ATTRIBUTE_INTEGER else content
                    for field, _, content in read_fields(as_message(value))
                )
                parts.append(write_message(number, b"".join(fields)))
                continue
        parts.append(whole)
    return b"".join(parts)


def _convert_scalar(tensor: memoryview, names: set[bytes]) -> bytes | None:
    """Return a float16 number as float32 if it has one of these names, else None."""
    found = {number: value for number, value, _ in read_fields(tensor)}
    if found.get(_TENSOR_TYPE) != _FLOAT16 or _TENSOR_CONTENT not in found:
        return None
    name, content = bytes(as_message(found[_TENSOR_NAME])), as_message(found[_TENSOR_CONTENT])
    if name not in names or len(content) != 2:
        return None
    [value] = struct.unpack("<e", content)
    kept = [whole for number, _, whole in read_fields(tensor) if number == _TENSOR_DIMENSIONS]
    number = write_message(_TENSOR_CONTENT, struct.pack("<f", value))
    named = write_message(_TENSOR_NAME, name)
    return b"".join([*kept, write_integer(_TENSOR_TYPE, _FLOAT), named, number])

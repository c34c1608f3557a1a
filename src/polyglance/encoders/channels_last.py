"""Let convolutions in float16 read and write images with their channels last.

ONNX Runtime's kernels in float16 take channels last. Its own optimiser converts most convolutions
to that, but none with groups, and transposes images before and after each of these: a quarter of
the time of an EfficientNet, for the same numbers. Here whole networks are converted before they
are loaded, with one transposition before the first convolution and one after the last. The file
stays standard ONNX.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from polyglance.encoders.wire_format import (
    as_message,
    read_fields,
    write_float,
    write_integer,
    write_message,
)

_GRAPH, _OPSETS, _OPSET_DOMAIN, _OPSET_VERSION = 7, 8, 1, 2
_NODES, _INITIALIZERS, _OUTPUTS, _VALUES = 1, 5, 12, 13
_NODE_INPUTS, _NODE_OUTPUTS, _NODE_KIND, _NODE_ATTRIBUTES, _NODE_DOMAIN = 1, 2, 4, 5, 7
_NAME, _INTEGER, _TEXT, _FLOATS, _INTEGERS, _ATTRIBUTE_TYPE = 1, 3, 4, 7, 8, 20
_TEXT_TYPE, _FLOATS_TYPE, _INTEGERS_TYPE = 3, 6, 7
_TENSOR_TYPE, _TENSOR_NAME, _TENSOR_CONTENT = 2, 8, 9
_FLOAT16 = 10
_NO_TEXT = memoryview(b"")
_DOMAIN = b"com.microsoft"
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_ELEMENTWISE = {b"Add", b"Clip"}
"""Operators that compute the same in any order of dimensions, if all their images have the same."""


@dataclass(frozen=True, eq=False)
class _Node:
    kind: bytes
    inputs: list[bytes]
    outputs: list[bytes]
    attributes: list[bytes]
    domain: bytes

    @classmethod
    def read(cls, message: memoryview) -> _Node:
        parts: dict[int, list[bytes]] = {}
        for number, value, _ in read_fields(message):
            if isinstance(value, memoryview):
                parts.setdefault(number, []).append(bytes(value))
        [kind] = parts[_NODE_KIND]
        inputs, outputs = parts.get(_NODE_INPUTS, []), parts.get(_NODE_OUTPUTS, [])
        [domain] = parts.get(_NODE_DOMAIN, [b""])
        return cls(kind, inputs, outputs, parts.get(_NODE_ATTRIBUTES, []), domain)

    def write(self) -> bytes:
        fields = [(_NODE_INPUTS, name) for name in self.inputs]
        fields += [(_NODE_OUTPUTS, name) for name in self.outputs]
        fields += [(_NODE_KIND, self.kind), *((_NODE_ATTRIBUTES, one) for one in self.attributes)]
        fields += [(_NODE_DOMAIN, self.domain)]
        return b"".join(write_message(number, content) for number, content in fields)

    @property
    def casts_to_float16(self) -> bool:
        if self.kind != b"Cast":
            return False
        attributes = (dict(_pairs(memoryview(one))) for one in self.attributes)
        return any(one.get(_INTEGER) == _FLOAT16 for one in attributes)


def channels_last(model: bytes) -> bytes:
    """Return an ONNX model whose convolutions in float16 have their channels last.

    One without such convolutions is returned as it is, as is a file that is no ONNX model, for the
    runtime to refuse.
    """
    try:
        parts = list(read_fields(memoryview(model)))
        [graph] = (as_message(value) for number, value, _ in parts if number == _GRAPH)
        converted = _convert(graph)
        opsets = [as_message(value) for number, value, _ in parts if number == _OPSETS]
        domains = {
            bytes(as_message(dict(_pairs(opset)).get(_OPSET_DOMAIN, _NO_TEXT))) for opset in opsets
        }
    except (ValueError, LookupError, struct.error):
        return model
    if converted is None:
        return model
    content = [
        write_message(_GRAPH, converted) if number == _GRAPH else whole
        for number, _, whole in parts
    ]
    if _DOMAIN not in domains:
        version = write_integer(_OPSET_VERSION, 1)
        content.append(write_message(_OPSETS, write_message(_OPSET_DOMAIN, _DOMAIN) + version))
    return b"".join(content)


def _convert(graph: memoryview) -> bytes | None:
    """Return the graph in the other order, or None if it has no convolution in float16."""
    fields = list(read_fields(graph))
    nodes = [_Node.read(as_message(value)) for number, value, _ in fields if number == _NODES]
    scalars = dict(
        filter(None, (_scalar(as_message(v)) for number, v, _ in fields if number == _INITIALIZERS))
    )
    names = {
        bytes(as_message(value))
        for number, message, _ in fields
        if number == _OUTPUTS
        for field, value, _ in read_fields(as_message(message))
        if field == _NAME
    }
    order = _Order(nodes, scalars, names)
    converted = order.convert()
    if not order.convolutions:
        return None
    # Shapes that the graph states of inner values are those of the other order.
    others = (whole for number, _, whole in fields if number not in (_NODES, _VALUES))
    return b"".join([*(write_message(_NODES, node.write()) for node in converted), *others])


class _Order:
    """Converts the nodes of a graph, in their order."""

    def __init__(
        self, nodes: Sequence[_Node], scalars: dict[bytes, float], outputs: set[bytes]
    ) -> None:
        self.nodes, self.scalars, self.outputs = nodes, scalars, outputs
        self.uses = Counter(name for node in nodes for name in node.inputs)
        self.clips = {node.inputs[0]: node for node in nodes if node.kind == b"Clip"}
        self.convolved = {node.inputs[0] for node in nodes if node.kind == b"Conv"}
        self.last: dict[bytes, bytes] = {}
        """The names of values that have their channels last, by those that they had before."""
        self.first: dict[bytes, bytes] = {}
        """The same for values that other nodes take, with their channels first again."""
        self.convolutions = 0

    def convert(self) -> list[_Node]:
        converted: list[_Node] = []
        fused = set[int]()
        for node in self.nodes:
            if id(node) in fused:
                continue
            if node.kind == b"Conv" and node.inputs[0] in self.last:
                clip = self._clip_after(node)
                if clip is not None:
                    fused.add(id(clip))
                converted.append(self._convolution(node, clip))
            elif node.kind in _ELEMENTWISE and self._all_last(node):
                converted.append(_renamed(node, self.last))
                self._made(node.outputs[0])
            else:
                converted += self._back(node)
                converted.append(_renamed(node, self.first))
                if node.casts_to_float16 and node.outputs[0] in self.convolved:
                    [name] = node.outputs
                    self.last[name], self.first[name] = name + b"/channels_last", name
                    converted.append(_transpose(name, self.last[name], _TO_LAST))
        return converted

    def _convolution(self, node: _Node, clip: _Node | None) -> _Node:
        self.convolutions += 1
        attributes, [output] = list(node.attributes), node.outputs
        if clip is not None:
            [output] = clip.outputs
            bounds = [self.scalars[name] for name in clip.inputs[1:]]
            attributes += [_text(b"activation", b"Clip"), _floats(b"activation_params", bounds)]
        self._made(output)
        inputs = [self.last[node.inputs[0]], *node.inputs[1:]]
        return _Node(b"NhwcFusedConv", inputs, [output], attributes, _DOMAIN)

    def _clip_after(self, node: _Node) -> _Node | None:
        """Return the Clip that alone takes a node's output and has two bounds, or None."""
        [output] = node.outputs
        clip = self.clips.get(output)
        if clip is None or self.uses[output] != 1 or output in self.outputs:
            return None
        bounds = clip.inputs[1:]
        return clip if len(bounds) == 2 and self.scalars.keys() >= set(bounds) else None

    def _all_last(self, node: _Node) -> bool:
        images = node.inputs[:1] if node.kind == b"Clip" else node.inputs
        return all(name in self.last for name in images)

    def _made(self, name: bytes) -> None:
        if name in self.outputs:
            raise ValueError("an output would have its channels last")
        self.last[name] = name

    def _back(self, node: _Node) -> list[_Node]:
        """Return the nodes that give a node its inputs with channels first."""
        added = []
        for name in dict.fromkeys(node.inputs):
            if name in self.last and name not in self.first:
                self.first[name] = name + b"/channels_first"
                added.append(_transpose(self.last[name], self.first[name], _TO_FIRST))
        return added


def _renamed(node: _Node, names: dict[bytes, bytes]) -> _Node:
    inputs = [names.get(name, name) for name in node.inputs]
    return _Node(node.kind, inputs, node.outputs, node.attributes, node.domain)


def _transpose(source: bytes, target: bytes, order: Sequence[int]) -> _Node:
    content = write_message(_NAME, b"perm")
    content += b"".join(write_integer(_INTEGERS, axis) for axis in order)
    content += write_integer(_ATTRIBUTE_TYPE, _INTEGERS_TYPE)
    return _Node(b"Transpose", [source], [target], [content], b"")


def _text(name: bytes, text: bytes) -> bytes:
    content = write_message(_NAME, name) + write_message(_TEXT, text)
    return content + write_integer(_ATTRIBUTE_TYPE, _TEXT_TYPE)


def _floats(name: bytes, values: Sequence[float]) -> bytes:
    content = write_message(_NAME, name)
    content += b"".join(write_float(_FLOATS, value) for value in values)
    return content + write_integer(_ATTRIBUTE_TYPE, _FLOATS_TYPE)


def _scalar(tensor: memoryview) -> tuple[bytes, float] | None:
    """Return the name and value of a tensor that is one float16 number, else None."""
    found = dict(_pairs(tensor))
    content = found.get(_TENSOR_CONTENT)
    if found.get(_TENSOR_TYPE) != _FLOAT16 or content is None or len(as_message(content)) != 2:
        return None
    [value] = struct.unpack("<e", as_message(content))
    return bytes(as_message(found[_TENSOR_NAME])), value


def _pairs(message: memoryview) -> list[tuple[int, int | memoryview]]:
    """Return numbers and values of a message's fields."""
    return [(number, value) for number, value, _ in read_fields(message)]

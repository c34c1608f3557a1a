"""Cut an ONNX graph into parts, without the package ``onnx``.

A cross-encoder that shares a dual encoder's networks needs the cells of its feature map, which are
an inner value of ``picture.onnx``, and the states of its lower layers, of ``text.onnx``. The cut
graph computes that value and nothing after it; the file, and so an ordinary search, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyglance.encoders.graph_reader import GraphNode, read_graph
from polyglance.encoders.wire_format import (
    Value,
    as_message,
    read_fields,
    write_integer,
    write_message,
)

_GRAPH, _NODES, _INITIALIZERS, _INPUTS, _OUTPUTS, _VALUES = 7, 1, 5, 11, 12, 13
_NODE_INPUTS, _NODE_OUTPUTS, _TENSOR_NAME, _VALUE_NAME, _VALUE_TYPE = 1, 2, 8, 1, 2
_TENSOR_TYPE, _ELEMENT_TYPE, _FLOAT = 1, 1, 1


def input_of_weight(model: bytes, weight: str) -> str:
    """Return the value that the first node with a weight of this name is applied to.

    Args:
        model: An ONNX file.
        weight: The beginning of the weight's name, such as ``visual_input.weight``.

    Returns:
        The value's name; a ValueError says that the graph has no such weight.
    """
    return _first_node(model, weight).inputs[0]


def output_of_weight(model: bytes, weight: str) -> str:
    """Return the value that the first node with a weight of this name makes.

    Arguments and errors are those of `input_of_weight`.
    """
    return _first_node(model, weight).outputs[0]


def _first_node(model: bytes, weight: str) -> GraphNode:
    made: set[str] = set()
    for node in read_graph(model).nodes:
        if any(name.startswith(weight) or name in made for name in node.inputs[1:]):
            return node
        # A weight may be cast or transposed before it is used.
        if node.inputs and (node.inputs[0].startswith(weight) or node.inputs[0] in made):
            made.update(node.outputs)
    raise ValueError(f"no node has a weight called {weight}")


def cut_graph(model: bytes, output: str) -> bytes:
    """Return an ONNX model whose only output is an inner value, in float32, of another.

    Args:
        model: An ONNX file.
        output: The value's name.
    """
    return _with_graph(model, lambda graph: _cut(graph, output))


def add_output(model: bytes, output: str) -> bytes:
    """Return an ONNX model with an inner value, in float32, as its last output.

    It takes inputs of any shape, so that an image network that is made of convolutions and
    attention takes images of any size.

    Args:
        model: An ONNX file.
        output: The value's name.
    """
    return _with_graph(model, lambda graph: _add_output(graph, output))


def rest_of_graph(model: bytes, value: str) -> bytes:
    """Return an ONNX model that takes an inner value of another, in float32, as an input.

    It computes what the other does, without what `cut_graph` computes alone.

    Args:
        model: An ONNX file.
        value: The value's name; a ValueError says that no node takes it.
    """
    return _with_graph(model, lambda graph: _rest(graph, value))


def _with_graph(model: bytes, change: Callable[[memoryview], bytes]) -> bytes:
    parts = list(read_fields(memoryview(model)))
    [graph] = (as_message(value) for number, value, _ in parts if number == _GRAPH)
    return b"".join(
        write_message(_GRAPH, change(graph)) if number == _GRAPH else bytes(whole)
        for number, _, whole in parts
    )


def _add_output(graph: memoryview, output: str) -> bytes:
    content = list[bytes]()
    for number, value, whole in read_fields(graph):
        if number == _INPUTS:
            content.append(write_message(_INPUTS, _without_shape(as_message(value))))
        elif number != _VALUES:  # those have the shapes of one size
            content.append(bytes(whole))
    return b"".join([*content, write_message(_OUTPUTS, _float_value(output.encode()))])


def _cut(graph: memoryview, output: str) -> bytes:
    kept = _needed_parts(graph, [output.encode()])
    if not kept:
        raise ValueError(f"no node has an output called {output}")
    return b"".join([*kept, write_message(_OUTPUTS, _float_value(output.encode()))])


def _rest(graph: memoryview, value: str) -> bytes:
    if not any(
        value.encode() in _names(node, _NODE_INPUTS)
        for number, node, _ in read_fields(graph)
        if number == _NODES
    ):
        raise ValueError(f"no node takes a value called {value}")
    outputs = [whole for number, _, whole in read_fields(graph) if number == _OUTPUTS]
    names = [
        name
        for number, output, _ in read_fields(graph)
        if number == _OUTPUTS
        for name in _names(output, _VALUE_NAME)
    ]
    kept = _needed_parts(graph, names, value.encode())
    given = write_message(_INPUTS, _float_value(value.encode()))
    return b"".join([*kept, given, *map(bytes, outputs)])


def _needed_parts(graph: memoryview, outputs: Iterable[bytes], given: bytes = b"") -> list[bytes]:
    """Return the fields of a graph that outputs need, but for these and the shapes of values.

    Args:
        graph: The graph.
        outputs: Names of values; nothing is returned if no node makes one.
        given: A value that need not be computed; empty for none.
    """
    fields = list(read_fields(graph))
    nodes = [as_message(value) for number, value, _ in fields if number == _NODES]
    needed, kept = set(outputs), set[int]()
    for place in reversed(range(len(nodes))):  # nodes come after what they take
        if needed & set(_names(nodes[place], _NODE_OUTPUTS)):
            kept.add(place)
            needed |= set(_names(nodes[place], _NODE_INPUTS)) - {given}
    if not kept:
        return []
    content, place = list[bytes](), -1
    for number, value, whole in fields:
        place += number == _NODES
        if (
            number in (_OUTPUTS, _VALUES)
            or (number == _NODES and place not in kept)
            or (number == _INITIALIZERS and not needed & set(_names(value, _TENSOR_NAME)))
            or (number == _INPUTS and not needed & set(_names(value, _VALUE_NAME)))
        ):
            continue
        content.append(bytes(whole))
    return content


def _without_shape(value_info: memoryview) -> bytes:
    """Return the description of a value without its shape."""
    [name] = _names(value_info, _VALUE_NAME)
    [kind] = (
        as_message(value) for field, value, _ in read_fields(value_info) if field == _VALUE_TYPE
    )
    [tensor] = (as_message(value) for field, value, _ in read_fields(kind) if field == _TENSOR_TYPE)
    element = b"".join(
        bytes(whole) for field, _, whole in read_fields(tensor) if field == _ELEMENT_TYPE
    )
    return write_message(_VALUE_NAME, name) + write_message(
        _VALUE_TYPE, write_message(_TENSOR_TYPE, element)
    )


def _float_value(name: bytes) -> bytes:
    """Return the description of a value in float32 of any shape."""
    tensor = write_message(_TENSOR_TYPE, write_integer(_ELEMENT_TYPE, _FLOAT))
    return write_message(_VALUE_NAME, name) + write_message(_VALUE_TYPE, tensor)


def _names(message: Value, number: int) -> Iterable[bytes]:
    """Return the texts of a message's fields with this number."""
    fields = read_fields(as_message(message))
    return [bytes(as_message(value)) for field, value, _ in fields if field == number]

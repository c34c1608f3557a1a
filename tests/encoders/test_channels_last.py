"""Convolutions with their channels last: the same numbers, in the shipped model and in others."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import polyglance
from polyglance.encoders import image_sessions
from polyglance.encoders.channels_last import channels_last
from polyglance.encoders.half_precision import computes_float16, without_float16
from polyglance.encoders.model_folder import PICTURE
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.errors import DataError


def shipped() -> bytes:
    encoder = polyglance.load()
    assert isinstance(encoder, OnnxEncoder)
    return encoder.folder.read_file(PICTURE)


def tiny_network(*, groups: int = 4, bounded: bool = True, used_twice: bool = False) -> ModelProto:
    """Return two convolutions in float16, one with groups, a sum of both and their mean."""
    generator = np.random.default_rng(0)
    weights = {
        "first": generator.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "second": generator.normal(size=(4, 4 // groups, 3, 3)).astype(np.float32),
        "low": np.float16(-0.5),
        "high": np.float16(1.5),
        "axes": np.array([2, 3]),
    }
    node = helper.make_node
    bounds = ["low", "high"] if bounded else ["low"]
    same = {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}
    nodes = [
        *(
            node("Cast", [name], [f"{name} half"], to=TensorProto.FLOAT16)
            for name in ("pixels", "first", "second")
        ),
        node("Conv", ["pixels half", "first half"], ["a"], **same, strides=[2, 2]),
        node("Clip", ["a", *bounds], ["b"]),
        node("Conv", ["b", "second half"], ["c"], **same, group=groups),
        node("Add", ["c", "a" if used_twice else "b"], ["d"]),
        node("Cast", ["d"], ["e"], to=TensorProto.FLOAT),
        node("ReduceMean", ["e", "axes"], ["means"], keepdims=0),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), k) for k, value in weights.items()]
    sides = [
        helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 9, 9]),
        helper.make_tensor_value_info("means", TensorProto.FLOAT, ["n", 4]),
    ]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def in_standard_operators(model: ModelProto) -> ModelProto:
    """Write the runtime's convolution with channels last as what it stands for."""
    nodes: list[NodeProto] = []
    for number, node in enumerate(model.graph.node):
        if node.op_type != "NhwcFusedConv":
            nodes.append(node)
            continue
        assert node.domain == "com.microsoft"
        given = {part.name: helper.get_attribute_value(part) for part in node.attribute}
        activation, bounds = given.pop("activation", None), given.pop("activation_params", None)
        names = [f"own{number}.{step}" for step in range(3)]
        nodes += [
            helper.make_node("Transpose", node.input[:1], names[:1], perm=[0, 3, 1, 2]),
            helper.make_node("Conv", [names[0], *node.input[1:]], names[1:2], **given),
        ]
        if activation is not None:
            assert activation == b"Clip"
            limits = [f"own{number}.low", f"own{number}.high"]
            for name, value in zip(limits, bounds, strict=True):
                tensor = numpy_helper.from_array(np.float16(value), name)
                model.graph.initializer.append(tensor)
            nodes.append(helper.make_node("Clip", [names[1], *limits], names[2:]))
        last = names[1 if activation is None else 2]
        nodes.append(helper.make_node("Transpose", [last], node.output, perm=[0, 2, 3, 1]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def run(model: bytes, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Run a graph in float32 on every machine."""
    session = onnxruntime.InferenceSession(without_float16(model))
    outputs: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: pixels})[0]
    return outputs


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"NhwcFusedConv": 2, "Transpose": 2, "Add": 1}),
        ({"groups": 1}, {"NhwcFusedConv": 2, "Transpose": 2, "Add": 1}),
        ({"bounded": False}, {"NhwcFusedConv": 2, "Transpose": 2, "Add": 1, "Clip": 1}),
        ({"used_twice": True}, {"NhwcFusedConv": 2, "Transpose": 2, "Add": 1, "Clip": 1}),
    ],
)
def test_a_network_is_converted_as_a_whole(
    settings: dict[str, bool | int], expected: dict[str, int]
) -> None:
    original = tiny_network(**settings)  # type: ignore[arg-type]
    stated = tiny_network(**settings)  # type: ignore[arg-type]
    shape = helper.make_tensor_value_info("a", TensorProto.FLOAT16, ["n", 4, 5, 5])
    stated.graph.value_info.append(shape)  # not that of the other order
    converted = onnx.load_model_from_string(channels_last(stated.SerializeToString()))
    others = {"Cast": 4, "ReduceMean": 1}
    assert Counter(node.op_type for node in converted.graph.node) == Counter(expected | others)
    assert not converted.graph.value_info
    assert {opset.domain for opset in converted.opset_import} == {"", "com.microsoft"}
    pixels = np.random.default_rng(1).normal(size=(2, 3, 9, 9)).astype(np.float32)
    reference = in_standard_operators(converted).SerializeToString()
    first, second = run(original.SerializeToString(), pixels), run(reference, pixels)
    assert np.abs(first).min() > 0.01
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_the_shipped_model_keeps_two_transpositions_of_images() -> None:
    content = shipped()
    converted = onnx.load_model_from_string(channels_last(content))
    before = Counter(node.op_type for node in onnx.load_model_from_string(content).graph.node)
    after = Counter(node.op_type for node in converted.graph.node)
    assert after["NhwcFusedConv"] == before["Conv"] == 64
    assert "Clip" not in {node.op_type for node in converted.graph.node[:-80]}
    assert after["Transpose"] == before["Transpose"] + 2
    pixels = np.random.default_rng(0).normal(size=(1, 3, 256, 256)).astype(np.float32)
    reference = in_standard_operators(converted).SerializeToString()
    np.testing.assert_allclose(run(content, pixels), run(reference, pixels), atol=1e-5)


@pytest.mark.skipif(not computes_float16(), reason="the runtime has these kernels on ARM alone")
def test_vectors_stay_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = list(np.random.default_rng(0).integers(0, 256, (2, 256, 256, 3), np.uint8))
    fast = polyglance.load(threads=1).encode_pictures(pictures)
    monkeypatch.setattr(image_sessions, "channels_last", lambda content: content)
    np.testing.assert_array_equal(polyglance.load(threads=1).encode_pictures(pictures), fast)


def test_a_processor_without_the_kernels_runs_the_graph_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = []

    def open_session(content: bytes, *_: object, **__: object) -> str:
        opened.append(content)
        if b"NhwcFusedConv" in content:
            raise DataError("not implemented")
        return "session"

    monkeypatch.setattr(image_sessions, "computes_float16", lambda: True)
    monkeypatch.setattr(image_sessions, "open_session", open_session)
    content = tiny_network().SerializeToString()
    path = polyglance.load().folder.path  # type: ignore[attr-defined]
    assert image_sessions.open_image_session(content, path, threads=1) == "session"
    assert opened == [channels_last(content), content]
    opened.clear()
    image_sessions.open_image_session(content, path, threads=1, device="cuda")
    assert opened == [content]


def test_other_graphs_stay_as_they_are() -> None:
    plain = without_float16(tiny_network().SerializeToString())
    assert channels_last(plain) == plain
    assert channels_last(b"no graph") == b"no graph"
    outer = tiny_network()
    outer.graph.output.append(helper.make_tensor_value_info("d", TensorProto.FLOAT16, None))
    content = outer.SerializeToString()  # a caller would get the other order
    assert channels_last(content) == content

"""Graphs without conversions to float16: as the onnx package edits them, with the same vectors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyglance
from polyglance.encoders import half_precision, image_sessions
from polyglance.encoders.half_precision import without_float16
from polyglance.encoders.model_folder import PICTURE
from polyglance.encoders.onnx_encoder import OnnxEncoder


def shipped() -> bytes:
    encoder = polyglance.load()
    assert isinstance(encoder, OnnxEncoder)
    return encoder.folder.read_file(PICTURE)


def test_only_conversions_and_bounds_of_the_shipped_model_change() -> None:
    content = shipped()
    expected = onnx.load_model_from_string(content)
    bounds = {name for node in expected.graph.node if node.op_type == "Clip" for name in node.input}
    casts = 0
    for node in expected.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
                casts += 1
    for tensor in expected.graph.initializer:
        if tensor.name in bounds and tensor.data_type == TensorProto.FLOAT16:
            value = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    assert casts
    assert onnx.load_model_from_string(without_float16(content)) == expected


def test_vectors_are_the_same_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = list(np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8))
    vectors = []
    for computes in (False, True):
        monkeypatch.setattr(image_sessions, "computes_float16", lambda computes=computes: computes)
        vectors.append(polyglance.load(threads=1).encode_pictures(pictures))
    assert not np.array_equal(*vectors)
    assert (vectors[0] * vectors[1]).sum(1).min() > 0.9999


def test_a_graph_without_float16_stays_as_it_is() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    tensor = numpy_helper.from_array(np.float16(2), "unused")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [tensor])
    content = helper.make_model(graph).SerializeToString()
    assert without_float16(content) == content


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"no model", b"\x3a\x7f", b"\x3a\x01\x0b"])
def test_what_is_no_graph_is_left_to_the_runtime(content: bytes) -> None:
    assert without_float16(content) == content


def test_only_arm_computes_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine, computes in (
        ("aarch64", True),
        ("arm64", True),
        ("x86_64", False),
        ("AMD64", False),
    ):
        monkeypatch.setattr(half_precision.platform, "machine", lambda machine=machine: machine)
        assert half_precision.computes_float16() == computes

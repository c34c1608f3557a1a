"""Inputs and outputs of exported graphs, by the names that transformers and others use.

Graphs of folders before format 4 took rows of the embedding table as ``places`` with their
``lengths``, and uint8 ``pixels`` (batch, size, size, RGB); `with_standard_names` converts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from polyglance.encoders.model_folder import ImagePreprocessing
from polyglance.errors import DataError
from polyglance.export.graph import GraphWriter

IDS, MASK, PIXELS = "input_ids", "attention_mask", "pixel_values"
TEXT_OUTPUT, IMAGE_OUTPUT = "text_embeds", "image_embeds"
_OLD_IDS, _OLD_LENGTHS, _OLD_PIXELS, _OLD_OUTPUT = "places", "lengths", "pixels", "vectors"
_NORMALISATION = ("Transpose", "Cast", "Sub", "Div")
"""What old graphs did to pixels, in this order."""


def token_inputs(graph: GraphWriter) -> tuple[str, str]:
    """Add the inputs ``input_ids`` and ``attention_mask``, int64 (batch, steps)."""
    shape = ("batch", "steps")
    return graph.input(IDS, "int64", shape), graph.input(MASK, "int64", shape)


def pixels_input(graph: GraphWriter, settings: ImagePreprocessing) -> str:
    """Add the input ``pixel_values``, normalised float32 (batch, RGB, size, size)."""
    return graph.input(PIXELS, "float32", ("batch", 3, settings.size, settings.size))


def with_standard_names(model: ModelProto) -> ModelProto:
    """Return a text or image graph of format 2 or 3 with the inputs and outputs of format 4."""
    converted = ModelProto()
    converted.CopyFrom(model)
    names = [value.name for value in converted.graph.input]
    if names == [_OLD_IDS, _OLD_LENGTHS]:
        _convert_text(converted)
    elif names == [_OLD_PIXELS]:
        _convert_image(converted)
    else:
        raise DataError(f"a graph takes {', '.join(names)}: it is not one of format 2 or 3")
    return converted


def with_image_size(model: ModelProto, size: int) -> ModelProto:
    """Return an image graph that takes pictures of another size; its weights are the same."""
    resized = ModelProto()
    resized.CopyFrom(model)
    del resized.graph.value_info[:]  # those have the shapes of one size
    [pixels] = [value for value in resized.graph.input if value.name == PIXELS]
    for dimension in pixels.type.tensor_type.shape.dim[-2:]:
        dimension.dim_value = size
    return resized


def _convert_text(model: ModelProto) -> None:
    graph = model.graph
    _rename(graph.node, {_OLD_IDS: IDS, _OLD_OUTPUT: TEXT_OUTPUT})
    axis = numpy_helper.from_array(np.array([1], np.int64), "/token_axis")
    lengths = helper.make_node("ReduceSum", [MASK, axis.name], [_OLD_LENGTHS], keepdims=0)
    graph.initializer.append(axis)
    graph.node.insert(0, lengths)
    del graph.input[:]
    shape = ["batch", "steps"]
    for name in (IDS, MASK):
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    graph.output[0].name = TEXT_OUTPUT


def _convert_image(model: ModelProto) -> None:
    graph = model.graph
    size = graph.input[0].type.tensor_type.shape.dim[1].dim_value
    value, removed = _OLD_PIXELS, []
    for kind in _NORMALISATION:
        [node] = [node for node in graph.node if node.input and node.input[0] == value]
        if node.op_type != kind:
            raise DataError("an image graph normalises its pixels in an unknown way: export again")
        removed.append(node)
        value = node.output[0]
    for node in removed:
        graph.node.remove(node)
    _rename(graph.node, {value: PIXELS, _OLD_OUTPUT: IMAGE_OUTPUT})
    used = {name for node in graph.node for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    del graph.input[:]
    shape = ["batch", 3, size, size]
    graph.input.append(helper.make_tensor_value_info(PIXELS, TensorProto.FLOAT, shape))
    graph.output[0].name = IMAGE_OUTPUT


def _rename(nodes: Sequence[NodeProto], names: Mapping[str, str]) -> None:
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]

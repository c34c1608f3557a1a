"""Image networks as ONNX nodes: pixels to a feature map."""

from __future__ import annotations

from onnx import TensorProto
from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.export.graph import GraphWriter
from polyglance.export.layers import layer_weight
from polyglance.export.tracing import tower_feature_map
from polyglance.vision import efficientnet, resnet
from polyglance.vision.transformers_backbone import TransformersNetwork


def feature_map(graph: GraphWriter, x: str, module: nn.Module, name: str) -> str:
    """Add a network, from (batch, RGB, size, size) to (batch, channels, rows, columns)."""
    if isinstance(module, efficientnet.Network):
        return _efficientnet(graph, x, module, name)
    if isinstance(module, resnet.Network):
        return _resnet(graph, x, module, name)
    if isinstance(module, TransformersNetwork):
        return tower_feature_map(graph, x, module, name)
    raise PolyglanceError(
        f"a {type(module).__name__} cannot be exported, only EfficientNet-Lite, ResNet and vision"
        " models of transformers: train on features of one of these"
    )


def _efficientnet(graph: GraphWriter, x: str, module: efficientnet.Network, name: str) -> str:
    """Add EfficientNet in float16, for which the runtime has kernels on ARM.

    There a picture takes two thirds of the time of float32 with large kernels alone in float16, at
    a cosine of 0.9999. Elsewhere `polyglance.encoders.half_precision` makes it float32.
    """
    x = graph.node("Cast", x, to=TensorProto.FLOAT16)
    x = _same_convolution(graph, x, module.stem, f"{name}.stem", relu6=True)
    for number, block in enumerate(module.blocks):
        assert isinstance(block, efficientnet.Block)
        x = _block(graph, x, block, f"{name}.blocks.{number}")
    x = _same_convolution(graph, x, module.head, f"{name}.head", relu6=True)
    return graph.node("Cast", x, to=TensorProto.FLOAT)


def _block(graph: GraphWriter, x: str, module: efficientnet.Block, name: str) -> str:
    y = x
    if module.expand is not None:
        y = _same_convolution(graph, y, module.expand, f"{name}.expand", relu6=True)
    y = _same_convolution(graph, y, module.depthwise, f"{name}.depthwise", relu6=True)
    y = _same_convolution(graph, y, module.project, f"{name}.project")
    return graph.node("Add", y, x) if module.skip else y


def _same_convolution(
    graph: GraphWriter, x: str, module: efficientnet.FoldedConv, name: str, relu6: bool = False
) -> str:
    """Add a convolution of EfficientNet in float16, with TensorFlow's "same" padding."""
    constants = (layer_weight(graph, name), graph.float_weight(f"{name}.bias"))
    y = graph.node(
        "Conv",
        x,
        *(graph.node("Cast", value, to=TensorProto.FLOAT16) for value in constants),
        kernel_shape=[module.kernel] * 2,
        strides=[module.stride] * 2,
        auto_pad="SAME_UPPER",
        group=module.groups,
    )
    if relu6:
        y = graph.node("Clip", y, graph.constant(0, "float16"), graph.constant(6, "float16"))
    return y


def _resnet(graph: GraphWriter, x: str, module: resnet.Network, name: str) -> str:
    x = graph.node("Relu", _convolution(graph, x, module.stem, f"{name}.stem"))
    x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for number, stage in enumerate(module.stages):
        assert isinstance(stage, nn.Sequential)
        for index, block in enumerate(stage):
            assert isinstance(block, resnet.Bottleneck)
            x = _bottleneck(graph, x, block, f"{name}.stages.{number}.{index}")
    return x


def _bottleneck(graph: GraphWriter, x: str, module: resnet.Bottleneck, name: str) -> str:
    y = graph.node("Relu", _convolution(graph, x, module.reduce, f"{name}.reduce"))
    y = graph.node("Relu", _convolution(graph, y, module.spatial, f"{name}.spatial"))
    y = _convolution(graph, y, module.expand, f"{name}.expand")
    if module.shortcut is not None:
        x = _convolution(graph, x, module.shortcut, f"{name}.shortcut")
    return graph.node("Relu", graph.node("Add", y, x))


def _convolution(graph: GraphWriter, x: str, module: nn.Conv2d, name: str) -> str:
    """Add a convolution with torch's padding."""
    assert not isinstance(module.padding, str)
    return graph.node(
        "Conv",
        x,
        layer_weight(graph, name),
        graph.float_weight(f"{name}.bias"),
        kernel_shape=list(module.kernel_size),
        strides=list(module.stride),
        pads=[*module.padding] * 2,
    )

"""The graph of the picture tower: pixels to unit vectors."""

from __future__ import annotations

from onnx import ModelProto, TensorProto

from polyglance.encoders.folder import PictureSettings
from polyglance.export.graph import GraphWriter
from polyglance.export.layers import linear, mean, pooling
from polyglance.models.mmp import MMP
from polyglance.nn.pooling import MeanHead, PoolingHead
from polyglance.vision.efficientnet import Block, FoldedConv, Network

_QUICK_KERNEL = 3
"""The largest kernel for which the runtime has a quick depthwise convolution in float32.

Larger ones it has in float16 on ARM: 60 ms a picture instead of 79 on a Neoverse-N1,
at a cosine of 0.99998. Where there is none it computes them in float32.
"""


def write_picture_graph(graph: GraphWriter, model: MMP, settings: PictureSettings) -> ModelProto:
    """``pixels`` uint8 (batch, size, size, RGB) to ``vectors`` (batch, width)."""
    size, config = settings.size, model.config
    pixels = graph.input("pixels", "uint8", ("batch", size, size, 3))
    x = graph.node("Transpose", pixels, perm=[0, 3, 1, 2])
    x = graph.node("Cast", x, to=TensorProto.FLOAT)
    x = graph.node("Sub", x, _by_channel(graph, settings.mean))
    x = graph.node("Div", x, _by_channel(graph, settings.std))
    eyes, head = model.eyes, model.visual_pooling
    assert isinstance(eyes, Network)
    assert isinstance(head, MeanHead | PoolingHead)
    cells = _network(graph, x, eyes, "eyes")
    cells = graph.node("Reshape", cells, graph.constant([0, 0, -1], "int64"))
    cells = graph.node("Transpose", cells, perm=[0, 2, 1])
    whole = graph.node("Unsqueeze", mean(graph, cells, None), graph.constant([1], "int64"))
    rows = graph.node("Concat", whole, cells, axis=1)
    rows = linear(graph, rows, model.visual_input, "visual_input")
    name = "text_pooling" if config.share_pooling else "visual_pooling"
    vectors = pooling(graph, rows, head, name)
    graph.output(vectors, "vectors", "float32", ("batch", config.width))
    return graph.model("picture")


def _network(graph: GraphWriter, x: str, module: Network, name: str) -> str:
    """EfficientNet-Lite up to its feature map (batch, channels, rows, columns)."""
    x = _convolution(graph, x, module.stem, f"{name}.stem", relu6=True)
    for number, block in enumerate(module.blocks):
        assert isinstance(block, Block)
        x = _block(graph, x, block, f"{name}.blocks.{number}")
    return _convolution(graph, x, module.head, f"{name}.head", relu6=True)


def _block(graph: GraphWriter, x: str, module: Block, name: str) -> str:
    y = x
    if module.expand is not None:
        y = _convolution(graph, y, module.expand, f"{name}.expand", relu6=True)
    y = _convolution(graph, y, module.depthwise, f"{name}.depthwise", relu6=True)
    y = _convolution(graph, y, module.project, f"{name}.project")
    return graph.node("Add", y, x) if module.skip else y


def _convolution(
    graph: GraphWriter, x: str, module: FoldedConv, name: str, relu6: bool = False
) -> str:
    """A convolution whose weights have 8 bits each and a scale for every output channel."""
    # Not DequantizeLinear: the runtime keeps that as a node to be run for every picture,
    # and a cast and a product of constants it computes once, when loading.
    codes = graph.node("Cast", graph.weight(f"{name}.weight.codes"), to=TensorProto.FLOAT)
    scales = graph.node(
        "Unsqueeze", graph.weight(f"{name}.weight.scales"), graph.constant([1, 2, 3], "int64")
    )
    inputs = [x, graph.node("Mul", codes, scales), graph.weight(f"{name}.bias")]
    halved = module.groups > 1 and module.kernel > _QUICK_KERNEL
    if halved:
        inputs = [graph.node("Cast", value, to=TensorProto.FLOAT16) for value in inputs]
    y = graph.node(
        "Conv",
        *inputs,
        kernel_shape=[module.kernel] * 2,
        strides=[module.stride] * 2,
        auto_pad="SAME_UPPER",  # TensorFlow's "same"
        group=module.groups,
    )
    if relu6:
        kind = "float16" if halved else "float32"
        y = graph.node("Clip", y, graph.constant(0, kind), graph.constant(6, kind))
    return graph.node("Cast", y, to=TensorProto.FLOAT) if halved else y


def _by_channel(graph: GraphWriter, values: tuple[float, ...]) -> str:
    """A number for each of the channels of (batch, channels, rows, columns)."""
    return graph.constant([[[value]] for value in values], "float32")

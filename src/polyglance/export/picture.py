"""The graph of MMP's picture tower: pixels to unit vectors."""

from __future__ import annotations

from onnx import ModelProto

from polyglance.encoders.folder import PictureSettings
from polyglance.export.convolutions import feature_map, pixels_input
from polyglance.export.graph import GraphWriter
from polyglance.export.layers import linear, mean, pooling
from polyglance.models.mmp import MMP
from polyglance.nn.pooling import MeanHead, PoolingHead


def write_picture_graph(graph: GraphWriter, model: MMP, settings: PictureSettings) -> ModelProto:
    """``pixels`` uint8 (batch, size, size, RGB) to ``vectors`` (batch, width)."""
    config, head = model.config, model.visual_pooling
    assert isinstance(head, MeanHead | PoolingHead)
    cells = feature_map(graph, pixels_input(graph, settings), model.get_submodule("eyes"), "eyes")
    cells = graph.node("Reshape", cells, graph.constant([0, 0, -1], "int64"))
    cells = graph.node("Transpose", cells, perm=[0, 2, 1])
    whole = graph.node("Unsqueeze", mean(graph, cells, None), graph.constant([1], "int64"))
    rows = graph.node("Concat", whole, cells, axis=1)
    rows = linear(graph, rows, model.visual_input, "visual_input")
    name = "text_pooling" if config.share_pooling else "visual_pooling"
    vectors = pooling(graph, rows, head, name)
    graph.output(vectors, "vectors", "float32", ("batch", config.width))
    return graph.model("picture")

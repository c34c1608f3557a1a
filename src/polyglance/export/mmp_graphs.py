"""The ONNX graphs of MMP: sub-words, and pixels, to unit vectors."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto, TensorProto
from torch import nn

from polyglance.encoders.model_folder import ImagePreprocessing
from polyglance.export.convolutions import feature_map
from polyglance.export.graph import GraphWriter
from polyglance.export.inputs import IMAGE_OUTPUT, TEXT_OUTPUT, pixels_input, token_inputs
from polyglance.export.layers import layer_norm, linear, mean, pooling, transformer_layer
from polyglance.models.mmp import MMP
from polyglance.nn.pooling import MeanHead, PoolingHead
from polyglance.nn.transformer import TransformerLayer
from polyglance.vision.tokens import pooling_weights

_MASKED = -1e9
"""Added to the attention logits of padding, whose weight becomes zero."""
_EXACT_LAYERS = 2
"""Number of first layers in which no input is rounded: errors there affect all that follow.

Queries, keys and values come from unrounded rows in every layer. Both raise the default
model's minimum cosine with float32, over 450 sentences in a hundred languages, from 0.9977
to 0.9992 for 6 ms per query; rounding nothing at all would cost 18 ms.
"""


@dataclass(frozen=True)
class GridCells:
    """How a backbone's feature map becomes the rows that a model was trained on."""

    map_size: tuple[int, int]
    """Rows and columns of the feature map."""
    grid: int
    """Cells per side that it is averaged to."""
    prepend_global: bool
    max_tokens: int


def write_text_graph(graph: GraphWriter, model: MMP) -> ModelProto:
    """Return the graph from ``input_ids`` and ``attention_mask`` to ``text_embeds``.

    Both inputs are (batch, steps). Ids are rows of the embedding table, as `UnigramTokenizer`
    and the folder's ``tokenizer.json`` give them; padding is on the right. ``text_embeds`` are
    unit vectors, (batch, width).
    """
    ids, attention_mask = token_inputs(graph)
    zero = graph.constant(0, "int64")
    inside = graph.node("Cast", attention_mask, to=TensorProto.FLOAT)
    mask, bias = _masks(graph, inside)
    positions = _positions(graph, ids)
    encoder, config = model.encoder, model.config
    first = graph.constant(config.encoder.first_position, "int64")
    position_rows = graph.node(
        "Gather",
        graph.float_weight("encoder.positions.weight"),
        graph.node("Add", positions, first),
    )
    segment = graph.node("Gather", graph.float_weight("encoder.segments.weight"), zero)
    rows = graph.node("Add", _embeddings(graph, ids, "encoder.words"), position_rows)
    rows = layer_norm(graph, graph.node("Add", rows, segment), encoder.norm, "encoder.norm")
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, TransformerLayer)
        name, exact = f"encoder.layers.{number}", number < _EXACT_LAYERS
        rows = transformer_layer(graph, rows, layer, name, bias, exact_attention=True, exact=exact)
    if isinstance(model.text_input, nn.Linear):
        rows = linear(graph, rows, model.text_input, "text_input")
    head = model.text_pooling
    assert isinstance(head, MeanHead | PoolingHead)
    vectors = pooling(graph, rows, head, "text_pooling", mask=mask, bias=bias)
    graph.output(vectors, TEXT_OUTPUT, "float32", ("batch", config.width))
    return graph.build("text")


def write_image_graph(graph: GraphWriter, model: MMP, settings: ImagePreprocessing) -> ModelProto:
    """Return the graph from ``pixel_values`` (batch, RGB, size, size) to ``image_embeds``."""
    config, head = model.config, model.visual_pooling
    assert isinstance(head, MeanHead | PoolingHead)
    network = model.get_submodule("image_backbone")
    cells = feature_map(graph, pixels_input(graph, settings), network, "image_backbone")
    cells = graph.node("Reshape", cells, graph.constant([0, 0, -1], "int64"))
    cells = graph.node("Transpose", cells, perm=[0, 2, 1])
    mean_row = graph.node("Unsqueeze", mean(graph, cells, None), graph.constant([1], "int64"))
    rows = graph.node("Concat", mean_row, cells, axis=1)
    rows = linear(graph, rows, model.visual_input, "visual_input")
    vectors = pooling(graph, rows, head, _visual_head(model))
    graph.output(vectors, IMAGE_OUTPUT, "float32", ("batch", config.width))
    return graph.build("picture")


def write_feature_graph(graph: GraphWriter, model: MMP) -> ModelProto:
    """Return the graph from ``features`` (batch, steps, feature width) and ``lengths`` (batch).

    Rows beyond an item's length are ignored. The output ``vectors`` is (batch, width).
    """
    config, head = model.config, model.visual_pooling
    assert isinstance(head, MeanHead | PoolingHead)
    features = graph.input("features", "float32", ("batch", "steps", config.visual_width))
    lengths = graph.input("lengths", "int64", ("batch",))
    ends = graph.node("Unsqueeze", lengths, graph.constant([1], "int64"))
    is_inside = graph.node("Less", _positions(graph, features), ends)
    mask, bias = _masks(graph, graph.node("Cast", is_inside, to=TensorProto.FLOAT))
    rows = linear(graph, features, model.visual_input, "visual_input")
    vectors = pooling(graph, rows, head, _visual_head(model), mask=mask, bias=bias)
    graph.output(vectors, "vectors", "float32", ("batch", config.width))
    return graph.build("features")


def write_grid_graph(
    graph: GraphWriter,
    model: MMP,
    settings: ImagePreprocessing,
    network: nn.Module,
    cells: GridCells,
) -> ModelProto:
    """Return the graph of a model of a backbone's grid features, as `write_image_graph`.

    Args:
        graph: Writer over the weights of model and network.
        model: Its shape.
        settings: Size of the pixels.
        network: The image backbone that the features came from.
        cells: How its feature map becomes rows.
    """
    config, head = model.config, model.visual_pooling
    assert isinstance(head, MeanHead | PoolingHead)
    x = feature_map(graph, pixels_input(graph, settings), network, "image_backbone")
    flat = graph.constant([0, 0, -1], "int64")
    whole = graph.node("Transpose", graph.node("Reshape", x, flat), perm=[0, 2, 1])
    rows_in, columns_in = cells.map_size
    if (rows_in, columns_in) != (cells.grid, cells.grid):
        down = graph.constant(pooling_weights(cells.grid, rows_in).tolist(), "float32")
        across = graph.constant(pooling_weights(cells.grid, columns_in).T.tolist(), "float32")
        x = graph.node("MatMul", graph.node("MatMul", down, x), across)
    rows = graph.node("Transpose", graph.node("Reshape", x, flat), perm=[0, 2, 1])
    if cells.prepend_global:
        mean_row = graph.node("Unsqueeze", mean(graph, whole, None), graph.constant([1], "int64"))
        rows = graph.node("Concat", mean_row, rows, axis=1)
    start, end = graph.constant([0], "int64"), graph.constant([cells.max_tokens], "int64")
    rows = graph.node("Slice", rows, start, end, graph.constant([1], "int64"))
    rows = linear(graph, rows, model.visual_input, "visual_input")
    vectors = pooling(graph, rows, head, _visual_head(model))
    graph.output(vectors, IMAGE_OUTPUT, "float32", ("batch", config.width))
    return graph.build("picture")


def _visual_head(model: MMP) -> str:
    """Return the name under which the state holds the visual pooling head."""
    return "text_pooling" if model.config.share_pooling else "visual_pooling"


def _positions(graph: GraphWriter, sequences: str) -> str:
    """Add the positions (steps,) of padded sequences (batch, steps, ...)."""
    zero, one = graph.constant(0, "int64"), graph.constant(1, "int64")
    steps = graph.node("Gather", graph.node("Shape", sequences), one)
    return graph.node("Range", zero, steps, one)


def _masks(graph: GraphWriter, inside: str) -> tuple[str, str]:
    """Add the mask (batch, steps, 1) and attention bias of padded sequences.

    ``inside``, (batch, steps), is 1 inside a sequence and 0 beyond it. The bias, (batch, 1, 1,
    steps), is 0 inside and large and negative beyond.
    """
    mask = graph.node("Unsqueeze", inside, graph.constant([2], "int64"))
    outside = graph.node("Sub", graph.constant(1, "float32"), inside)
    bias = graph.node(
        "Unsqueeze",
        graph.node("Mul", outside, graph.constant(_MASKED, "float32")),
        graph.constant([1, 2], "int64"),
    )
    return mask, bias


def _embeddings(graph: GraphWriter, places: str, name: str) -> str:
    """Look up rows of the embedding table, compressed or not: (batch, steps, width)."""
    if f"{name}.codes" in graph.state:
        return shared_table(graph, places, name)
    # Only the rows that are looked up are cast to float32.
    rows = graph.node("Gather", graph.weight(f"{name}.weight"), places)
    return graph.node("Cast", rows, to=TensorProto.FLOAT)


def shared_table(graph: GraphWriter, places: str, name: str) -> str:
    """Look up rows of a `ProductQuantisedEmbedding`: (batch, steps, width)."""
    rows = _look_up(graph, places, f"{name}.codes", f"{name}.codebooks")
    frequent = len(graph.state[f"{name}.finer_codes"])
    clamped = graph.node("Min", places, graph.constant(frequent - 1, "int64"))
    finer = _look_up(graph, clamped, f"{name}.finer_codes", f"{name}.finer_codebooks")
    is_frequent = graph.node("Less", places, graph.constant(frequent, "int64"))
    weight = graph.node("Cast", is_frequent, to=TensorProto.FLOAT)
    weight = graph.node("Unsqueeze", weight, graph.constant([2], "int64"))
    rows = graph.node("Add", rows, graph.node("Mul", finer, weight))
    rotated = graph.node("MatMul", rows, graph.float_weight(f"{name}.rotation"))
    return graph.node("Add", rotated, graph.float_weight(f"{name}.centre"))


def _look_up(graph: GraphWriter, places: str, codes: str, codebooks: str) -> str:
    """Concatenate the codebook entries of each place's codes."""
    parts, entries, size = graph.state[codebooks].shape
    first_entries = graph.constant([entries * part for part in range(parts)], "int64")
    entry_ids = graph.node("Gather", graph.weight(codes), places)
    entry_ids = graph.node("Cast", entry_ids, to=TensorProto.INT64)
    entry_ids = graph.node("Add", entry_ids, first_entries)
    flat = graph.node("Reshape", graph.float_weight(codebooks), graph.constant([-1, size], "int64"))
    rows = graph.node("Gather", flat, entry_ids)
    return graph.node("Reshape", rows, graph.constant([0, 0, -1], "int64"))

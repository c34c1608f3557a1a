"""The ONNX graph of a reader: word rows and picture cells to a match and answers."""

from __future__ import annotations

import numpy as np
import torch
from onnx import ModelProto
from torch import Tensor, nn

from polyglance.errors import PolyglanceError
from polyglance.export.graph import GraphWriter
from polyglance.export.layers import layer_norm, linear, transformer_layer
from polyglance.models.vqa import VQAModel
from polyglance.nn.packed_pairs import box_location
from polyglance.nn.transformer import TransformerLayer
from polyglance.vision.tokens import grid_boxes

_MASKED = -1e9
"""Added to the attention logits of what is hidden, whose weight becomes zero."""
_ENCODER = "cross_encoder.encoder"


def write_reader_graph(
    graph: GraphWriter,
    model: VQAModel,
    grid: int,
    text_layers: int = 0,
    *,
    exact: bool = False,
) -> ModelProto:
    """Return the graph from words and cells to ``match`` and ``answers``.

    Inputs are ``word_rows`` (batch, steps, width), states of the dual encoder's text encoder;
    ``cells`` (batch, 1 + cells, feature width), the picture's mean and its cells; ``text_mask``
    (batch, steps) and ``cell_mask`` (batch, 1 + cells), 0 for what is hidden. Outputs are ``match``
    (batch) and ``answers`` (batch, answers), both logits.

    Args:
        graph: Over the compact state of the model.
        model: Its shape; the weights are the state's.
        grid: Cells per side.
        text_layers: Layers whose states the word rows are; 0 for rows of the table of words.
        exact: Round no input of a layer to 8 bits, which takes twice the time.
    """
    reader, config = model.cross_encoder, model.cross_encoder.config
    if config.variant != "paper" or model.answer_projection is not None:
        raise PolyglanceError(
            "a reader is UC2's paper variant with folded answer embeddings: train it with the"
            " recipe polyglance-reader"
        )
    size = config.encoder.hidden_size
    words = graph.input("word_rows", "float32", ("batch", "steps", size))
    text_mask = graph.input("text_mask", "float32", ("batch", "steps"))
    cells = graph.input("cells", "float32", ("batch", 1 + grid**2, config.visual_width))
    cell_mask = graph.input("cell_mask", "float32", ("batch", 1 + grid**2))
    text = words
    if not text_layers:
        text = _text_rows(graph, words, reader.encoder.norm, config.encoder.first_position)
    regions = linear(
        graph, cells, reader.region_feature, "cross_encoder.region_feature", exact=exact
    )
    if len(reader.image_layers):
        seen = _attention_bias(graph, cell_mask)
        for number, layer in enumerate(reader.image_layers):
            assert isinstance(layer, TransformerLayer)
            name = f"cross_encoder.image_layers.{number}"
            regions = transformer_layer(graph, regions, layer, name, seen, exact=exact)
    regions = layer_norm(graph, regions, reader.feature_norm, "cross_encoder.feature_norm")
    regions = graph.node("Add", regions, graph.weight("cross_encoder.location"))
    rows = graph.node("Concat", text, regions, axis=1)
    shown = graph.node("Concat", text_mask, cell_mask, axis=1)
    bias = _attention_bias(graph, shown)
    last = len(reader.encoder.layers) - 1
    for number, layer in enumerate(reader.encoder.layers):
        assert isinstance(layer, TransformerLayer)
        name = f"{_ENCODER}.layers.{number}"
        first_only = number == last
        rows = transformer_layer(graph, rows, layer, name, bias, first_only=first_only, exact=exact)
    pooled = graph.node("Squeeze", rows, graph.constant([1], "int64"))
    match = linear(graph, pooled, reader.match, "cross_encoder.match", exact=True)
    match = graph.node("Squeeze", match, graph.constant([1], "int64"))
    graph.output(match, "match", "float32", ("batch",))
    _, inner, _, norm, classifier = model.head
    assert isinstance(inner, nn.Linear)
    assert isinstance(norm, nn.LayerNorm)
    assert isinstance(classifier, nn.Linear)
    answers = graph.node("Gelu", linear(graph, pooled, inner, "head.1", exact=True))
    answers = layer_norm(graph, answers, norm, "head.3")
    answers = linear(graph, answers, classifier, "head.4", exact=True)
    graph.output(answers, "answers", "float32", ("batch", classifier.out_features))
    return graph.build("reader")


def _attention_bias(graph: GraphWriter, shown: str) -> str:
    """Return what is added to attention logits, ``(batch, 1, 1, rows)``, so that 0 hides a row."""
    hidden = graph.node("Sub", graph.constant(1, "float32"), shown)
    bias = graph.node("Mul", hidden, graph.constant(_MASKED, "float32"))
    return graph.node("Unsqueeze", bias, graph.constant([1, 2], "int64"))


def graph_state(state: dict[str, Tensor], model: VQAModel, grid: int) -> dict[str, np.ndarray]:
    """Return a reader's compact state as the graph stores it.

    Boxes of a grid are the same for all pictures: their embedding, with the segment's, becomes one
    matrix. Positions and segments take float16.

    Args:
        state: As `polyglance.nn.linear_compression.linear_compact_state` returns it.
        model: Its shape.
        grid: Cells per side.
    """
    prefix = "cross_encoder."
    boxes = torch.cat([torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.from_numpy(grid_boxes(grid))])
    eps = model.cross_encoder.box_norm.eps
    location = nn.functional.layer_norm(
        nn.functional.linear(
            box_location(boxes.float()),
            state[f"{prefix}region_box.weight"],
            state[f"{prefix}region_box.bias"],
        ),
        [model.cross_encoder.config.encoder.hidden_size],
        state[f"{prefix}box_norm.weight"],
        state[f"{prefix}box_norm.bias"],
        eps,
    )
    stored = {name: value.numpy() for name, value in state.items()}
    stored[f"{prefix}location"] = (location + state[f"{prefix}image_segment"]).numpy()
    for name in ("positions", "segments"):
        stored[f"{_ENCODER}.{name}.weight"] = stored[f"{_ENCODER}.{name}.weight"].astype(np.float16)
    return stored


def _text_rows(graph: GraphWriter, words: str, norm: nn.LayerNorm, first_position: int) -> str:
    """Add positions and segment to word rows, and normalise."""
    zero, one = graph.constant(0, "int64"), graph.constant(1, "int64")
    steps = graph.node("Gather", graph.node("Shape", words), one)
    positions = graph.node("Range", zero, steps, one)
    positions = graph.node("Add", positions, graph.constant(first_position, "int64"))
    table = graph.float_weight(f"{_ENCODER}.positions.weight")
    rows = graph.node("Add", words, graph.node("Gather", table, positions))
    segment = graph.node("Gather", graph.float_weight(f"{_ENCODER}.segments.weight"), zero)
    return layer_norm(graph, graph.node("Add", rows, segment), norm, f"{_ENCODER}.norm")

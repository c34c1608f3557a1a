"""Vision models of transformers as ONNX nodes, traced by ``torch.onnx``."""

from __future__ import annotations

import copy
import io
import warnings

import torch
from onnx import ModelProto

from polyglance.errors import PolyglanceError
from polyglance.export.graph import OPSET, GraphWriter
from polyglance.vision.transformers_backbone import TransformersNetwork

_INPUT, _OUTPUT = "pixel_values", "feature_map"


def tower_feature_map(graph: GraphWriter, x: str, module: TransformersNetwork, name: str) -> str:
    """Add a tower, from (batch, RGB, size, size) to (batch, channels, rows, columns).

    Args:
        graph: The graph, which declares its input ``x`` with a fixed size.
        x: Normalised pictures.
        module: The tower.
        name: Prefix of its weights.
    """
    size = graph.input_shape(x)[2]
    traced = trace_tower(module, int(size))
    [feature_map] = graph.inline(traced, name, {_INPUT: x})
    return feature_map


def trace_tower(module: TransformersNetwork, size: int) -> ModelProto:
    """Return the graph of a tower for pictures of one size and batches of any."""
    module = copy.deepcopy(module).cpu().float().eval()
    written = io.BytesIO()
    with warnings.catch_warnings(), torch.inference_mode():
        # Shapes are fixed but for the batch, so values read while tracing are constants. The
        # exporter is the older one of torch: the newer needs packages of its own.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
                (torch.zeros(2, 3, size, size),),
                written,
                input_names=[_INPUT],
                output_names=[_OUTPUT],
                dynamic_axes={_INPUT: {0: "batch"}, _OUTPUT: {0: "batch"}},
                opset_version=OPSET,
                dynamo=False,
            )
        except Exception as error:  # torch raises anything for an operator that ONNX lacks
            line = " ".join(str(error).split())[:300]
            raise PolyglanceError(
                f"torch.onnx cannot export a {module.tower.config.model_type} ({line}): train on"
                " features of another backbone"
            ) from error
    traced = ModelProto()
    traced.ParseFromString(written.getvalue())
    return traced

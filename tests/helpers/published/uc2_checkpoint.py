"""A checkpoint as UC2's code saves it after fine-tuning for VQA, with random values."""

from __future__ import annotations

import torch
from torch import Tensor

Shapes = dict[str, tuple[int, ...]]


def uc2_vqa_parameters(
    head: str = "vqa_output",
    *,
    width: int = 64,
    words: int = 20,
    positions: int = 16,
    visual_width: int = 6,
    answers: int = 5,
    head_width: int | None = None,
) -> dict[str, Tensor]:
    """Return parameters under the published names: no heads of words and matching.

    ``head`` is UC2's name of the answers' head, or VOLTA's, ``clfs_dict.TASK1.logit_fc``;
    its inner layer has ``head_width``, by default twice the hidden size.
    """
    inner = head_width or 2 * width
    layer, image = "roberta.encoder.layer.0", "roberta.img_embeddings"
    shapes: Shapes = {
        "roberta.embeddings.word_embeddings.weight": (words, width),
        "roberta.embeddings.position_embeddings.weight": (positions, width),
        "roberta.embeddings.new_token_type_embeddings.weight": (2, width),
        f"{image}.mask_embedding.weight": (2, visual_width),
        **_linear(f"{image}.img_linear", width, visual_width),
        **_linear(f"{image}.pos_linear", width, 7),
        **_linear(f"{layer}.intermediate.dense", 4 * width, width),
        **_linear(f"{layer}.output.dense", width, 4 * width),
        **_linear("roberta.pooler.dense", width, width),
        **_linear(f"{head}.0", inner, width),
        **_norm(f"{head}.2", inner),
        **_linear(f"{head}.3", answers, inner),
    }
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        shapes |= _linear(f"{layer}.attention.{part}", width, width)
    for norm in (
        "roberta.embeddings.LayerNorm",
        f"{layer}.attention.output.LayerNorm",
        f"{layer}.output.LayerNorm",
        *(f"{image}.{part}" for part in ("img_layer_norm", "pos_layer_norm", "LayerNorm")),
    ):
        shapes |= _norm(norm, width)
    generator = torch.Generator().manual_seed(0)
    return {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _linear(name: str, outputs: int, inputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}

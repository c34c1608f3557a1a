"""Convert published question-answering checkpoints: UC2's and UNITER's own, and VOLTA's.

All three have the same head on the pooled vector of a pair: linear, GELU, layer norm, linear. UC2
and UNITER call it ``vqa_output``, VOLTA ``clfs_dict.TASK1.logit_fc`` with the number of the task.
Its inner layer has twice the hidden size, in VOLTA's copy of UC2 once that. The order
of its classes is that of the ``ans2label.json`` that the model was trained with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.published_checkpoints import read_checkpoint
from polyglance.models.uc2_checkpoints import convert_uc2
from polyglance.models.vqa import VQAModel

_HEAD = re.compile(
    r"(?:module\.)?(?P<head>vqa_output|clfs_dict\.(?P<task>\w+)\.logit_fc)"
    r"\.(?P<layer>[023])\.(?P<part>weight|bias|gamma|beta)"
)
_OUR_LAYER = {"0": 1, "2": 3, "3": 4}
"""Ours have dropout before them."""
_PART = {"gamma": "weight", "beta": "bias"}


def load_vqa(path: str | Path, *, task: str | None = None) -> VQAModel:
    """Load a published checkpoint that answers questions. Only tensors are unpickled.

    Args:
        path: the file.
        task: of VOLTA's checkpoints with several tasks, the one to load, such as "TASK1".

    Returns:
        The model, in evaluation mode.
    """
    published = read_checkpoint(path).parameters
    try:
        return convert_vqa(published, task=task)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def convert_vqa(published: Mapping[str, Tensor], *, task: str | None = None) -> VQAModel:
    """Build a model of UC2's ``reference`` variant with a published head.

    Args:
        published: parameters by name.
        task: see `load_vqa`.

    Returns:
        The model, in evaluation mode; its heads of matching and words may be untrained.
    """
    head = vqa_head(published, task=task)
    if not head:
        raise DataError("this checkpoint has no head that answers questions")
    cross_encoder = convert_uc2(published, allow_missing_heads=True)
    model = VQAModel(
        cross_encoder,
        len(head["4.bias"]),
        head_width=len(head["1.bias"]),
        answer_embeddings=False,
    )
    shapes = {name: tuple(value.shape) for name, value in model.head.state_dict().items()}
    if shapes != {name: tuple(value.shape) for name, value in head.items()}:
        raise DataError(
            "the head that answers questions is not linear, GELU, layer norm and linear on the"
            " checkpoint's pooler: load the file as it was published"
        )
    model.head.load_state_dict(head)
    return model.eval()


def vqa_head(published: Mapping[str, Tensor], *, task: str | None = None) -> dict[str, Tensor]:
    """Return the head's parameters under our names, such as ``4.bias``; empty if there is none.

    Args:
        published: parameters by name.
        task: see `load_vqa`.
    """
    heads: dict[str, dict[str, Tensor]] = {}
    for name, value in published.items():
        match = _HEAD.fullmatch(name)
        if match is not None and task in (None, match["task"]):
            part = _PART.get(match["part"], match["part"])
            ours = f"{_OUR_LAYER[match['layer']]}.{part}"
            heads.setdefault(match["head"], {})[ours] = value.float()
    if len(heads) > 1:
        tasks = ", ".join(sorted(name.split(".")[1] for name in heads))
        raise DataError(
            f"this checkpoint answers questions of several tasks: choose one of {tasks}"
        )
    head = next(iter(heads.values()), {})
    if head and len(head) < 2 * len(_OUR_LAYER):
        raise DataError("the head that answers questions is incomplete")
    if head and not any("pooler.dense." in name for name in published):
        raise DataError(
            "the checkpoint has a head that answers questions and no pooler, which that head"
            " reads: load the file as it was published"
        )
    return head

"""Convert published checkpoints of UC2 and its relatives, with the names of their own code.

Three naming schemes are supported:

- UC2's code: ``roberta.img_embeddings.img_linear.weight``;
- UNITER's, which it builds on: the same behind ``uniter.`` or ``bert.``, with BERT's positions
  and word head;
- VOLTA's, as IGLUE publishes UC2, mUNITER and xUNITER: regions among the
  ``bert.embeddings``, and each layer counts as two, ``bert.encoder.layer.0.attention_self``
  and ``bert.encoder.layer.1.intermediate``.

Parameters that no objective of UC2 uses (regression and classes of regions, heads of other
tasks) are dropped, as are second names of shared ones; any other unknown name is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.published_checkpoints import (
    HEAD_SIZE,
    ParameterRenaming,
    load_parameters,
    read_checkpoint,
)
from polyglance.models.uc2 import UC2, Pooling, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.meta import on_meta_device

_REQUIRED = (
    "encoder.", "region_feature", "region_box", "region_norm", "feature_norm", "box_norm",
    "image_segment",
)  # fmt: skip
_HEADS = ("match.", "pooler.", "word_transform.", "word_bias")

_UNUSED = (
    "vis_cls.", "feat_regress.", "region_classifier.", "cls.decoder.", "cls.predictions.decoder.",
    "cls.imagePredictions.", "embeddings.position_ids", "vqa_output.",
)  # fmt: skip

_PARTS = {
    "embeddings.word_embeddings": "encoder.words",
    "embeddings.position_embeddings": "encoder.positions",
    "embeddings.LayerNorm": "encoder.norm",
    "img_embeddings.img_linear": "region_feature",
    "img_embeddings.img_layer_norm": "feature_norm",
    "img_embeddings.pos_linear": "region_box",
    "img_embeddings.pos_layer_norm": "box_norm",
    "img_embeddings.LayerNorm": "region_norm",
    "pooler.dense": "pooler.0",
    "itm_output": "match",
    "cls.dense": "word_transform.0",
    "cls.layer_norm": "word_transform.2",
    "cls.predictions.transform.dense": "word_transform.0",
    "cls.predictions.transform.LayerNorm": "word_transform.2",
}
_VOLTA_PARTS = {
    "embeddings.image_embeddings": "img_embeddings.img_linear",
    "embeddings.image_layer_norm": "img_embeddings.img_layer_norm",
    "embeddings.image_location_embeddings": "img_embeddings.pos_linear",
    "embeddings.image_location_layer_norm": "img_embeddings.pos_layer_norm",
    "embeddings.v_LayerNorm": "img_embeddings.LayerNorm",
    "t_pooler.dense": "pooler.dense",
    "cls.bi_seq_relationship": "itm_output",
}
_LAYER_PARTS = {
    "attention.output.dense": "attended",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "widen",
    "output.dense": "narrow",
    "output.LayerNorm": "output_norm",
}


def load_uc2(
    path: str | Path, *, allow_missing_heads: bool = False, pooling: Pooling | None = None
) -> UC2:
    """Load a published checkpoint file. Nothing but tensors and numbers is unpickled.

    Args:
        path: the file.
        allow_missing_heads: see `convert_uc2`.
        pooling: see `convert_uc2`.

    Returns:
        The model, in evaluation mode.
    """
    parameters = read_checkpoint(path).parameters
    return convert_uc2(parameters, allow_missing_heads=allow_missing_heads, pooling=pooling)


def convert_uc2(
    published: Mapping[str, Tensor],
    *,
    allow_missing_heads: bool = False,
    pooling: Pooling | None = None,
) -> UC2:
    """Build a model of the ``reference`` variant with these parameters, in any naming scheme.

    A head fine-tuned for retrieval replaces the matching head's positive class. VOLTA's own
    UNITERs match with two poolers, of words and of the first region, which is the whole image
    (``prepend_global`` in recipes); the five numbers of their boxes are five of our seven.
    VOLTA's files lack the vector of masked regions, which is then zero, as before training.

    Args:
        published: parameters by name.
        allow_missing_heads: initialise the pooler and the heads of matching and words anew where
            the checkpoint lacks them, as fine-tuned ones do; otherwise that is an error.
        pooling: the pooler's activation; None for the one that it was trained with: ``relu`` in
            what VOLTA trained, else ``tanh``, also in VOLTA's copy of UC2's own weights.

    Returns:
        The model, in evaluation mode.
    """
    is_volta = any(".attention_self." in name for name in published)
    weights = _uc2_names(published, is_volta)
    config = _config(weights, is_volta)
    config = config if pooling is None else replace(config, pooling=pooling)
    with on_meta_device():
        model = UC2(config)
    return load_parameters(
        model,
        _rename(weights, config.encoder.num_layers),
        required=_REQUIRED,
        heads=_HEADS,
        allow_missing_heads=allow_missing_heads,
    )


def _uc2_names(published: Mapping[str, Tensor], is_volta: bool) -> dict[str, Tensor]:
    """Return the parameters under the names of UC2's own code, without a prefix."""
    weights = {}
    for name, value in published.items():
        name = re.sub(r"^(module\.)?(roberta\.|uniter\.|bert\.)?", "", name)
        module, _, part = name.rpartition(".")
        part = {"gamma": "weight", "beta": "bias"}.get(part, part)
        module = _VOLTA_PARTS.get(module, module)
        half = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", module) if is_volta else None
        if half is not None:
            if ".v_" in half[2]:
                continue  # the second name of a layer that words and regions share
            layer_part = half[2].replace("attention_", "attention.")
            module = f"encoder.layer.{int(half[1]) // 2}.{layer_part}"
        weights[f"{module}.{part}" if module else part] = value.float()
    return {name: value for name, value in weights.items() if not name.startswith(_UNUSED)}


def _config(weights: Mapping[str, Tensor], is_volta: bool) -> UC2Config:
    """Infer the shape of the model from its parameters, and its epsilons from the names.

    UC2's layers have 1e-12 and its other norms 1e-5; VOLTA's copy has 1e-5 in all; UNITER,
    mUNITER and xUNITER have 1e-12 in all.
    """
    try:
        vocab_size, hidden_size = weights["embeddings.word_embeddings.weight"].shape
        num_layers = sum(
            re.fullmatch(r"encoder\.layer\.\d+\.output\.dense\.bias", name) is not None
            for name in weights
        )
        is_bert = len(weights.get("embeddings.token_type_embeddings.weight", "-")) > 1
        is_uc2 = "embeddings.new_token_type_embeddings.weight" in weights
        encoder = EncoderConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=max(1, hidden_size // HEAD_SIZE),
            intermediate_size=len(weights["encoder.layer.0.intermediate.dense.weight"]),
            max_position_embeddings=len(weights["embeddings.position_embeddings.weight"]),
            first_position=0 if is_bert else 2,
            norm_eps=1e-5 if is_uc2 and is_volta else 1e-12,
            embedding_norm_eps=1e-5 if is_uc2 else None,
        )
        visual_width = weights["img_embeddings.img_linear.weight"].shape[1]
    except (KeyError, ValueError) as error:
        raise DataError(f"this is not a checkpoint of UC2 or UNITER ({error})") from error
    trained_by_volta = any(name.startswith(("clfs_dict.", "v_pooler.")) for name in weights)
    pooler = weights.get("pooler.dense.weight")
    return UC2Config(
        encoder,
        visual_width,
        variant="reference",
        pooling="relu" if trained_by_volta else "tanh",
        image_pooler=any(name.startswith("v_pooler.") for name in weights),
        pooler_size=None if pooler is None or len(pooler) == hidden_size else len(pooler),
    )


def _rename(weights: Mapping[str, Tensor], num_layers: int) -> dict[str, Tensor]:
    """Return the parameters under our names, with queries, keys and values concatenated."""
    renaming = ParameterRenaming(weights)
    remaining, renamed = renaming.remaining, renaming.renamed
    if any(name.startswith("v_pooler.") for name in weights):
        renaming.move("pooler.dense", "pooler.text")
        renaming.move("v_pooler.dense", "pooler.image")
    for theirs, ours in _PARTS.items():
        renaming.move(theirs, ours)
    for number in range(num_layers):
        source, target = f"encoder.layer.{number}", f"encoder.layers.{number}"
        for theirs, ours in _LAYER_PARTS.items():
            renaming.move(f"{source}.{theirs}", f"{target}.{ours}")
        names = [f"{source}.attention.self.{which}" for which in ("query", "key", "value")]
        renaming.concat(names, f"{target}.query_key_value")
    for name in ("cls.bias", "cls.predictions.bias"):
        if name in remaining:
            renamed["word_bias"] = remaining.pop(name)
    if "img_embeddings.mask_embedding.weight" in remaining:
        renamed["region_mask"] = remaining.pop("img_embeddings.mask_embedding.weight")[1]
    renamed |= _segments(remaining)
    renamed |= _matching_head(remaining, renamed)
    if len(columns := renamed.get("region_box.weight", torch.zeros(0, 7)).T) == 5:
        size = torch.zeros(2, columns.shape[1])  # weights of width and height
        renamed["region_box.weight"] = torch.cat([columns[:4], size, columns[4:]]).T.contiguous()
    renaming.check_complete("UC2")
    return renamed


def _segments(remaining: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the segments of text and of images, from one table or, in xUNITER, one each."""
    tables = [
        remaining.pop(f"embeddings.{name}.weight", None)
        for name in (
            "new_token_type_embeddings", "token_type_embeddings", "image_token_type_embeddings",
        )
    ]  # fmt: skip
    present = [table for table in tables if table is not None]
    if not present:
        return {}
    return {"encoder.segments.weight": present[0][:1], "image_segment": present[-1][-1]}


def _matching_head(
    remaining: dict[str, Tensor], renamed: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Take the matching head with the row that was fine-tuned for retrieval, if there is one."""
    pattern = r"rank_output\.weight|clfs_dict\.\w+\.weight"
    head = {}
    for name in [name for name in remaining if re.fullmatch(pattern, name)]:
        if len(remaining[name]) == 1:
            for part in ("weight", "bias"):
                row = remaining[name.replace("weight", part)]
                negative = renamed.get(f"match.{part}", torch.zeros_like(row))[:1]
                head[f"match.{part}"] = torch.cat([negative, row])
    for name in [name for name in remaining if name.startswith(("rank_output.", "clfs_dict."))]:
        del remaining[name]
    return head

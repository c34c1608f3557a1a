"""Convert published M3P checkpoints, with the names of M3P's own code or of VOLTA.

Three naming schemes are supported:

- M3P's code: ``attentions.0.q_lin.weight``, with or without the prefix ``module.``;
- VOLTA's copy of it, as IGLUE publishes: the same behind ``bert.encoder.``, with task heads
  under ``clfs_dict``;
- VOLTA's own encoder, where each layer counts as two: ``bert.encoder.layer.0.attention_self``
  and ``bert.encoder.layer.1.intermediate``.

Parameters that encoding pairs does not use (the decoder's attention, refinement of regions,
latent transforms) are dropped; any other unknown name is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.published_checkpoints import (
    HEAD_SIZE,
    ParameterRenaming,
    load_parameters,
    read_checkpoint,
)
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.meta import on_meta_device

_UNUSED = (
    "refine_embeddings.", "cross_alignment.", "encoder_attn.", "layer_norm15.",
    "image_embeddings.image_distbution_embeddings.", "latent_transforms.",
    "original_transforms.", "pooled_layer2.", "seq_relationship2.", "pred_layer.proj.weight",
)  # fmt: skip
_HEADS = ("match.", "pooler.", "word_bias", "regression.", "label.", "label_transform.")

_PARTS = {
    "embeddings": "encoder.words",
    "position_embeddings": "encoder.positions",
    "layer_norm_emb": "encoder.norm",
    "cross_lang_embeddings": "languages",
    "image_embeddings.image_embeddings": "region_feature",
    "image_embeddings.image_location_embeddings": "region_box",
    "image_embeddings.LayerNorm": "region_norm",
    "pooled_layer.dense": "pooler.0",
    "seq_relationship": "match",
    "mrfr_dense": "regression",
    "transformer_obj.dense": "label_transform.0",
    "transformer_obj.LayerNorm": "label_transform.2",
    "pred_obj_layer.proj": "label",
}
_LAYER_PARTS = {
    "attentions.{}.out_lin": "attended",
    "layer_norm1.{}": "attention_norm",
    "ffns.{}.lin1": "widen",
    "ffns.{}.lin2": "narrow",
    "layer_norm2.{}": "output_norm",
}

_VOLTA_PARTS = {
    "embeddings.word_embeddings": "embeddings",
    "embeddings.position_embeddings": "position_embeddings",
    "embeddings.LayerNorm": "layer_norm_emb",
    "embeddings.image_embeddings": "image_embeddings.image_embeddings",
    "embeddings.image_location_embeddings": "image_embeddings.image_location_embeddings",
    "embeddings.v_LayerNorm": "image_embeddings.LayerNorm",
    "t_pooler.dense": "pooled_layer.dense",
}
_VOLTA_LAYER_PARTS = {
    "attention_self.query": "attentions.{}.q_lin",
    "attention_self.key": "attentions.{}.k_lin",
    "attention_self.value": "attentions.{}.v_lin",
    "attention_output.dense": "attentions.{}.out_lin",
    "attention_output.LayerNorm": "layer_norm1.{}",
    "intermediate.dense": "ffns.{}.lin1",
    "output.dense": "ffns.{}.lin2",
    "output.LayerNorm": "layer_norm2.{}",
}


def load_m3p(
    path: str | Path,
    *,
    languages: Sequence[str] | None = None,
    allow_missing_heads: bool = False,
) -> M3P:
    """Load a published checkpoint file. Nothing but tensors and numbers is unpickled.

    Args:
        path: the file.
        languages: names of the rows of its language embeddings; by default those that the
            checkpoint's ``lang2id`` gives, else numbers.
        allow_missing_heads: see `convert_m3p`.

    Returns:
        The model, in evaluation mode.
    """
    checkpoint = read_checkpoint(path)
    if checkpoint.settings.get("refine_image"):
        raise DataError(
            f"{path} was trained with refine_image, whose layers over regions polyglance does not"
            " have: use a checkpoint trained with --refine_image False, as the published one"
        )
    if languages is None:
        languages = _language_names(checkpoint.settings.get("lang2id"))
    return convert_m3p(
        checkpoint.parameters, languages=languages, allow_missing_heads=allow_missing_heads
    )


def convert_m3p(
    published: Mapping[str, Tensor],
    *,
    languages: Sequence[str] | None = None,
    allow_missing_heads: bool = False,
) -> M3P:
    """Build a model of the ``reference`` variant with these parameters, in any naming scheme.

    A head that VOLTA fine-tuned for retrieval replaces the matching head. Without language
    embeddings, which VOLTA's own encoder lacks, they are zero.

    Args:
        published: parameters by name.
        languages: names of the rows of its language embeddings; by default they are numbered.
        allow_missing_heads: initialise the pooler and the heads of matching, words and regions
            anew where the checkpoint lacks them, as VOLTA's do; otherwise that is an error.

    Returns:
        The model, in evaluation mode.
    """
    weights = {_m3p_name(name): value.float() for name, value in published.items()}
    weights = {name: value for name, value in weights.items() if not name.startswith(_UNUSED)}
    config = _config(weights, languages)
    with on_meta_device():
        model = M3P(config)
    return load_parameters(
        model,
        _rename(weights, config.encoder.num_layers),
        required=("encoder.layers", "encoder.words", "encoder.positions", "encoder.norm", "region"),
        heads=_HEADS,
        allow_missing_heads=allow_missing_heads,
    )


def _language_names(lang2id: object) -> tuple[str, ...] | None:
    """Return languages by their number, or None if they are not numbered from 0 on."""
    if not isinstance(lang2id, Mapping):
        return None
    names = sorted(lang2id, key=lambda name: int(lang2id[name]))
    return tuple(names) if [lang2id[name] for name in names] == list(range(len(names))) else None


def _m3p_name(name: str) -> str:
    """Return a parameter's name in M3P's own code."""
    name = name.removeprefix("module.")
    if not name.startswith("bert."):
        return name
    name = name.removeprefix("bert.")
    name = re.sub(r"^pooler\.", "encoder.pooled_layer.", name)
    module, _, part = name.rpartition(".")
    if module in _VOLTA_PARTS:
        return f"{_VOLTA_PARTS[module]}.{part}"
    layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", module)
    if layer is None:
        return name.removeprefix("encoder.")
    number, layer_part = int(layer[1]), layer[2]
    if layer_part.startswith("attention_") and number % 2:
        number *= 2  # VOLTA's own table of names says 11 in one place where 22 is meant
    if layer_part not in _VOLTA_LAYER_PARTS:
        raise DataError(f"{name} is not a parameter of M3P")
    return f"{_VOLTA_LAYER_PARTS[layer_part].format(number // 2)}.{part}"


def _config(weights: Mapping[str, Tensor], languages: Sequence[str] | None) -> M3PConfig:
    """Infer the shape of the model from its parameters."""
    try:
        vocab_size, hidden_size = weights["embeddings.weight"].shape
        encoder = EncoderConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_layers=sum(name.startswith("layer_norm2.") for name in weights) // 2,
            num_heads=max(1, hidden_size // HEAD_SIZE),
            intermediate_size=weights["ffns.0.lin1.weight"].shape[0],
            max_position_embeddings=weights["position_embeddings.weight"].shape[0],
            first_position=0,
            norm_eps=1e-12,
        )
        visual_width = weights["image_embeddings.image_embeddings.weight"].shape[1]
    except (KeyError, ValueError) as error:
        raise DataError(f"this is not a checkpoint of M3P ({error})") from error
    embeddings = weights.get("cross_lang_embeddings.weight")
    count = len(languages or "1") if embeddings is None else len(embeddings)
    names = tuple(map(str, range(count))) if languages is None else tuple(languages)
    if len(names) != count:
        raise DataError(f"the checkpoint has embeddings of {count} languages, not {len(names)}")
    labels = weights.get("pred_obj_layer.proj.weight")
    return M3PConfig(
        encoder=encoder,
        languages=names,
        visual_width=visual_width,
        num_labels=1600 if labels is None else len(labels),
        variant="reference",
    )


def _rename(weights: Mapping[str, Tensor], num_layers: int) -> dict[str, Tensor]:
    """Return the parameters under our names, with queries, keys and values concatenated."""
    renaming = ParameterRenaming(weights)
    for theirs, ours in _PARTS.items():
        renaming.move(theirs, ours)
    heads = [n for n in renaming.remaining if re.fullmatch(r"clfs_dict\.\w+\.weight", n)]
    for head in heads:
        if len(renaming.remaining[head]) == 1:
            renaming.move(head.removesuffix(".weight"), "match")
    for name in [name for name in renaming.remaining if name.startswith("clfs_dict.")]:
        del renaming.remaining[name]
    if "pred_layer.proj.bias" in renaming.remaining:
        renaming.renamed["word_bias"] = renaming.remaining.pop("pred_layer.proj.bias")
    for number in range(num_layers):
        target = f"encoder.layers.{number}"
        for theirs, ours in _LAYER_PARTS.items():
            renaming.move(theirs.format(number), f"{target}.{ours}")
        names = [f"attentions.{number}.{which}_lin" for which in "qkv"]
        renaming.concat(names, f"{target}.query_key_value")
    renaming.check_complete("M3P")
    return renaming.renamed

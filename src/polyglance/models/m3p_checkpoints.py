"""Published M3P checkpoints, under the names of M3P's own code or of VOLTA, as our model.

Three ways of naming the same parameters are known:

- M3P's code: ``attentions.0.q_lin.weight``, with or without ``module.`` before it;
- VOLTA's copy of it, as IGLUE publishes: the same behind ``bert.encoder.``, with the
  heads of tasks as ``clfs_dict``;
- VOLTA's own encoder, where a layer is two: ``bert.encoder.layer.0.attention_self``
  and ``bert.encoder.layer.1.intermediate``.

Parameters that reading pairs does not use (the decoder's attention, refinement of
regions, latent transforms) are left out; any other name that is not known is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.published import read_parameters
from polyglance.nn.encoder import EncoderConfig

_HEAD_WIDTH = 64
"""Of an attention head, in XLM-R of any size."""

_UNUSED = (
    "refine_embeddings.", "cross_alignment.", "encoder_attn.", "layer_norm15.",
    "image_embeddings.image_distbution_embeddings.", "latent_transforms.",
    "original_transforms.", "pooled_layer2.", "seq_relationship2.", "pred_layer.proj.weight",
)  # fmt: skip

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
_IN_LAYER = {
    "attentions.{}.out_lin": "attended",
    "layer_norm1.{}": "attention_norm",
    "ffns.{}.lin1": "widen",
    "ffns.{}.lin2": "narrow",
    "layer_norm2.{}": "output_norm",
}

_OF_VOLTA = {
    "embeddings.word_embeddings": "embeddings",
    "embeddings.position_embeddings": "position_embeddings",
    "embeddings.LayerNorm": "layer_norm_emb",
    "embeddings.image_embeddings": "image_embeddings.image_embeddings",
    "embeddings.image_location_embeddings": "image_embeddings.image_location_embeddings",
    "embeddings.v_LayerNorm": "image_embeddings.LayerNorm",
    "t_pooler.dense": "pooled_layer.dense",
}
_OF_VOLTA_LAYERS = {
    "attention_self.query": "attentions.{}.q_lin",
    "attention_self.key": "attentions.{}.k_lin",
    "attention_self.value": "attentions.{}.v_lin",
    "attention_output.dense": "attentions.{}.out_lin",
    "attention_output.LayerNorm": "layer_norm1.{}",
    "intermediate.dense": "ffns.{}.lin1",
    "output.dense": "ffns.{}.lin2",
    "output.LayerNorm": "layer_norm2.{}",
}


def load_m3p(path: str | Path, *, languages: Sequence[str] | None = None) -> M3P:
    """The model of a published checkpoint file.

    ``languages`` are those of its language embeddings, in their order; without
    them these are numbered. Nothing but tensors is unpickled.
    """
    return convert_m3p(read_parameters(path), languages=languages)


def convert_m3p(published: Mapping[str, Tensor], *, languages: Sequence[str] | None = None) -> M3P:
    """A model in the ``reference`` layout with these parameters, whoever named them.

    Heads that a checkpoint lacks stay untrained. A head that VOLTA fine-tuned for
    retrieval takes the place of the one for matching.
    """
    weights = {_name(name): value.float() for name, value in published.items()}
    weights = {name: value for name, value in weights.items() if not name.startswith(_UNUSED)}
    config = _config(weights, languages)
    torch.manual_seed(0)
    model = M3P(config)
    state = dict(model.state_dict())
    state["encoder.segments.weight"] = torch.zeros_like(state["encoder.segments.weight"])
    found = _renamed(weights, config.encoder.num_layers)
    for name, value in found.items():
        if name not in state or state[name].shape != value.shape:
            wanted = tuple(state[name].shape) if name in state else "nothing of that name"
            raise DataError(
                f"the checkpoint's {name} is of shape {tuple(value.shape)}, expected {wanted}"
            )
    missing = [n for n in state if n.startswith(("encoder.", "region_")) and n not in found]
    if missing != ["encoder.segments.weight"]:
        raise DataError(f"the checkpoint lacks what makes {', '.join(missing[:3])}")
    model.load_state_dict(state | found)
    return model.eval()


def _name(name: str) -> str:
    """A parameter's name as M3P's own code has it."""
    name = name.removeprefix("module.")
    if not name.startswith("bert."):
        return name
    name = name.removeprefix("bert.")
    name = re.sub(r"^pooler\.", "encoder.pooled_layer.", name)
    where, _, part = name.rpartition(".")
    if where in _OF_VOLTA:
        return f"{_OF_VOLTA[where]}.{part}"
    layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", where)
    if layer is None:
        return name.removeprefix("encoder.")
    number, inside = int(layer[1]), layer[2]
    if inside.startswith("attention_") and number % 2:
        number *= 2  # VOLTA's own table of names says 11 in one place where 22 is meant
    if inside not in _OF_VOLTA_LAYERS:
        raise DataError(f"{name} is no parameter of M3P")
    return f"{_OF_VOLTA_LAYERS[inside].format(number // 2)}.{part}"


def _config(weights: Mapping[str, Tensor], languages: Sequence[str] | None) -> M3PConfig:
    """The shape of the model, read off its parameters."""
    try:
        vocabulary, width = weights["embeddings.weight"].shape
        layers = sum(name.startswith("layer_norm2.") for name in weights) // 2
        encoder = EncoderConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_layers=layers,
            num_heads=max(1, width // _HEAD_WIDTH),
            intermediate_size=weights["ffns.0.lin1.weight"].shape[0],
            max_position_embeddings=weights["position_embeddings.weight"].shape[0],
            first_position=0,
            norm_eps=1e-12,
        )
        visual_width = weights["image_embeddings.image_embeddings.weight"].shape[1]
    except (KeyError, ValueError) as error:
        raise DataError(f"the checkpoint is not one of M3P ({error})") from error
    told = weights.get("cross_lang_embeddings.weight")
    count = len(languages or "1") if told is None else len(told)
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


def _renamed(weights: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The parameters under our names, queries, keys and values stacked."""
    left = dict(weights)
    found: dict[str, Tensor] = {}

    def move(theirs: str, ours: str) -> None:
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in left:
                found[f"{ours}.{part}"] = left.pop(f"{theirs}.{part}")

    for theirs, ours in _PARTS.items():
        move(theirs, ours)
    for head in [name for name in left if re.fullmatch(r"clfs_dict\.\w+\.weight", name)]:
        if len(left[head]) == 1:
            move(head.removesuffix(".weight"), "match")
    left = {name: value for name, value in left.items() if not name.startswith("clfs_dict.")}
    if "pred_layer.proj.bias" in left:
        found["word_bias"] = left.pop("pred_layer.proj.bias")
    for number in range(layers):
        target = f"encoder.layers.{number}"
        for theirs, ours in _IN_LAYER.items():
            move(theirs.format(number), f"{target}.{ours}")
        for part in ("weight", "bias"):
            names = [f"attentions.{number}.{which}_lin.{part}" for which in "qkv"]
            if all(name in left for name in names):
                stacked = torch.cat([left.pop(name) for name in names])
                found[f"{target}.query_key_value.{part}"] = stacked
    if left:
        raise DataError(f"{', '.join(sorted(left)[:3])}: no parameter of M3P is called that")
    return found

"""Published checkpoints of UC2 and its relatives, under the names of their own code, as our model.

Three ways of naming the same parameters are known:

- UC2's code: ``roberta.img_embeddings.img_linear.weight``;
- UNITER's, from which it comes: the same behind ``uniter.`` or ``bert.``, with BERT's
  positions and head of words;
- VOLTA's, as IGLUE publishes UC2, mUNITER and xUNITER: regions among the
  ``bert.embeddings``, and a layer is two, ``bert.encoder.layer.0.attention_self`` and
  ``bert.encoder.layer.1.intermediate``.

Parameters that no objective of UC2 uses (regression and classes of regions, answers of
other tasks) are left out, as are second names of shared ones; any other name that is
not known is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.published import read_parameters
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig

_HEAD_WIDTH = 64
"""Of an attention head, in BERT and XLM-R of any size."""

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
_OF_VOLTA = {
    "embeddings.image_embeddings": "img_embeddings.img_linear",
    "embeddings.image_layer_norm": "img_embeddings.img_layer_norm",
    "embeddings.image_location_embeddings": "img_embeddings.pos_linear",
    "embeddings.image_location_layer_norm": "img_embeddings.pos_layer_norm",
    "embeddings.v_LayerNorm": "img_embeddings.LayerNorm",
    "t_pooler.dense": "pooler.dense",
    "cls.bi_seq_relationship": "itm_output",
}
_IN_LAYER = {
    "attention.output.dense": "attended",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "widen",
    "output.dense": "narrow",
    "output.LayerNorm": "output_norm",
}


def load_uc2(path: str | Path) -> UC2:
    """The model of a published checkpoint file. Nothing but tensors is unpickled."""
    return convert_uc2(read_parameters(path))


def convert_uc2(published: Mapping[str, Tensor]) -> UC2:
    """A model in the ``reference`` form with these parameters, whoever named them.

    Heads that a checkpoint lacks stay untrained. One fine-tuned for retrieval takes the
    place of the row of matching that says yes. VOLTA's own UNITERs match by two
    poolers, of words and of regions: theirs is left out, and what is to match must be
    fine-tuned; the five numbers of their boxes are five of our seven.
    """
    weights = _plain(published)
    if any(name.startswith("v_pooler.") for name in weights):
        heads = ("v_pooler.", "pooler.", "itm_output.", "clfs_dict.")
        weights = {name: value for name, value in weights.items() if not name.startswith(heads)}
    config = _config(weights)
    torch.manual_seed(0)
    model = UC2(config)
    state = dict(model.state_dict())
    found = _renamed(weights, config.encoder.num_layers)
    for name, value in found.items():
        if name not in state or state[name].shape != value.shape:
            wanted = tuple(state[name].shape) if name in state else "nothing of that name"
            raise DataError(
                f"the checkpoint's {name} is of shape {tuple(value.shape)}, expected {wanted}"
            )
    needed = ("encoder.", "region_feature", "region_box", "region_norm", "feature_norm", "box_norm")
    if missing := [name for name in state if name.startswith(needed) and name not in found]:
        raise DataError(f"the checkpoint lacks what makes {', '.join(missing[:3])}")
    model.load_state_dict(state | found)
    return model.eval()


def _plain(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters under the names of UC2's own code, without what stands before them all."""
    halved = any(".attention_self." in name for name in published)  # VOLTA's layers are halves
    found = {}
    for name, value in published.items():
        name = re.sub(r"^(module\.)?(roberta\.|uniter\.|bert\.)?", "", name)
        where, _, part = name.rpartition(".")
        part = {"gamma": "weight", "beta": "bias"}.get(part, part)
        where = _OF_VOLTA.get(where, where)
        half = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", where) if halved else None
        if half is not None:
            if ".v_" in half[2]:
                continue  # the second name of a layer that words and regions share
            where = (
                f"encoder.layer.{int(half[1]) // 2}.{half[2].replace('attention_', 'attention.')}"
            )
        found[f"{where}.{part}" if where else part] = value.float()
    return {name: value for name, value in found.items() if not name.startswith(_UNUSED)}


def _config(weights: Mapping[str, Tensor]) -> UC2Config:
    """The shape of the model, read off its parameters."""
    try:
        vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
        layers = sum(
            re.fullmatch(r"encoder\.layer\.\d+\.output\.dense\.bias", name) is not None
            for name in weights
        )
        of_bert = len(weights.get("embeddings.token_type_embeddings.weight", "-")) > 1
        encoder = EncoderConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_layers=layers,
            num_heads=max(1, width // _HEAD_WIDTH),
            intermediate_size=len(weights["encoder.layer.0.intermediate.dense.weight"]),
            max_position_embeddings=len(weights["embeddings.position_embeddings.weight"]),
            first_position=0 if of_bert else 2,
            norm_eps=1e-12 if of_bert else 1e-5,
        )
        visual_width = weights["img_embeddings.img_linear.weight"].shape[1]
    except (KeyError, ValueError) as error:
        raise DataError(f"the checkpoint is not one of UC2 or UNITER ({error})") from error
    by_volta = any(name.startswith("clfs_dict.") for name in weights)
    return UC2Config(
        encoder, visual_width, variant="reference", pooling="relu" if by_volta else "tanh"
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
    for number in range(layers):
        source, target = f"encoder.layer.{number}", f"encoder.layers.{number}"
        for theirs, ours in _IN_LAYER.items():
            move(f"{source}.{theirs}", f"{target}.{ours}")
        for part in ("weight", "bias"):
            names = [f"{source}.attention.self.{n}.{part}" for n in ("query", "key", "value")]
            if all(name in left for name in names):
                stacked = torch.cat([left.pop(name) for name in names])
                found[f"{target}.query_key_value.{part}"] = stacked
    for name in ("cls.bias", "cls.predictions.bias"):
        if name in left:
            found["word_bias"] = left.pop(name)
    if "img_embeddings.mask_embedding.weight" in left:
        found["region_mask"] = left.pop("img_embeddings.mask_embedding.weight")[1]
    found |= _segments(left) | _ranking(left, found)
    if len(columns := found.get("region_box.weight", torch.zeros(0, 7)).T) == 5:
        nothing = torch.zeros(2, columns.shape[1])  # of width and height
        found["region_box.weight"] = torch.cat([columns[:4], nothing, columns[4:]]).T.contiguous()
    if left:
        raise DataError(f"{', '.join(sorted(left)[:3])}: no parameter of UC2 is called that")
    return found


def _segments(left: dict[str, Tensor]) -> dict[str, Tensor]:
    """The vectors of text and of pictures, of one table or, in xUNITER, of one each."""
    tables = [
        left.pop(f"embeddings.{name}.weight", None)
        for name in (
            "new_token_type_embeddings", "token_type_embeddings", "image_token_type_embeddings",
        )
    ]  # fmt: skip
    known = [table for table in tables if table is not None]
    if not known:
        return {}
    return {"encoder.segments.weight": known[0][:1], "image_segment": known[-1][-1]}


def _ranking(left: dict[str, Tensor], found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The matching head with the row that retrieval was fine-tuned by, where there is one."""
    heads = [n for n in left if re.fullmatch(r"rank_output\.weight|clfs_dict\.\w+\.weight", n)]
    tuned = {}
    for head in heads:
        if len(left[head]) == 1:
            for part in ("weight", "bias"):
                row = left[head.replace("weight", part)]
                before = found.get(f"match.{part}", torch.zeros_like(row))[:1]
                tuned[f"match.{part}"] = torch.cat([before, row])
    for name in [name for name in left if name.startswith(("rank_output.", "clfs_dict."))]:
        del left[name]
    return tuned

"""Names of UC2's parameters in VOLTA's code."""

from __future__ import annotations

import re


def volta_name(name: str) -> str | None:
    """Return the name in VOLTA, which splits layers in two; None if it has none."""
    name = name.replace("roberta.", "bert.")
    for theirs, volta in {
        "img_embeddings.img_linear": "embeddings.image_embeddings",
        "img_embeddings.pos_linear": "embeddings.image_location_embeddings",
        "img_embeddings.img_layer_norm": "embeddings.image_layer_norm",
        "img_embeddings.pos_layer_norm": "embeddings.image_location_layer_norm",
        "img_embeddings.LayerNorm": "embeddings.v_LayerNorm",
        "pooler": "t_pooler",
        "cls.dense": "cls.predictions.transform.dense",
        "cls.layer_norm": "cls.predictions.transform.LayerNorm",
        "cls.bias": "cls.predictions.bias",
        "cls.decoder": "cls.predictions.decoder",
        "itm_output": "cls.bi_seq_relationship",
    }.items():
        if not name.startswith("vis_cls"):
            name = name.replace(theirs, volta)
    if re.match(r"vis_cls|feat_regress|region_classifier|.*mask_embedding", name):
        return None
    layer = re.fullmatch(r"bert\.encoder\.layer\.(\d+)\.(.+)", name)
    if layer is None:
        return name
    second = layer[2].startswith(("intermediate", "output"))
    inside = layer[2].replace("attention.", "attention_")
    return f"bert.encoder.layer.{2 * int(layer[1]) + second}.{inside}"

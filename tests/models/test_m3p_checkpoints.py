"""Conversion of checkpoints with exactly the published names and random values."""

from __future__ import annotations

import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.m3p import M3P
from polyglance.models.m3p_checkpoints import convert_m3p, load_m3p
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing

WIDTH, LAYERS, WORDS, POSITIONS, VISUAL_WIDTH, LANGUAGES = 128, 2, 30, 20, 12, 3


def linear(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def norm(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (WIDTH,)
    yield f"{name}.bias", (WIDTH,)


def published_shapes() -> dict[str, tuple[int, ...]]:
    """Return all parameters of M3P's published code, used or not, with one refining layer."""
    shapes: dict[str, tuple[int, ...]] = {
        "position_embeddings.weight": (POSITIONS, WIDTH),
        "cross_lang_embeddings.weight": (LANGUAGES, WIDTH),
        "embeddings.weight": (WORDS, WIDTH),
    }
    shapes |= norm("layer_norm_emb")
    shapes |= linear("image_embeddings.image_embeddings", WIDTH, VISUAL_WIDTH)
    shapes |= linear("image_embeddings.image_distbution_embeddings", WIDTH, 1600)
    shapes |= linear("image_embeddings.image_location_embeddings", WIDTH, 5)
    shapes |= norm("image_embeddings.LayerNorm")
    refining = "refine_embeddings.layers.0"
    for number in range(3):
        shapes |= linear(f"{refining}.self_attn.linears.{number}", WIDTH, WIDTH)
    shapes |= linear(f"{refining}.self_attn.aoa_layer.0", 2 * WIDTH, 2 * WIDTH)
    shapes |= linear(f"{refining}.feed_forward.lin1", 4 * WIDTH, WIDTH)
    shapes |= linear(f"{refining}.feed_forward.lin2", WIDTH, 4 * WIDTH)
    for number in range(2):
        shapes |= norm(f"{refining}.sublayer.{number}.norm")
    shapes |= norm("refine_embeddings.norm")
    for name in ("c", "q", "cq"):
        shapes |= linear(f"cross_alignment.att_weight_{name}", 1, WIDTH)
    shapes |= linear("cross_alignment.align_output", WIDTH, WIDTH)
    shapes |= norm("cross_alignment.layer_norm")
    for number in range(LAYERS):
        for part in ("q_lin", "k_lin", "v_lin", "out_lin"):
            shapes |= linear(f"attentions.{number}.{part}", WIDTH, WIDTH)
            shapes |= linear(f"encoder_attn.{number}.{part}", WIDTH, WIDTH)
        shapes |= linear(f"ffns.{number}.lin1", 4 * WIDTH, WIDTH)
        shapes |= linear(f"ffns.{number}.lin2", WIDTH, 4 * WIDTH)
        for which in ("1", "15", "2"):
            shapes |= norm(f"layer_norm{which}.{number}")
    shapes |= linear("pooled_layer.dense", WIDTH, WIDTH)
    shapes |= linear("seq_relationship", 1, WIDTH)
    shapes |= linear("mrfr_dense", VISUAL_WIDTH, WIDTH)
    shapes |= linear("transformer_obj.dense", WIDTH, WIDTH)
    shapes |= norm("transformer_obj.LayerNorm")
    shapes |= linear("pred_layer.proj", WORDS, WIDTH)
    shapes |= linear("pred_obj_layer.proj", 1600, WIDTH)
    return shapes


def filled(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


PUBLISHED = filled(published_shapes())


def test_a_checkpoint_of_the_published_size_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, since the model has 280 million parameters."""
    sizes = {"WIDTH": 768, "LAYERS": 12, "WORDS": 250_002, "POSITIONS": 514, "VISUAL_WIDTH": 2048}
    for name, size in (sizes | {"LANGUAGES": 100}).items():
        monkeypatch.setitem(globals(), name, size)
    with torch.device("meta"):
        model = convert_m3p(
            {name: torch.empty(shape) for name, shape in published_shapes().items()}
        )
    encoder = model.config.encoder
    assert (encoder.vocab_size, encoder.max_position_embeddings) == (250_002, 514)
    assert (
        encoder.hidden_size,
        encoder.num_layers,
        encoder.num_heads,
        encoder.intermediate_size,
    ) == (768, 12, 12, 3072)
    assert (model.config.visual_width, model.config.num_labels) == (2048, 1600)
    assert len(model.config.languages) == 100


def slow_scores(weights: dict[str, Tensor], ids: Tensor, features: Tensor, boxes: Tensor) -> Tensor:
    """Compute the published model's score of one pair from its own parameters."""

    def layer(name: str, rows: Tensor) -> Tensor:
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normed(name: str, rows: Tensor) -> Tensor:
        centred = rows - rows.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    area = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))[:, None]
    spatial = torch.cat([boxes, area], 1)
    spatial, features = (rows / rows.norm(dim=1, keepdim=True) for rows in (spatial, features))
    regions = layer("image_embeddings.image_embeddings", features)
    regions = regions + layer("image_embeddings.image_location_embeddings", spatial)
    regions = normed("image_embeddings.LayerNorm", regions)
    rows = torch.cat([regions, weights["embeddings.weight"][ids]])
    rows = normed("layer_norm_emb", rows + weights["position_embeddings.weight"][: len(rows)])
    for number in range(LAYERS):
        query, key, value = (
            layer(f"attentions.{number}.{part}", rows).view(len(rows), 2, 64).transpose(0, 1)
            for part in ("q_lin", "k_lin", "v_lin")
        )
        attention = (query @ key.transpose(1, 2) / 8).softmax(-1) @ value
        attended = layer(f"attentions.{number}.out_lin", attention.transpose(0, 1).flatten(1))
        rows = normed(f"layer_norm1.{number}", rows + attended)
        inner = torch.nn.functional.gelu(layer(f"ffns.{number}.lin1", rows))
        rows = normed(f"layer_norm2.{number}", rows + layer(f"ffns.{number}.lin2", inner))
    return layer("seq_relationship", layer("pooled_layer.dense", rows[:1]).tanh())[0]


IDS = torch.tensor([0, 7, 19, 2])
FEATURES, BOXES = torch.rand(3, VISUAL_WIDTH), torch.tensor([[0.1, 0.2, 0.6, 0.9]]).repeat(3, 1)


@torch.no_grad()
def score(model: M3P) -> Tensor:
    regions = model.embed_regions(Regions(FEATURES, BOXES, Packing.of([3])))
    return model.score(Text(IDS, Packing.of([4]), None), regions)


def test_a_converted_checkpoint_scores_as_the_published_code() -> None:
    prefixed = {f"module.{name}": value for name, value in PUBLISHED.items()}
    for weights in (PUBLISHED, prefixed):
        model = convert_m3p(weights, languages=("en", "de", "image"))
        expected = slow_scores(PUBLISHED, IDS, FEATURES, BOXES)
        torch.testing.assert_close(score(model), expected, rtol=0, atol=1e-4)
    assert model.config.languages == ("en", "de", "image")
    assert model.config.num_labels == 1600
    state = model.state_dict()
    assert torch.equal(state["word_bias"], PUBLISHED["pred_layer.proj.bias"])
    assert torch.equal(state["label.weight"], PUBLISHED["pred_obj_layer.proj.weight"])
    assert torch.equal(state["regression.bias"], PUBLISHED["mrfr_dense.bias"])
    assert torch.equal(state["languages.weight"], PUBLISHED["cross_lang_embeddings.weight"])
    assert torch.equal(
        state["label_transform.2.weight"], PUBLISHED["transformer_obj.LayerNorm.weight"]
    )


def test_iglues_copy_is_the_same_model_with_its_task_head() -> None:
    weights = {f"bert.encoder.{name}": value for name, value in PUBLISHED.items()}
    weights |= {
        f"bert.pooler.dense.{part}": PUBLISHED[f"pooled_layer.dense.{part}"]
        for part in ("weight", "bias")
    }
    weights |= {
        f"bert.encoder.{name}": value
        for name, value in filled(
            dict(linear("pooled_layer2.dense", WIDTH, WIDTH))
            | dict(linear("seq_relationship2", 1, WIDTH))
            | dict(linear("latent_transforms.0.x_to_mu", WIDTH, WIDTH))
            | dict(linear("original_transforms.1.dense_mu", WIDTH, WIDTH))
        ).items()
    }
    pretrained = convert_m3p(weights)
    expected = slow_scores(PUBLISHED, IDS, FEATURES, BOXES)
    torch.testing.assert_close(score(pretrained), expected, rtol=0, atol=1e-4)
    assert pretrained.config.languages == ("0", "1", "2")
    head = filled(dict(linear("clfs_dict.TASK8", 1, WIDTH)))
    answers = filled(dict(linear("clfs_dict.TASK15.logit_fc.0", 9, WIDTH)))
    fine_tuned = convert_m3p(weights | head | answers)
    swapped = PUBLISHED | {
        f"seq_relationship.{part}": head[f"clfs_dict.TASK8.{part}"] for part in ("weight", "bias")
    }
    expected = slow_scores(swapped, IDS, FEATURES, BOXES)
    torch.testing.assert_close(score(fine_tuned), expected, rtol=0, atol=1e-4)


def volta_name(name: str) -> str | None:
    """Return the name in VOLTA's own encoder, which splits layers in two; None if it has none."""
    where, _, part = name.rpartition(".")
    outside = {
        "embeddings": "embeddings.word_embeddings",
        "position_embeddings": "embeddings.position_embeddings",
        "layer_norm_emb": "embeddings.LayerNorm",
        "image_embeddings.image_embeddings": "embeddings.image_embeddings",
        "image_embeddings.image_location_embeddings": "embeddings.image_location_embeddings",
        "image_embeddings.LayerNorm": "embeddings.v_LayerNorm",
        "pooled_layer.dense": "t_pooler.dense",
    }
    if where in outside:
        return f"bert.{outside[where]}.{part}"
    inside = re.fullmatch(r"(attentions|layer_norm1|ffns|layer_norm2)\.(\d+)\.?(.*)", where)
    if inside is None:
        return None
    kind, number, which = inside[1], int(inside[2]), inside[3]
    names = {
        "q_lin": "attention_self.query", "k_lin": "attention_self.key",
        "v_lin": "attention_self.value", "out_lin": "attention_output.dense",
        "lin1": "intermediate.dense", "lin2": "output.dense",
    }  # fmt: skip
    norms = {"layer_norm1": "attention_output.LayerNorm", "layer_norm2": "output.LayerNorm"}
    second = kind in ("ffns", "layer_norm2")
    return f"bert.encoder.layer.{2 * number + second}.{norms.get(kind) or names[which]}.{part}"


def test_voltas_names_with_split_layers_are_converted() -> None:
    named = {volta_name(name): value for name, value in PUBLISHED.items()}
    weights = {name: value for name, value in named.items() if name is not None}
    assert "bert.encoder.layer.3.intermediate.dense.weight" in weights
    head = {
        f"clfs_dict.TASK8.{part}": PUBLISHED[f"seq_relationship.{part}"]
        for part in ("weight", "bias")
    }
    expected = slow_scores(PUBLISHED, IDS, FEATURES, BOXES)
    with pytest.raises(DataError, match="lacks the heads label, label_transform, regression, w"):
        convert_m3p(weights | head)
    model = convert_m3p(weights | head, allow_missing_heads=True)
    torch.testing.assert_close(score(model), expected, rtol=0, atol=1e-4)
    # VOLTA's table misnames one parameter of the twelve layers, recognisable by its odd number.
    twelfth = "bert.encoder.layer.1.attention_output.dense.weight"
    misnamed = dict(weights)
    misnamed[twelfth] = misnamed.pop("bert.encoder.layer.2.attention_output.dense.weight")
    model = convert_m3p(misnamed | head, allow_missing_heads=True)
    torch.testing.assert_close(score(model), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_the_authors_file_with_scores_and_settings_loads(tmp_path: Path, module: str) -> None:
    """M3P's trainer saves numpy's numbers, by the name that numpy 1 or 2 pickles them with."""
    path = tmp_path / "checkpoint.pth"
    settings = {
        "lang2id": {"de": 2, "en": 0, "zh": 1},
        "id2lang": {0: "en", 1: "zh", 2: "de"},
        "refine_image": False,
        "optimizer": "adam_inverse_sqrt,beta1=0.9,beta2=0.98,lr=0.00005",
    }
    checkpoint = {
        "epoch": 22,
        "best_metrics": {"valid_I2T_acc": np.float64(77.5), "valid_T2I_acc": np.float32(70)},
        "model": {f"module.{name}": value for name, value in PUBLISHED.items()},
        "params": settings,
    }
    torch.save(checkpoint, path)
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content.replace(b"numpy._core.multiarray", module.encode()))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    model = load_m3p(path)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.config.languages == ("en", "zh", "de")
    assert torch.equal(model.languages.weight, PUBLISHED["cross_lang_embeddings.weight"])
    expected = slow_scores(PUBLISHED, IDS, FEATURES, BOXES)
    torch.testing.assert_close(score(model), expected, rtol=0, atol=1e-4)
    assert load_m3p(path, languages=("a", "b", "c")).config.languages == ("a", "b", "c")

    settings["lang2id"] = {"en": 4}  # of no use: rows have numbers then
    torch.save(checkpoint, path)
    assert load_m3p(path).config.languages == ("0", "1", "2")
    settings["refine_image"] = True
    torch.save(checkpoint, path)
    with pytest.raises(DataError, match="was trained with refine_image, whose layers"):
        load_m3p(path)


class Malicious:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("this must never run",)


def test_nothing_else_is_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": PUBLISHED, "params": Malicious()}, tmp_path / "checkpoint.pth")
    with pytest.raises(DataError, match="not a file of tensors alone"):
        load_m3p(tmp_path / "checkpoint.pth")
    assert capsys.readouterr().out == ""


def test_checkpoint_files_load_and_misfits_raise_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pth"
    torch.save({"epoch": 22, "model": PUBLISHED}, path)
    expected = slow_scores(PUBLISHED, IDS, FEATURES, BOXES)
    torch.testing.assert_close(score(load_m3p(path)), expected, rtol=0, atol=1e-4)
    torch.save([1, 2], path)
    with pytest.raises(DataError, match="not a dictionary of parameters"):
        load_m3p(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="not a file of tensors alone"):
        load_m3p(path)
    torch.save({"model": PUBLISHED, "params": Namespace(epoch=22)}, path)
    with pytest.raises(DataError, match=r"by themselves \(it holds argparse\.Namespace\)$"):
        load_m3p(path)
    with pytest.raises(DataError, match="no such checkpoint"):
        load_m3p(tmp_path / "elsewhere.pth")
    with pytest.raises(DataError, match="3 languages, not 2"):
        convert_m3p(PUBLISHED, languages=("en", "de"))
    with pytest.raises(DataError, match=r"surplus\.weight: M3P has no parameter"):
        convert_m3p(PUBLISHED | {"surplus.weight": torch.zeros(1)})
    lacking = {name: value for name, value in PUBLISHED.items() if "attentions.1.k" not in name}
    with pytest.raises(DataError, match=r"attentions\.1"):
        convert_m3p(lacking)
    with pytest.raises(DataError, match="not a checkpoint of M3P"):
        convert_m3p({"bert.encoder.layer.0.output.dense.bias": torch.zeros(3)})
    wrong = PUBLISHED | {"mrfr_dense.bias": torch.zeros(VISUAL_WIDTH + 1)}
    with pytest.raises(DataError, match=r"regression.bias has shape \(13,\), expected \(12,\)"):
        convert_m3p(wrong)

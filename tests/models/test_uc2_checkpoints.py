"""Conversion of checkpoints with exactly the published names and random values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.volta_names import volta_name
from polyglance.errors import DataError
from polyglance.models.uc2 import UC2
from polyglance.models.uc2_checkpoints import convert_uc2, load_uc2
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing

WIDTH, LAYERS, WORDS, POSITIONS, VISUAL_WIDTH, LABELS = 128, 2, 30, 20, 12, 1601
Shapes = dict[str, tuple[int, ...]]


def linear(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def norm(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (WIDTH,)
    yield f"{name}.bias", (WIDTH,)


def body(prefix: str, segments: str) -> Shapes:
    """Return the shapes that UC2's and UNITER's code share: embeddings, layers and pooler."""
    shapes: Shapes = {
        f"{prefix}.embeddings.word_embeddings.weight": (WORDS, WIDTH),
        f"{prefix}.embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        f"{prefix}.embeddings.{segments}.weight": (2, WIDTH),
        f"{prefix}.img_embeddings.mask_embedding.weight": (2, VISUAL_WIDTH),
    }
    shapes |= norm(f"{prefix}.embeddings.LayerNorm")
    shapes |= linear(f"{prefix}.img_embeddings.img_linear", WIDTH, VISUAL_WIDTH)
    shapes |= linear(f"{prefix}.img_embeddings.pos_linear", WIDTH, 7)
    for part in ("img_layer_norm", "pos_layer_norm", "LayerNorm"):
        shapes |= norm(f"{prefix}.img_embeddings.{part}")
    for number in range(LAYERS):
        layer = f"{prefix}.encoder.layer.{number}"
        for part in ("query", "key", "value"):
            shapes |= linear(f"{layer}.attention.self.{part}", WIDTH, WIDTH)
        shapes |= linear(f"{layer}.attention.output.dense", WIDTH, WIDTH)
        shapes |= norm(f"{layer}.attention.output.LayerNorm")
        shapes |= linear(f"{layer}.intermediate.dense", 4 * WIDTH, WIDTH)
        shapes |= linear(f"{layer}.output.dense", WIDTH, 4 * WIDTH)
        shapes |= norm(f"{layer}.output.LayerNorm")
    return shapes | dict(linear(f"{prefix}.pooler.dense", WIDTH, WIDTH))


def region_heads() -> Shapes:
    shapes: Shapes = {
        "feat_regress.weight": (WIDTH, VISUAL_WIDTH),
        "feat_regress.bias": (VISUAL_WIDTH,),
    }
    shapes |= linear("feat_regress.net.0", WIDTH, WIDTH)
    shapes |= norm("feat_regress.net.2")
    shapes |= linear("region_classifier.net.0", WIDTH, WIDTH)
    shapes |= norm("region_classifier.net.2")
    return shapes | dict(linear("region_classifier.net.3", LABELS, WIDTH))


def uc2_shapes() -> Shapes:
    """Return all parameters of UC2's published code, used or not."""
    shapes = body("roberta", "new_token_type_embeddings") | region_heads()
    for head, words in (("cls", WORDS), ("vis_cls", 9)):
        shapes |= linear(f"{head}.dense", WIDTH, WIDTH)
        shapes |= norm(f"{head}.layer_norm")
        shapes |= linear(f"{head}.decoder", words, WIDTH)
        shapes[f"{head}.bias"] = (words,)
    return shapes | dict(linear("itm_output", 2, WIDTH))


def uniter_shapes() -> Shapes:
    """Return all parameters of UNITER's published code."""
    shapes = body("uniter", "token_type_embeddings") | region_heads()
    shapes |= linear("cls.predictions.transform.dense", WIDTH, WIDTH)
    shapes |= norm("cls.predictions.transform.LayerNorm")
    shapes |= {"cls.predictions.decoder.weight": (WORDS, WIDTH), "cls.predictions.bias": (WORDS,)}
    return shapes | dict(linear("itm_output", 2, WIDTH))


def filled(shapes: Shapes, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()
    }
    for name, value in weights.items():
        if re.search(r"(LayerNorm|layer_norm|net\.2)\.weight$", name):
            value += 1
    return weights


PUBLISHED, UNITER = filled(uc2_shapes()), filled(uniter_shapes(), seed=1)


@pytest.mark.parametrize(
    ("shapes", "words", "positions"), [(uc2_shapes, 250_002, 514), (uniter_shapes, 28_996, 512)]
)
def test_checkpoints_of_the_published_sizes_load(
    shapes: Callable[[], Shapes], words: int, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device, since the model has 280 million parameters."""
    sizes = {
        "WIDTH": 768,
        "LAYERS": 12,
        "WORDS": words,
        "POSITIONS": positions,
        "VISUAL_WIDTH": 2048,
    }
    for name, size in sizes.items():
        monkeypatch.setitem(globals(), name, size)
    with torch.device("meta"):
        model = convert_uc2({name: torch.empty(shape) for name, shape in shapes().items()})
    encoder = model.config.encoder
    assert (encoder.vocab_size, encoder.max_position_embeddings) == (words, positions)
    assert (
        encoder.hidden_size,
        encoder.num_layers,
        encoder.num_heads,
        encoder.intermediate_size,
    ) == (768, 12, 12, 3072)
    assert model.config.visual_width == 2048
    assert model.match.weight.shape == (2, 768)


def published_eps(prefix: str) -> tuple[float, float]:
    """Return the epsilons of the layers and of all other norms in UC2's or UNITER's code."""
    return (1e-12, 1e-5) if prefix == "roberta" else (1e-12, 1e-12)


def slow_score(
    weights: dict[str, Tensor],
    prefix: str,
    *,
    first: int,
    head: str = "itm_output",
    eps: tuple[float, float] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the published model's matching and word logits of one pair."""
    in_layers, elsewhere = published_eps(prefix) if eps is None else eps

    def layer(name: str, rows: Tensor) -> Tensor:
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normed(name: str, rows: Tensor) -> Tensor:
        centred = rows - rows.mean(-1, keepdim=True)
        added = in_layers if ".encoder.layer." in name else elsewhere
        scale = (centred.square().mean(-1, keepdim=True) + added).sqrt()
        return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    embeddings, image = f"{prefix}.embeddings", f"{prefix}.img_embeddings"
    kind = "new_token_type" if prefix == "roberta" else "token_type"
    segments = weights[f"{embeddings}.{kind}_embeddings.weight"]
    words = weights[f"{embeddings}.word_embeddings.weight"][IDS] + segments[0]
    positions = weights[f"{embeddings}.position_embeddings.weight"][first : first + len(IDS)]
    sizes = BOXES[:, 2:] - BOXES[:, :2]
    location = torch.cat([BOXES, sizes, sizes.prod(1, keepdim=True)], 1)
    regions_in = normed(f"{image}.img_layer_norm", layer(f"{image}.img_linear", FEATURES))
    regions_in = regions_in + normed(
        f"{image}.pos_layer_norm", layer(f"{image}.pos_linear", location)
    )
    rows = torch.cat(
        [
            normed(f"{embeddings}.LayerNorm", words + positions),
            normed(f"{image}.LayerNorm", regions_in + segments[1]),
        ]
    )
    for number in range(LAYERS):
        name = f"{prefix}.encoder.layer.{number}"
        query, key, value = (
            layer(f"{name}.attention.self.{part}", rows).view(len(rows), 2, 64).transpose(0, 1)
            for part in ("query", "key", "value")
        )
        attention = (query @ key.transpose(1, 2) / 8).softmax(-1) @ value
        attended = layer(f"{name}.attention.output.dense", attention.transpose(0, 1).flatten(1))
        rows = normed(f"{name}.attention.output.LayerNorm", rows + attended)
        inner = torch.nn.functional.gelu(layer(f"{name}.intermediate.dense", rows))
        rows = normed(f"{name}.output.LayerNorm", rows + layer(f"{name}.output.dense", inner))
    scores = layer(head, layer(f"{prefix}.pooler.dense", rows[:1]).tanh())[0]
    by = "cls.{}" if prefix == "roberta" else "cls.predictions.transform.{}"
    transformed = torch.nn.functional.gelu(layer(by.format("dense"), rows[1:2]))
    transformed = normed(
        by.format("layer_norm" if prefix == "roberta" else "LayerNorm"), transformed
    )
    bias = weights["cls.bias" if prefix == "roberta" else "cls.predictions.bias"]
    return scores, (transformed @ weights[f"{embeddings}.word_embeddings.weight"].T + bias)[0]


IDS = torch.tensor([0, 7, 19, 2])
FEATURES = torch.rand(3, VISUAL_WIDTH, generator=torch.Generator().manual_seed(0))
BOXES = torch.tensor([[0.1, 0.2, 0.6, 0.9]]).repeat(3, 1)
TEXT, REGIONS = Text(IDS, Packing.of([4])), Regions(FEATURES, BOXES, Packing.of([3]))


@torch.no_grad()
def assert_scores(model: UC2, expected: Tensor) -> None:
    actual = model.score(TEXT, model.embed_regions(REGIONS))
    torch.testing.assert_close(actual[0], expected[-1], rtol=0, atol=1e-4)


@torch.no_grad()
def test_a_converted_checkpoint_predicts_as_the_published_code() -> None:
    prefixed = {f"module.{name}": value for name, value in PUBLISHED.items()}
    scores, words = slow_score(PUBLISHED, "roberta", first=2)
    for weights in (PUBLISHED, prefixed):
        model = convert_uc2(weights)
        assert_scores(model, scores)
        output = model(TEXT, REGIONS)
        matched = model.match_logits(output.pooled)[0]
        torch.testing.assert_close(matched, scores[1] - scores[0], rtol=0, atol=1e-4)
        torch.testing.assert_close(model.word_logits(output.text)[1], words, rtol=0, atol=1e-4)
    mask = PUBLISHED["roberta.img_embeddings.mask_embedding.weight"][1]
    assert torch.equal(model.region_mask, mask)
    assert (model.config.variant, model.config.pooling) == ("reference", "tanh")


@torch.no_grad()
def test_uniters_names_are_converted_with_berts_positions() -> None:
    scores, words = slow_score(UNITER, "uniter", first=0)
    older = {re.sub("^uniter", "bert", name): value for name, value in UNITER.items()}
    for weights in (UNITER, older):
        model = convert_uc2(weights)
        assert_scores(model, scores)
        embeddings = model.word_logits(model(TEXT, REGIONS).text)[1]
        torch.testing.assert_close(embeddings, words, rtol=0, atol=1e-4)


def test_a_retrieval_head_becomes_the_positive_class() -> None:
    for published, prefix, first in ((PUBLISHED, "roberta", 2), (UNITER, "uniter", 0)):
        weights = published | filled(dict(linear("rank_output", 1, WIDTH)), seed=5)
        model = convert_uc2(weights)
        assert_scores(model, slow_score(weights, prefix, first=first, head="rank_output")[0])
        assert torch.equal(model.match.weight[0], published["itm_output.weight"][0])


def test_a_vqa_checkpoint_is_converted_without_its_answers(tmp_path: Path) -> None:
    answers = linear("vqa_output.0", 2 * WIDTH, WIDTH), linear("vqa_output.3", 9, 2 * WIDTH)
    shapes = body("roberta", "new_token_type_embeddings") | dict(answers[0]) | dict(answers[1])
    shapes |= {"vqa_output.2.weight": (2 * WIDTH,), "vqa_output.2.bias": (2 * WIDTH,)}
    torch.save({"global_step": 3, "model_state_dict": filled(shapes)}, tmp_path / "restore.pt")
    with pytest.raises(DataError, match="lacks the heads match, word_bias, word_transform: set"):
        load_uc2(tmp_path / "restore.pt")
    model = load_uc2(tmp_path / "restore.pt", allow_missing_heads=True)
    complete = convert_uc2(filled(shapes), allow_missing_heads=True)
    assert torch.equal(model.match.weight, complete.match.weight)
    assert 0 < float(model.match.weight.detach().std()) < 0.05
    assert torch.equal(model.encoder.words.weight, complete.encoder.words.weight)
    assert torch.equal(
        model.region_feature.weight, filled(shapes)["roberta.img_embeddings.img_linear.weight"]
    )


def volta(published: dict[str, Tensor]) -> dict[str, Tensor]:
    """Build a checkpoint as VOLTA saves it, with two names for shared parameters."""
    named = {volta_name(name): value for name, value in published.items()}
    weights = {name: value for name, value in named.items() if name is not None}
    for name, value in list(weights.items()):
        shared = re.sub(r"(?<=\.)(query|key|value|dense|LayerNorm)(?=\.\w+$)", r"v_\1", name)
        if ".encoder.layer." in name:
            weights[shared] = value
    weights["bert.embeddings.image_token_type_embeddings.weight"] = next(
        value for name, value in weights.items() if "token_type_embeddings" in name
    )
    weights |= filled(dict(linear("cls.imagePredictions.decoder_dict.0", LABELS, WIDTH)))
    return weights | filled(dict(linear("cls.imagePredictions.transform.dense", WIDTH, WIDTH)))


def test_voltas_names_with_split_layers_are_converted() -> None:
    weights = volta(PUBLISHED)
    assert "bert.encoder.layer.3.intermediate.v_dense.weight" in weights
    assert "bert.encoder.layer.2.attention_self.v_query.bias" in weights
    assert "bert.embeddings.v_LayerNorm.weight" in weights
    expected = slow_score(PUBLISHED, "roberta", first=2, eps=(1e-5, 1e-5))[0]
    assert_scores(convert_uc2(weights), expected)


@torch.no_grad()
def test_voltas_fine_tuned_models_pool_with_relu() -> None:
    weights = {n: v for n, v in volta(PUBLISHED).items() if not n.startswith("cls.")}
    weights |= filled(dict(linear("clfs_dict.TASK8", 1, WIDTH)), seed=5)
    weights |= filled(dict(linear("clfs_dict.TASK15.logit_fc.0", 9, WIDTH)))
    with pytest.raises(DataError, match="lacks the heads word_bias, word_transform"):
        convert_uc2(weights)
    model = convert_uc2(weights, allow_missing_heads=True)
    first = model(TEXT, REGIONS).pooled
    pooled = first @ PUBLISHED["roberta.pooler.dense.weight"].T
    pooled = (pooled + PUBLISHED["roberta.pooler.dense.bias"]).relu()
    head = weights["clfs_dict.TASK8.weight"][0], weights["clfs_dict.TASK8.bias"]
    assert_scores(model, pooled @ head[0] + head[1])
    # VOLTA's copy of UC2's own weights, which were trained with tanh and which it pools with relu
    copied = volta(PUBLISHED)
    assert convert_uc2(copied).config.pooling == "tanh"
    assert convert_uc2(copied, pooling="relu").config.pooling == "relu"


@torch.no_grad()
def test_voltas_own_uniter_has_five_numbers_per_box_and_two_poolers() -> None:
    weights, pooled_size = volta(PUBLISHED), 2 * WIDTH
    for name in [n for n in weights if "pooler" in n or "bi_seq" in n]:
        del weights[name]
    weights |= filled(dict(linear("bert.t_pooler.dense", pooled_size, WIDTH)), seed=2)
    weights |= filled(dict(linear("bert.v_pooler.dense", pooled_size, WIDTH)), seed=3)
    weights |= filled(dict(linear("cls.bi_seq_relationship", 2, pooled_size)), seed=4)
    box = "bert.embeddings.image_location_embeddings.weight"
    seven = weights[box].clone()
    weights[box] = seven[:, [0, 1, 2, 3, 6]]
    # xUNITER: one segment table of one row for words, and another for regions.
    kinds = weights.pop("bert.embeddings.new_token_type_embeddings.weight")
    weights["bert.embeddings.token_type_embeddings.weight"] = kinds[:1]
    weights["bert.embeddings.image_token_type_embeddings.weight"] = kinds[1:]
    without = {name: value for name, value in weights.items() if "v_pooler.dense.b" not in name}
    with pytest.raises(DataError, match="lacks the head pooler: set allow_missing_heads"):
        convert_uc2(without)
    model = convert_uc2(weights)
    seven[:, 4:6] = 0
    other = PUBLISHED | {"roberta.img_embeddings.pos_linear.weight": seven}
    output = model(TEXT, REGIONS)
    _, words = slow_score(other, "roberta", first=2, eps=(1e-12, 1e-12))
    torch.testing.assert_close(model.word_logits(output.text)[1], words, rtol=0, atol=1e-4)
    for ours, part in ((model.pooler.text, "t"), (model.pooler.image, "v")):
        assert torch.equal(ours.weight, weights[f"bert.{part}_pooler.dense.weight"])
    assert torch.equal(model.match.bias, weights["cls.bi_seq_relationship.bias"])
    assert (model.config.pooling, model.config.pooler_size) == ("relu", pooled_size)


@torch.no_grad()
def test_norms_add_the_published_epsilons() -> None:
    """With weights so small that the variance before a norm is near 1e-5."""
    xuniter = volta(PUBLISHED)
    kinds = xuniter.pop("bert.embeddings.new_token_type_embeddings.weight")
    xuniter["bert.embeddings.token_type_embeddings.weight"] = kinds[:1]
    for weights, eps in (
        (PUBLISHED, (1e-12, 1e-5)),
        (UNITER, (1e-12, 1e-12)),
        (volta(PUBLISHED), (1e-5, 1e-5)),
        (xuniter, (1e-12, 1e-12)),
    ):
        model = convert_uc2(weights)
        assert {layer.output_norm.eps for layer in model.encoder.layers} == {eps[0]}
        norms = (model.encoder.norm, model.feature_norm, model.box_norm, model.region_norm)
        assert {norm.eps for norm in (*norms, model.word_transform[2])} == {eps[1]}
    quiet = {n: v * 1e-2 if "output.dense" in n else v for n, v in PUBLISHED.items()}
    quiet |= {n: v * 1e-3 for n, v in quiet.items() if ".LayerNorm." in n}
    right = slow_score(quiet, "roberta", first=2)[1]
    wrong = slow_score(quiet, "roberta", first=2, eps=(1e-5, 1e-5))[1]
    words = convert_uc2(quiet).word_logits(convert_uc2(quiet)(TEXT, REGIONS).text)[1]
    torch.testing.assert_close(words, right, rtol=0, atol=1e-4)
    assert (wrong - right).abs().max() > 1e-3


def test_loading_leaves_the_random_generator_and_the_checkpoint_alone() -> None:
    weights = {name: value for name, value in PUBLISHED.items() if "itm_output" not in name}
    torch.manual_seed(7)
    before = torch.get_rng_state()
    model = convert_uc2(weights, allow_missing_heads=True)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert weights["roberta.embeddings.word_embeddings.weight"].abs().sum() > 0
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_checkpoint_files_load_and_misfits_raise_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save(PUBLISHED, path)
    assert_scores(load_uc2(path), slow_score(PUBLISHED, "roberta", first=2)[0])
    torch.save([1, 2], path)
    with pytest.raises(DataError, match="not a dictionary of parameters"):
        load_uc2(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="not a file of tensors alone"):
        load_uc2(path)
    with pytest.raises(DataError, match="no such checkpoint"):
        load_uc2(tmp_path / "elsewhere.pt")
    with pytest.raises(DataError, match=r"surplus\.weight: UC2 has no parameter"):
        convert_uc2(PUBLISHED | {"surplus.weight": torch.zeros(1)})
    lacking = {
        name: value for name, value in PUBLISHED.items() if "layer.1.output.dense.w" not in name
    }
    with pytest.raises(DataError, match=r"no parameters for encoder\.layers\.1\.narrow"):
        convert_uc2(lacking)
    with pytest.raises(DataError, match="not a checkpoint of UC2 or UNITER"):
        convert_uc2({"bert.encoder.layer.0.output.dense.bias": torch.zeros(3)})
    wrong = PUBLISHED | {"cls.bias": torch.zeros(WORDS + 1)}
    with pytest.raises(DataError, match=r"word_bias has shape \(31,\), expected \(30,\)"):
        convert_uc2(wrong)

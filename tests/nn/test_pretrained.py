"""Our encoder against transformers' own, on the same random weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from polyglance.errors import PolyglanceError
from polyglance.nn.encoder import Encoder
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder, load_word_head, save_encoder

SHAPES = [
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
    {"hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 3, "intermediate_size": 96},
    {
        "hidden_size": 128,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "intermediate_size": 512,
    },
]
LENGTHS = [[4], [1, 30, 7], [12, 12, 12], [2, 3, 5, 7, 11, 13, 17, 19]]


def published(kind: str, shape: dict[str, int], folder: Path) -> torch.nn.Module:
    """Save a transformers model with random weights of considerable size."""
    torch.manual_seed(3)
    common = {"vocab_size": 99, "initializer_range": 0.2, **shape}
    model = (
        transformers.XLMRobertaModel(
            transformers.XLMRobertaConfig(
                max_position_embeddings=40, type_vocab_size=1, pad_token_id=1, **common
            )
        )
        if kind == "xlm-roberta"
        else transformers.BertModel(
            transformers.BertConfig(max_position_embeddings=38, type_vocab_size=2, **common)
        )
    )
    for parameter in model.parameters():
        if parameter.ndim == 1:  # initial 1 and 0 would hide mistakes
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.1)
    model.save_pretrained(folder)
    return model.eval()


def padded(ids: torch.Tensor, packing: Packing, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    return packing.pad(ids - pad) + pad, packing.mask.long()


@pytest.mark.parametrize("kind", ["xlm-roberta", "bert"])
@pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda s: f"{s['num_hidden_layers']}x{s['hidden_size']}"
)
def test_parity_with_transformers(kind: str, shape: dict[str, int], tmp_path: Path) -> None:
    theirs = published(kind, shape, tmp_path)
    ours = load_encoder(tmp_path)
    pad = 1 if kind == "xlm-roberta" else 0
    for lengths in LENGTHS:
        packing = Packing.of(lengths)
        ids = torch.randint(4, 99, (packing.num_tokens,))
        batch, mask = padded(ids, packing, pad)
        with torch.no_grad():
            states = theirs(batch, attention_mask=mask, output_hidden_states=True).hidden_states
            for layer in {0, 1, shape["num_hidden_layers"] // 2, shape["num_hidden_layers"]}:
                difference = ours(ids, packing, layer=layer) - packing.unpad(states[layer])
                assert difference.abs().max() < 1e-5
            alone = torch.cat(
                [ours(piece, Packing.of([len(piece)])) for piece in ids.split(lengths)]
            )
            assert (ours(ids, packing) - alone).abs().max() < 1e-5


def test_segments_agree_with_bert(tmp_path: Path) -> None:
    theirs = published("bert", SHAPES[0], tmp_path)
    ours = load_encoder(tmp_path)
    ids, segments = torch.randint(4, 99, (9,)), torch.tensor([0] * 4 + [1] * 5)
    with torch.no_grad():
        expected = theirs(ids[None], token_type_ids=segments[None]).last_hidden_state[0]
        got = ours(ids, Packing.of([9]), segments=segments)
        plain = ours(ids, Packing.of([9]))
    assert (got - expected).abs().max() < 1e-5
    assert (plain - expected).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["xlm-roberta", "bert"])
def test_transformers_loads_saved_encoders(kind: str, tmp_path: Path) -> None:
    theirs = published(kind, SHAPES[1], tmp_path / "theirs")
    save_encoder(load_encoder(tmp_path / "theirs"), tmp_path / "ours")
    model_class = transformers.XLMRobertaModel if kind == "xlm-roberta" else transformers.BertModel
    again = model_class.from_pretrained(tmp_path / "ours", add_pooling_layer=False).eval()
    ids = torch.randint(4, 99, (2, 8))
    with torch.no_grad():
        torch.testing.assert_close(
            again(ids).last_hidden_state, theirs(ids).last_hidden_state, rtol=0, atol=1e-5
        )


def test_prefixed_names_and_bin_files_load(tmp_path: Path) -> None:
    theirs = published("xlm-roberta", SHAPES[0], tmp_path)
    expected = load_encoder(tmp_path).state_dict()
    (tmp_path / "model.safetensors").unlink()
    state = {f"roberta.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({**state, "lm_head.bias": torch.zeros(99)}, tmp_path / "pytorch_model.bin")
    got = load_encoder(tmp_path).state_dict()
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_mberts_layer_norm_names_load(tmp_path: Path) -> None:
    published("bert", SHAPES[0], tmp_path)
    expected = load_encoder(tmp_path).state_dict()
    weights = load_file(tmp_path / "model.safetensors")
    older = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }  # fmt: skip
    assert "bert.embeddings.LayerNorm.gamma" in older
    save_file(older, tmp_path / "model.safetensors")
    got = load_encoder(tmp_path).state_dict()
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_sharded_weights_load(tmp_path: Path) -> None:
    theirs = published("bert", SHAPES[1], tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="50KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").exists()
    single, shards = load_encoder(tmp_path / "whole"), load_encoder(tmp_path / "shards")
    for name, value in single.state_dict().items():
        assert torch.equal(value, shards.state_dict()[name])


def test_loaded_weights_can_be_trained(tmp_path: Path) -> None:
    published("bert", SHAPES[0], tmp_path)
    encoder: Encoder = load_encoder(tmp_path, dropout=0.25)
    assert encoder.config.dropout == 0.25
    encoder(torch.tensor([5, 6]), Packing.of([2])).sum().backward()
    assert encoder.words.weight.grad is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"hidden_size": 64}, "do not fit config.json"),
        ({"num_hidden_layers": 3}, "lack the parameter"),
        ({"num_attention_heads": 5}, "not divisible by 5 heads"),
        ({"num_attention_heads": 0}, "do not fit config.json"),
        ({"hidden_dropout_prob": "some"}, "do not fit config.json"),
        ({"vocab_size": None}, "not the configuration"),
        ({"hidden_act": "silu"}, "only gelu and relu"),
    ],
)
def test_a_wrong_configuration_raises_a_clear_error(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    published("bert", SHAPES[0], tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(PolyglanceError, match=message):
        load_encoder(tmp_path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_missing_and_broken_files_raise_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match=r"config\.json does not exist"):
        load_encoder(tmp_path)
    published("bert", SHAPES[0], tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(PolyglanceError, match="cannot be read"):
        load_encoder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(PolyglanceError, match=r"no model\.safetensors"):
        load_encoder(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for nonsense in ("[]", '{"weight_map": [1]}', '{"weight_map": {"a": 3}}', "{"):
        index.write_text(nonsense)
        with pytest.raises(PolyglanceError, match="cannot be read"):
            load_encoder(tmp_path)
    index.unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(PolyglanceError, match="cannot be read"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("kind", ["xlm-roberta", "bert"])
@torch.no_grad()
def test_the_head_of_a_language_model_is_loaded(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    common = {"vocab_size": 99, **SHAPES[0]}
    theirs = (
        transformers.XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(pad_token_id=1, **common))
        if kind == "xlm-roberta"
        else transformers.BertForMaskedLM(transformers.BertConfig(**common))
    ).eval()
    module = theirs.lm_head if kind == "xlm-roberta" else theirs.cls.predictions
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.tie_weights()
    theirs.save_pretrained(tmp_path)
    head = load_word_head(tmp_path)
    assert head is not None
    rows = torch.randn(5, 32)
    dense = torch.nn.functional.gelu(rows @ head.dense_weight.T + head.dense_bias)
    eps = theirs.config.layer_norm_eps
    normed = torch.nn.functional.layer_norm(dense, (32,), head.norm_weight, head.norm_bias, eps)
    words = load_encoder(tmp_path).words.weight
    torch.testing.assert_close(module(rows), normed @ words.T + head.word_bias)

    weights = load_file(tmp_path / "model.safetensors")
    decoder = "lm_head" if kind == "xlm-roberta" else "cls.predictions"
    weights[f"{decoder}.decoder.weight"] = words.detach() + 1
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert load_word_head(tmp_path) is None  # weights of its own, not the embeddings'


def test_an_encoder_alone_has_no_head(tmp_path: Path) -> None:
    published("xlm-roberta", SHAPES[0], tmp_path)
    assert load_word_head(tmp_path) is None


def test_the_configuration_can_be_adapted(tmp_path: Path) -> None:
    published("xlm-roberta", SHAPES[0], tmp_path)
    encoder = load_encoder(
        tmp_path, adapt=lambda config: replace(config, norm_eps=1e-12, embedding_norm_eps=1e-5)
    )
    assert encoder.norm.eps == 1e-5
    assert {layer.attention_norm.eps for layer in encoder.layers} == {1e-12}

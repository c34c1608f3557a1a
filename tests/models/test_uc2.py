from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder, load_word_head

ENCODER = EncoderConfig(
    vocab_size=40,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=40,
    dropout=0.1,
)
CONFIG = UC2Config(encoder=ENCODER, visual_width=6)
VARIANTS = ("paper", "reference")


def make(**changes: Any) -> UC2:
    """Build a model whose parameters are all random, so that each affects the output."""
    torch.manual_seed(0)
    model = UC2(replace(CONFIG, **changes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=parameter.mean().round().item(), std=0.5)
    return model


def text(lengths: list[int], seed: int) -> Text:
    packing = Packing.of(lengths)
    ids = torch.randint(4, 39, (packing.num_tokens,), generator=torch.Generator().manual_seed(seed))
    return Text(ids, packing)


def regions(lengths: list[int]) -> Regions:
    packing = Packing.of(lengths)
    generator = torch.Generator().manual_seed(2)
    corners = torch.rand(packing.num_tokens, 2, 2, generator=generator).sort(1).values
    features = torch.randn(packing.num_tokens, 6, generator=generator)
    return Regions(features, corners.flatten(1), packing)


TEXT, OTHERS, REGIONS = text([4, 2, 7], 1), text([3, 5, 2], 3), regions([3, 6, 1])


def part(packing: Packing, number: int) -> tuple[slice, Packing]:
    start, end = packing.cu_seqlens[number : number + 2].tolist()
    return slice(start, end), Packing.of([end - start])


def one(number: int) -> tuple[Text, Regions, Text]:
    """Return one pair of the batch by itself."""
    (words, first), (others, second) = part(TEXT.packing, number), part(OTHERS.packing, number)
    images, third = part(REGIONS.packing, number)
    return (
        Text(TEXT.ids[words], first),
        Regions(REGIONS.features[images], REGIONS.boxes[images], third),
        Text(OTHERS.ids[others], second),
    )


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_a_packed_batch_equals_its_pairs_one_by_one(variant: str) -> None:
    model = make(variant=variant)
    together = model(TEXT, REGIONS, OTHERS)
    alone = [model(*one(number)) for number in range(3)]
    for name in ("text", "translation", "regions", "pooled"):
        rows = torch.cat([getattr(pair, name) for pair in alone])
        torch.testing.assert_close(getattr(together, name), rows, rtol=0, atol=1e-5)
    assert together.text.shape == (13, 16)
    assert together.translation.shape == together.regions.shape == (10, 16)
    scores = model.score(TEXT, model.embed_regions(REGIONS))
    expected = model.rank_scores(model(TEXT, REGIONS).pooled)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)
    assert scores.std() > 0.01


def slow(model: UC2, words: Text, images: Regions, others: Text | None) -> torch.Tensor:
    """Encode one image and its captions with loops, as documented."""
    encoder, paper = model.encoder, model.config.variant == "paper"
    sequence = []
    for sentence in (words, others):
        if sentence is not None:
            for place, word in enumerate(sentence.ids.tolist()):  # positions restart
                row = encoder.words.weight[word] + encoder.positions.weight[2 + place]
                sequence.append(encoder.norm(row + encoder.segments.weight[0]))
    for feature, (left, top, right, bottom) in zip(
        images.features, images.boxes.tolist(), strict=True
    ):
        width, height = right - left, bottom - top
        location = torch.tensor([left, top, right, bottom, width, height, width * height])
        row = model.feature_norm(model.region_feature.weight @ feature + model.region_feature.bias)
        row = row + model.box_norm(model.region_box.weight @ location + model.region_box.bias)
        row = row + model.image_segment
        sequence.append(row if paper else model.region_norm(row))
    return encoder.contextualise(torch.stack(sequence), Packing.of([len(sequence)]))


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_each_variant_is_as_documented(variant: str) -> None:
    model = make(variant=variant)
    output, with_others = model(TEXT, REGIONS), model(TEXT, REGIONS, OTHERS)
    for number in range(3):
        words, images, others = one(number)
        count = len(words.ids)
        rows = slow(model, words, images, None)
        where, region_rows = (
            part(packing, number)[0] for packing in (TEXT.packing, REGIONS.packing)
        )
        torch.testing.assert_close(output.text[where], rows[:count], rtol=0, atol=1e-5)
        torch.testing.assert_close(output.regions[region_rows], rows[count:], rtol=0, atol=1e-5)
        torch.testing.assert_close(output.pooled[number], rows[0], rtol=0, atol=1e-5)
        rows = slow(model, words, images, others)
        beside = part(OTHERS.packing, number)[0]
        cut = count + len(others.ids)
        torch.testing.assert_close(
            with_others.translation[beside], rows[count:cut], rtol=0, atol=1e-5
        )
        torch.testing.assert_close(with_others.regions[region_rows], rows[cut:], rtol=0, atol=1e-5)


@torch.no_grad()
def test_each_variant_has_its_heads() -> None:
    rows = torch.randn(5, 16)
    paper, reference = make(), make(variant="reference")
    table = paper.encoder.words.weight
    plain = rows @ table.T + paper.word_bias
    torch.testing.assert_close(paper.word_logits(rows), plain, rtol=0, atol=1e-5)
    logits = rows @ paper.match.weight[0] + paper.match.bias[0]
    torch.testing.assert_close(paper.match_logits(rows), logits, rtol=0, atol=1e-5)
    assert torch.equal(paper.match_logits(rows), paper.rank_scores(rows))
    # With two classes the loss is their cross-entropy, and the second class ranks.
    layer, _, norm = reference.word_transform
    bent = norm(torch.nn.functional.gelu(layer(rows))) @ reference.encoder.words.weight.T
    torch.testing.assert_close(
        reference.word_logits(rows), bent + reference.word_bias, rtol=0, atol=1e-5
    )
    both = reference.match(torch.tanh(reference.pooler[0](rows)))
    torch.testing.assert_close(
        reference.match_logits(rows).sigmoid(), both.softmax(1)[:, 1], rtol=0, atol=1e-5
    )
    assert torch.equal(reference.rank_scores(rows), both[:, 1])


@torch.no_grad()
def test_text_alone_is_initially_encoded_as_by_xlm_r(tmp_path: Path) -> None:
    torch.manual_seed(3)
    published = transformers.XLMRobertaModel(
        transformers.XLMRobertaConfig(
            vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=40, type_vocab_size=1, pad_token_id=1,
            initializer_range=0.2,
        )
    ).eval()  # fmt: skip
    published.save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path)
    model = UC2(UC2Config(encoder=encoder.config), encoder).eval()
    for number in range(3):
        words, _, _ = one(number)
        theirs = published(words.ids[None]).last_hidden_state[0]
        torch.testing.assert_close(model(words, None).text, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_words_are_initially_predicted_as_by_xlm_r(tmp_path: Path, variant: str) -> None:
    torch.manual_seed(3)
    published = transformers.XLMRobertaForMaskedLM(
        transformers.XLMRobertaConfig(
            vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=40, type_vocab_size=1, pad_token_id=1,
            initializer_range=0.2, layer_norm_eps=1e-5,
        )
    ).eval()  # fmt: skip
    for parameter in published.lm_head.parameters():
        nn.init.normal_(parameter, std=0.3)
    published.tie_weights()
    published.save_pretrained(tmp_path)
    head = load_word_head(tmp_path)
    encoder = load_encoder(tmp_path)
    model = UC2(
        UC2Config(encoder=encoder.config, variant=variant, word_transform=True), encoder
    ).eval()
    model.load_word_head(head)
    words, _, _ = one(0)
    theirs = published(words.ids[None]).logits[0]
    torch.testing.assert_close(
        model.word_logits(model(words, None).text), theirs, rtol=0, atol=1e-4
    )
    parameters = {id(parameter) for parameter in model.word_head_parameters()}
    names = {name for name, p in model.named_parameters() if id(p) in parameters}
    assert {name.split(".")[0] for name in names} == {"word_transform", "word_bias"}


@torch.no_grad()
def test_a_translations_positions_start_again_or_run_on() -> None:
    """Run on, the two sentences of TLM are one sequence; with an image they always start again."""
    words, image, other = one(0)
    whole = Text(torch.cat([words.ids, other.ids]), Packing.of([7]))
    for variant, chosen, runs_on in (
        ("paper", None, False),
        ("paper", "continue", True),
        ("reference", None, True),
        ("reference", "restart", False),
    ):
        model = make(variant=variant, tlm_positions=chosen)
        both, joined = model(words, None, other), model(whole, None).text
        rows = torch.cat([both.text, both.translation])
        assert torch.allclose(rows, joined, atol=1e-5) == runs_on
        positions = torch.tensor([1, 4, 6])
        torch.testing.assert_close(
            model.encode_positions(positions, words, None, other), rows[positions]
        )
        beside = model(words, image, other).translation
        model.config = replace(model.config, tlm_positions="restart")
        assert torch.equal(model(words, image, other).translation, beside)
    with pytest.raises(ValueError, match="a pair of sentences has 40 sub-words and the encoder"):
        make(variant="reference")(text([20], 0), None, text([20], 1))


@torch.no_grad()
def test_encode_positions_equals_encode_at_these_positions() -> None:
    model = make()
    images = model.embed_regions(REGIONS)
    positions = torch.tensor([0, 12, 13, 22, 23, 32, 5])  # of 13 sub-words, 10 others, 10 regions
    all_rows = model(TEXT, REGIONS, OTHERS)
    rows = torch.cat([all_rows.text, all_rows.translation, all_rows.regions])
    encoded = model.encode_positions(positions, TEXT, images, OTHERS)
    torch.testing.assert_close(encoded, rows[positions], rtol=0, atol=1e-5)
    alone = model.encode_positions(torch.tensor([1]), TEXT, None)
    torch.testing.assert_close(alone, model(TEXT, None).text[1:2], rtol=0, atol=1e-5)


@torch.no_grad()
def test_any_input_may_be_missing() -> None:
    model = make()
    words, images, both = model(TEXT, None), model(None, REGIONS), model(TEXT, None, OTHERS)
    assert words.regions is None
    assert words.translation is None
    assert images.text is None
    assert images.regions.shape == (10, 16)
    assert both.regions is None
    assert both.text.shape == (13, 16)
    assert both.translation.shape == (10, 16)
    assert not torch.allclose(both.pooled, words.pooled)
    with pytest.raises(ValueError, match="neither text nor image"):
        model(None, None)


def test_all_parameters_of_a_variant_get_gradients() -> None:
    for variant in VARIANTS:
        model = make(variant=variant)
        output = model(TEXT, REGIONS, OTHERS)
        heads = (model.match_logits(output.pooled), model.word_logits(output.text))
        sum(head.square().sum() for head in heads).backward()
        idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert idle == ["region_mask"]  # used by MRTM only
        image = {id(parameter) for parameter in model.image_encoder_parameters()}
        names = {n.split(".")[0] for n, p in model.named_parameters() if id(p) in image}
        assert names == {"region_feature", "feature_norm", "region_box", "box_norm"}


def test_invalid_inputs_raise_clear_errors() -> None:
    with pytest.raises(PolyglanceError, match="visual_width is 0"):
        replace(CONFIG, visual_width=0)
    with pytest.raises(ValueError, match="a sequence has 39 sub-words and the encoder takes 38"):
        make()(text([39], 0), None)
    make()(text([38], 0), regions([20]), text([38], 1))  # regions have no positions

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder

ENCODER = EncoderConfig(
    vocab_size=40,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=40,
    dropout=0.1,
)
CONFIG = M3PConfig(encoder=ENCODER, languages=("en", "de"), visual_width=6, num_labels=9)
VARIANTS = ("paper", "reference")


def make(**changes: Any) -> M3P:
    """Build a model whose parameters are all random, so that each affects the output."""
    torch.manual_seed(0)
    model = M3P(replace(CONFIG, **changes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=parameter.mean().round().item(), std=0.5)
    return model


def text(lengths: list[int], languages: list[int]) -> Text:
    packing = Packing.of(lengths)
    ids = torch.randint(4, 39, (packing.num_tokens,), generator=torch.Generator().manual_seed(1))
    return Text(ids, packing, torch.tensor(languages))


def regions(lengths: list[int]) -> Regions:
    packing = Packing.of(lengths)
    generator = torch.Generator().manual_seed(2)
    corners = torch.rand(packing.num_tokens, 2, 2, generator=generator).sort(1).values
    features = torch.randn(packing.num_tokens, 6, generator=generator)
    return Regions(features, corners.flatten(1), packing)


TEXT, REGIONS = text([4, 2, 7], [0, 1, 1]), regions([3, 6, 1])


def one(number: int) -> tuple[Text, Regions]:
    """Return one pair of the batch by itself."""
    words, images = (
        slice(*packing.cu_seqlens[number : number + 2].tolist())
        for packing in (TEXT.packing, REGIONS.packing)
    )
    assert TEXT.languages is not None
    return (
        Text(
            TEXT.ids[words],
            Packing.of([words.stop - words.start]),
            TEXT.languages[number : number + 1],
        ),
        Regions(
            REGIONS.features[images],
            REGIONS.boxes[images],
            Packing.of([images.stop - images.start]),
        ),
    )


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_a_packed_batch_equals_its_pairs_one_by_one(variant: str) -> None:
    model = make(variant=variant)
    together = model(TEXT, REGIONS)
    scores = model.score(TEXT, model.embed_regions(REGIONS))
    torch.testing.assert_close(scores, model.match_logits(together.pooled), rtol=0, atol=1e-5)
    alone = [model(*one(number)) for number in range(3)]
    for part in ("text", "regions", "pooled"):
        rows = torch.cat([getattr(pair, part) for pair in alone])
        torch.testing.assert_close(getattr(together, part), rows, rtol=0, atol=1e-5)
    assert together.text.shape == (13, 16)
    assert together.regions.shape == (10, 16)
    assert scores.std() > 0.01


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_selected_rows_equal_those_of_all(variant: str) -> None:
    model = make(variant=variant)
    together = model(TEXT, REGIONS)
    words, regions, pairs = torch.tensor([12, 0, 5]), torch.tensor([9, 2]), torch.tensor([2, 0])
    selected = model.encode_selected(
        TEXT, model.embed_regions(REGIONS), words=words, regions=regions, pairs=pairs
    )
    expected = (together.text[words], together.regions[regions], together.pooled[pairs])
    torch.testing.assert_close(selected, expected, rtol=0, atol=1e-5)


def slow_pair(model: M3P, words: Text, images: Regions) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode one pair with loops, as documented; return text rows and region rows."""
    encoder, paper = model.encoder, model.config.variant == "paper"
    assert words.languages is not None
    words_in, regions_in = [], []
    count = images.packing.num_tokens
    for position, word in enumerate(words.ids.tolist()):
        position = 2 + position if paper else 2 + count + position
        row = encoder.words.weight[word] + encoder.positions.weight[position]
        row = row + encoder.segments.weight[0]
        if paper:
            row = row + model.languages.weight[words.languages[0]]
        words_in.append(encoder.norm(row))
    for position, (feature, box) in enumerate(zip(images.features, images.boxes, strict=True)):
        left, top, right, bottom = box.tolist()
        spatial = torch.tensor([left, top, right, bottom, (right - left) * (bottom - top)])
        if not paper:
            feature, spatial = feature / feature.norm(), spatial / spatial.norm()
        row = model.region_norm(model.region_feature(feature) + model.region_box(spatial))
        if not paper:
            row = encoder.norm(row + encoder.positions.weight[2 + position])
        regions_in.append(row)
    sequence = [*words_in, model.image_tag, *regions_in] if paper else [*regions_in, *words_in]
    out = encoder.contextualise(torch.stack(sequence), Packing.of([len(sequence)]))
    if paper:
        return out[: len(words_in)], out[len(words_in) + 1 :]
    return out[count:], out[:count]


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_each_variant_is_as_documented(variant: str) -> None:
    model = make(variant=variant)
    output = model(TEXT, REGIONS)
    slow = [slow_pair(model, *one(number)) for number in range(3)]
    expected_text, expected_regions = (torch.cat(parts) for parts in zip(*slow, strict=True))
    torch.testing.assert_close(output.text, expected_text, rtol=0, atol=1e-5)
    torch.testing.assert_close(output.regions, expected_regions, rtol=0, atol=1e-5)
    firsts = [pair[0][0] if variant == "paper" else pair[1][0] for pair in slow]
    torch.testing.assert_close(output.pooled, torch.stack(firsts), rtol=0, atol=1e-5)


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
    model = M3P(M3PConfig(encoder=encoder.config, languages=("en", "de")), encoder).eval()
    for number in range(3):
        words, _ = one(number)
        theirs = published(words.ids[None]).last_hidden_state[0]
        torch.testing.assert_close(model(words, None).text, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_text_or_image_may_be_missing(variant: str) -> None:
    model = make(variant=variant)
    words, images = model(TEXT, None), model(None, REGIONS)
    assert words.regions is None
    assert words.text.shape == (13, 16)
    assert images.text is None
    assert images.regions.shape == (10, 16)
    assert words.pooled.shape == images.pooled.shape == (3, 16)
    other = model(replace(TEXT, languages=torch.tensor([1, 1, 1])), None)
    changed = (other.pooled - words.pooled).abs().amax(1) > 1e-4
    assert changed.tolist() == [True, False, False]  # language embeddings matter without an image
    with pytest.raises(ValueError, match="neither text nor image"):
        model(None, None)


@torch.no_grad()
def test_only_the_paper_variant_embeds_languages_next_to_images() -> None:
    others = replace(TEXT, languages=torch.tensor([1, 0, 0]))
    for variant, counts in (("paper", True), ("reference", False)):
        model = make(variant=variant)
        differ = not torch.allclose(model(TEXT, REGIONS).pooled, model(others, REGIONS).pooled)
        assert differ == counts


def test_all_parameters_of_a_variant_get_gradients() -> None:
    for variant in VARIANTS:
        model = make(variant=variant)
        output, alone = model(TEXT, REGIONS), model(TEXT, None)
        assert output.text is not None
        assert output.regions is not None
        assert alone.text is not None
        heads = (
            model.match_logits(output.pooled),
            model.word_logits(output.text),
            model.word_logits(alone.text),
            model.predict_features(output.regions),
            model.label_logits(output.regions),
        )
        assert [head.shape[-1] for head in heads[1:]] == [40, 40, 6, 9]
        sum(head.square().sum() for head in heads).backward()
        idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert idle == []


def test_invalid_inputs_raise_clear_errors() -> None:
    with pytest.raises(PolyglanceError, match="no embedding of fr, only of en, de"):
        CONFIG.language_ids(["de", "fr"])
    assert CONFIG.language_ids(["de", "en"]).tolist() == [1, 0]
    with pytest.raises(PolyglanceError, match="without repeats"):
        replace(CONFIG, languages=("en", "en"))
    with pytest.raises(ValueError, match="a sequence has 39 positions and the encoder takes 38"):
        make()(text([39], [0]), None)
    long = Text(torch.zeros(30, dtype=torch.long), Packing.of([30]), torch.tensor([0]))
    make()(long, regions([20]))  # regions have no positions in the paper's variant
    with pytest.raises(ValueError, match="has 50 positions"):
        make(variant="reference")(long, regions([20]))

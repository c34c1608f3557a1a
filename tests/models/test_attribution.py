"""Attention as computed by the model, and credit confirmed by the model's behaviour."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polyglance.models.attribution import (
    answer_attribution,
    attention_to_regions,
    word_attribution,
)
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.attention_weights import forward_with_attention
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing

MASK, KINDS, COLOURS = 2, 3, 6
BOXES = torch.tensor([[0, 0, 0.3, 1], [0.3, 0, 0.6, 1], [0.6, 0, 1, 1]])
ENCODER = EncoderConfig(
    vocab_size=12,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    intermediate_size=64,
    max_position_embeddings=10,
    dropout=0.0,
)


def scenes(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Build sentences ``<s> kind colour </s>``, three regions each, and the region described.

    Regions differ in kind, and each has a colour; the sentence names one kind and its colour.
    """
    random = torch.Generator().manual_seed(seed)
    kinds = torch.rand(count, KINDS, generator=random).argsort(1)
    colours = torch.randint(COLOURS, (count, KINDS), generator=random)
    meant = torch.randint(KINDS, (count,), generator=random)
    at = (kinds == meant[:, None]).int().argmax(1)
    colour = colours.gather(1, at[:, None])[:, 0]
    features = torch.zeros(count, KINDS, KINDS + COLOURS)
    features.scatter_(2, kinds[:, :, None], 1.0)
    features.scatter_(2, KINDS + colours[:, :, None], 1.0)
    ends = torch.zeros(count, dtype=torch.long)
    return torch.stack([ends, 3 + meant, 6 + colour, ends + 1], dim=1), features, at


def pair(ids: Tensor, features: Tensor) -> tuple[Text, Regions]:
    text = Text(ids.flatten(), Packing.of([4] * (ids.numel() // 4)))
    count = features.numel() // features.shape[-1] // 3
    regions = Regions(features.reshape(-1, 9), BOXES.repeat(count, 1), Packing.of([3] * count))
    return text, regions


@pytest.fixture(scope="module")
def model() -> UC2:
    """Train a model that predicts the masked colour from the region of the right kind."""
    torch.manual_seed(0)
    model = UC2(UC2Config(ENCODER, KINDS + COLOURS))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.2)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(100):
        ids, features, _ = scenes(64, step)
        text, regions = pair(ids.index_fill(1, torch.tensor([2]), MASK), features)
        rows = model(text, regions).text.view(64, 4, -1)[:, 2]
        loss = torch.nn.functional.cross_entropy(model.word_logits(rows), ids[:, 2])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.2
    return model.eval()


def confidence(model: UC2, ids: Tensor, features: Tensor) -> float:
    text, regions = pair(ids.index_fill(0, torch.tensor([2]), MASK), features)
    with torch.no_grad():
        rows = model(text, regions).text
        p = model.word_logits(rows[2:3])[0].double().softmax(0)[ids[2]]
    return float(torch.log(p) - torch.log1p(-p))


def test_the_predictive_region_gets_the_most_credit(model: UC2) -> None:
    ids, features, at = scenes(30, 10_000)
    credited, confirmed = 0, 0
    for one, image, right in zip(ids, features, at.tolist(), strict=True):
        text, regions = pair(one, image)
        credit = word_attribution(model, text, regions, [[2]], MASK)[0]
        credited += int(credit.argmax()) == right
        # Mask the region with the most credit, and the one with the least.
        most, least = image.clone(), image.clone()
        most[credit.argmax()] = model.masked_region()
        least[credit.argmin()] = model.masked_region()
        confirmed += confidence(model, one, most) < confidence(model, one, least)
    assert credited >= 27
    assert confirmed >= 27


def test_word_credits_sum_to_the_effect_of_the_image(model: UC2) -> None:
    ids, features, _ = scenes(5, 20_000)
    for one, image in zip(ids, features, strict=True):
        text, regions = pair(one, image)
        credit = float(word_attribution(model, text, regions, [[2]], MASK, steps=400).sum())
        nothing = model.masked_region().expand_as(image)
        difference = confidence(model, one, image) - confidence(model, one, nothing)
        assert credit == pytest.approx(difference, abs=0.1 + 0.02 * abs(difference))


def test_answer_credits_sum_to_the_effect_of_the_image(model: UC2) -> None:
    torch.manual_seed(1)
    vqa = VQAModel(model, 5).eval()
    torch.nn.init.normal_(vqa.head[-1].weight)  # type: ignore[arg-type]
    ids, features, _ = scenes(1, 30_000)
    text, regions = pair(ids, features)
    credit = answer_attribution(vqa, text, regions, 3, steps=400)
    _, nothing = pair(ids, model.masked_region().expand(1, 3, -1))
    with torch.no_grad():
        difference = vqa(text, regions)[0, 3] - vqa(text, nothing)[0, 3]
    assert credit.shape == (3,)
    assert float(credit.sum()) == pytest.approx(float(difference), abs=0.05)


@pytest.mark.parametrize("system", ["uc2", "paper", "reference"])
def test_attention_to_regions_takes_the_right_rows(system: str) -> None:
    torch.manual_seed(2)
    model: UC2 | M3P
    if system == "uc2":
        model = UC2(UC2Config(ENCODER, 9)).eval()
    else:
        config = M3PConfig(ENCODER, ("en",), visual_width=9, num_labels=4, variant=system)  # type: ignore[arg-type]
        model = M3P(config).eval()
    ids, features, _ = scenes(1, 0)
    text, regions = pair(ids, features)
    image = model.embed_regions(regions)
    words_in = model.embed_text(text) if isinstance(model, UC2) else model.embed_text(text, image)
    if system == "reference":
        rows, words, first = torch.cat([image.rows, words_in.rows]), 3, 0
    else:  # M3P's paper variant has [IMG] between words and regions
        rows, words, first = torch.cat([words_in.rows, image.rows]), 0, 4 + (system == "paper")
    with torch.no_grad():
        _, weights = forward_with_attention(model.encoder, rows)
    expected = torch.zeros(2, 3)
    for number, positions in enumerate([[1], [1, 2]]):
        for region in range(3):
            attention = [weights[1][head, words + position, first + region] for head in (0, 1)
                     for position in positions]  # fmt: skip
            expected[number, region] = sum(attention) / len(attention)
    credit = attention_to_regions(model, text, regions, [[1], [1, 2]], layers=[2])
    assert torch.allclose(credit, expected, atol=1e-6)

"""Where words look: attention as it is, and credit that the model's own behaviour confirms."""

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
    """Sentences ``<s> kind colour </s>``, three regions each, and which of them is meant.

    Each region is of another kind and has a colour; the colour told is that of the kind.
    """
    random = torch.Generator().manual_seed(seed)
    kinds = torch.rand(count, KINDS, generator=random).argsort(1)
    colours = torch.randint(COLOURS, (count, KINDS), generator=random)
    meant = torch.randint(KINDS, (count,), generator=random)
    at = (kinds == meant[:, None]).int().argmax(1)
    told = colours.gather(1, at[:, None])[:, 0]
    features = torch.zeros(count, KINDS, KINDS + COLOURS)
    features.scatter_(2, kinds[:, :, None], 1.0)
    features.scatter_(2, KINDS + colours[:, :, None], 1.0)
    ends = torch.zeros(count, dtype=torch.long)
    return torch.stack([ends, 3 + meant, 6 + told, ends + 1], dim=1), features, at


def pair(ids: Tensor, features: Tensor) -> tuple[Text, Regions]:
    text = Text(ids.flatten(), Packing.of([4] * (ids.numel() // 4)))
    count = features.numel() // features.shape[-1] // 3
    regions = Regions(features.reshape(-1, 9), BOXES.repeat(count, 1), Packing.of([3] * count))
    return text, regions


@pytest.fixture(scope="module")
def reader() -> UC2:
    """A model that reads the hidden colour off the region of the right kind."""
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


def sureness(model: UC2, ids: Tensor, features: Tensor) -> float:
    text, regions = pair(ids.index_fill(0, torch.tensor([2]), MASK), features)
    with torch.no_grad():
        rows = model(text, regions).text
        p = model.word_logits(rows[2:3])[0].double().softmax(0)[ids[2]]
    return float(torch.log(p) - torch.log1p(-p))


def test_credit_goes_to_the_region_that_the_word_is_read_from(reader: UC2) -> None:
    ids, features, at = scenes(30, 10_000)
    credited, confirmed = 0, 0
    for one, seen, right in zip(ids, features, at.tolist(), strict=True):
        text, regions = pair(one, seen)
        looks = word_attribution(reader, text, regions, [[2]], MASK)[0]
        credited += int(looks.argmax()) == right
        # Hide what has the most credit, and hide what has the least.
        most, least = seen.clone(), seen.clone()
        most[looks.argmax()] = reader.masked_region()
        least[looks.argmin()] = reader.masked_region()
        confirmed += sureness(reader, one, most) < sureness(reader, one, least)
    assert credited >= 27
    assert confirmed >= 27


def test_credits_sum_to_what_the_picture_does(reader: UC2) -> None:
    ids, features, _ = scenes(5, 20_000)
    for one, seen in zip(ids, features, strict=True):
        text, regions = pair(one, seen)
        credit = float(word_attribution(reader, text, regions, [[2]], MASK, steps=400).sum())
        nothing = reader.masked_region().expand_as(seen)
        difference = sureness(reader, one, seen) - sureness(reader, one, nothing)
        assert credit == pytest.approx(difference, abs=0.1 + 0.02 * abs(difference))


def test_an_answer_has_credits_that_sum_as_well(reader: UC2) -> None:
    torch.manual_seed(1)
    model = VQAModel(reader, 5).eval()
    torch.nn.init.normal_(model.head[-1].weight)  # type: ignore[arg-type]
    ids, features, _ = scenes(1, 30_000)
    text, regions = pair(ids, features)
    credit = answer_attribution(model, text, regions, 3, steps=400)
    _, nothing = pair(ids, reader.masked_region().expand(1, 3, -1))
    with torch.no_grad():
        difference = model(text, regions)[0, 3] - model(text, nothing)[0, 3]
    assert credit.shape == (3,)
    assert float(credit.sum()) == pytest.approx(float(difference), abs=0.05)


@pytest.mark.parametrize("layout", ["uc2", "paper", "reference"])
def test_attention_is_that_of_the_right_rows(layout: str) -> None:
    torch.manual_seed(2)
    model: UC2 | M3P
    if layout == "uc2":
        model = UC2(UC2Config(ENCODER, 9)).eval()
    else:
        config = M3PConfig(ENCODER, ("en",), visual_width=9, num_labels=4, variant=layout)  # type: ignore[arg-type]
        model = M3P(config).eval()
    ids, features, _ = scenes(1, 0)
    text, regions = pair(ids, features)
    seen = model.embed_regions(regions)
    said = model.embed_text(text) if isinstance(model, UC2) else model.embed_text(text, seen)
    if layout == "reference":
        rows, words, first = torch.cat([seen.rows, said.rows]), 3, 0
    else:  # [IMG] lies between words and regions in M3P's own layout
        rows, words, first = torch.cat([said.rows, seen.rows]), 0, 4 + (layout == "paper")
    with torch.no_grad():
        _, weights = forward_with_attention(model.encoder, rows)
    expected = torch.zeros(2, 3)
    for number, places in enumerate([[1], [1, 2]]):
        for region in range(3):
            found = [weights[1][head, words + place, first + region] for head in (0, 1)
                     for place in places]  # fmt: skip
            expected[number, region] = sum(found) / len(found)
    looks = attention_to_regions(model, text, regions, [[1], [1, 2]], layers=[2])
    assert torch.allclose(looks, expected, atol=1e-6)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.small_convnet import SmallConvNet
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.compression import (
    ProductQuantisedEmbedding,
    _balanced_rotation,
    check_compressible,
    compact_state,
    compress,
    dequantise_4bit,
    dequantise_8bit,
    load_compact,
    quantise_4bit,
    quantise_8bit,
)
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packing import Packing


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def in_four_bits(row: list[float]) -> list[float]:
    """One block, number by number."""
    farthest = max(row, key=abs)
    scale = float(np.float16(farthest / -8))
    if scale == 0:
        return [0.0] * len(row)
    return [scale * min(7, max(-8, round(value / scale))) for value in row]


def in_eight_bits(channel: list[float]) -> list[float]:
    scale = max(abs(value) for value in channel) / 127
    return [scale * round(value / scale) if scale else 0.0 for value in channel]


def rounded_to_four(weight: Tensor, block: int = 64) -> Tensor:
    return dequantise_4bit(*quantise_4bit(weight, block))


def rounded_to_eight(weight: Tensor) -> Tensor:
    return dequantise_8bit(*quantise_8bit(weight))


def test_four_bits_are_those_of_a_loop() -> None:
    weight = normal(5, 24) * torch.tensor([1e-3, 0.1, 1.0, 30.0, 0.0])[:, None]
    weight[1, 8:16] = 0
    codes, scales = quantise_4bit(weight, block=8)
    assert codes.dtype == torch.uint8
    assert codes.max() <= 15
    assert scales.shape == (5, 3)
    assert torch.equal(scales, scales.half().float())
    for row, found in zip(weight.tolist(), dequantise_4bit(codes, scales).tolist(), strict=True):
        expected = [value for start in (0, 8, 16) for value in in_four_bits(row[start : start + 8])]
        assert found == pytest.approx(expected, rel=1e-6)
    assert (dequantise_4bit(codes, scales)[1, 8:16] == 0).all()


def test_all_sixteen_codes_are_of_use() -> None:
    """The farthest of a block is code 0, be it positive or negative."""
    codes, scales = quantise_4bit(torch.tensor([[8.0, -7.0, 0.0, 1.0], [-8.0, 7.0, 0.4, -1.0]]), 4)
    assert codes.tolist() == [[0, 15, 8, 7], [0, 15, 8, 7]]
    assert scales.tolist() == [[-1.0], [1.0]]


def test_eight_bits_are_those_of_a_loop() -> None:
    weight = normal(4, 3, 2, 2) * torch.tensor([1e-4, 1.0, 50.0, 0.0])[:, None, None, None]
    codes, scales = quantise_8bit(weight)
    assert codes.dtype == torch.int8
    assert scales.shape == (4,)
    assert codes[:3].int().abs().flatten(1).amax(1).tolist() == [127] * 3
    for channel, found in zip(weight, dequantise_8bit(codes, scales), strict=True):
        expected = in_eight_bits(channel.flatten().tolist())
        assert found.flatten().tolist() == pytest.approx(expected, rel=1e-5)


def test_rounding_is_as_near_as_its_steps_are_fine() -> None:
    weight = normal(200, 128)
    blocks = weight.view(200, 2, 64)
    step = blocks.abs().amax(2, keepdim=True) / 8
    error = (rounded_to_four(weight).view_as(blocks) - blocks).abs()
    # Half a step, and one where -8 has no counterpart; float16 holds a scale to a 2048th.
    opposite = blocks / blocks.gather(2, blocks.abs().argmax(2, keepdim=True)) < -7.5 / 8
    assert (error <= step * (torch.where(opposite, 1.0, 0.5) + 8 / 2048)).all()
    kernels = weight.view(200, 8, 4, 4)
    step = kernels.flatten(1).abs().amax(1)[:, None, None, None] / 127
    assert ((rounded_to_eight(kernels) - kernels).abs() <= step * 0.5001).all()


def test_what_is_rounded_already_stays() -> None:
    weight = normal(100, 128) * 10 ** (2 * normal(100, 1, seed=1)).clamp(-3, 3)
    for rounded in (rounded_to_four(weight), rounded_to_eight(weight.view(100, 8, 4, 4))):
        again = rounded_to_four if rounded.dim() == 2 else rounded_to_eight
        torch.testing.assert_close(again(rounded), rounded, rtol=1e-6, atol=0)


def tiny(**changes: int | bool | str) -> MMP:
    """A small model with eyes; every row that is rounded divides into blocks."""
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocab_size=600,
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        intermediate_size=128,
        max_position_embeddings=20,
        dropout=0.0,
    )
    config = MMPConfig(
        encoder=encoder,
        text_layer=None,
        frozen_layers=0,
        visual_width=64,
        width=64,
        dropout=0.0,
    )
    model = MMP(replace(config, **changes))  # type: ignore[arg-type]
    model.add_module("image_backbone", SmallConvNet(64))
    nn.init.normal_(model.encoder.words.weight)  # type: ignore[arg-type]
    return model.eval()


FREQUENCY = torch.linspace(1, 0, 600).sqrt()[
    torch.randperm(600, generator=torch.Generator().manual_seed(3))
]


def small(model: MMP, parts: int = 16, frequent: int = 300) -> MMP:
    compress(model, FREQUENCY, parts=parts, finer_parts=parts, frequent=frequent)
    return model.eval()


@torch.no_grad()
def outputs(model: MMP) -> tuple[Tensor, Tensor]:
    """Unit vectors of eight sentences and of eight pictures."""
    ids = torch.randint(0, 600, (8 * 9,), generator=torch.Generator().manual_seed(1))
    cells = model.image_backbone(normal(8, 3, 32, 32)).flatten(2).transpose(1, 2)  # type: ignore[operator]
    pictures = model.encode_visual(cells.flatten(0, 1), Packing.of([cells.shape[1]] * 8))
    return model.encode_text(ids, Packing.of([9] * 8)), pictures


@pytest.fixture(scope="module")
def compressed() -> MMP:
    """A small model, compressed."""
    return small(tiny())


def test_gradients_are_those_at_the_rounded_weight(compressed: MMP) -> None:
    layer, x = compressed.visual_input, normal(5, 64)
    layer(x).pow(2).sum().backward()
    whole = layer.parametrizations.weight.original  # type: ignore[union-attr]
    weight = rounded_to_four(whole).detach().requires_grad_()
    (x @ weight.T + layer.bias).pow(2).sum().backward()
    assert not torch.equal(weight, whole)
    assert whole.grad is not None  # type: ignore[union-attr]
    torch.testing.assert_close(whole.grad, weight.grad)  # type: ignore[union-attr]


def decaying(rows: int = 2000, width: int = 32, scale: float = 1.0) -> Tensor:
    """A table most of whose variance lies in few directions, as word tables have it."""
    axes = torch.linalg.qr(normal(width, width, seed=5)).Q
    return scale * (normal(rows, width) * 0.85 ** torch.arange(width)) @ axes + 0.3 * scale


def error_of(table: Tensor, shared: ProductQuantisedEmbedding) -> Tensor:
    with torch.no_grad():
        return (shared(torch.arange(len(table))) - table).pow(2).sum(1)


def test_a_shared_table_is_nearer_with_more_parts_and_for_frequent_words() -> None:
    table = decaying()
    frequency = torch.rand(2000, generator=torch.Generator().manual_seed(2))
    frequent = frequency >= frequency.sort(descending=True).values[599]
    variance = (table - table.mean(0)).pow(2).sum(1).mean()
    means = []
    for parts in (2, 4, 8):
        shared = ProductQuantisedEmbedding.from_table(
            table, frequency, parts=parts, finer_parts=4, frequent=600
        )
        error = error_of(table, shared) / variance
        means.append((float(error[~frequent].mean()), float(error[frequent].mean())))
        assert int(shared.order[frequency.argmax()]) == 0
    others, finer = zip(*means, strict=True)
    assert others[0] > 1.5 * others[1] > 2.25 * others[2]
    assert finer[0] > 1.2 * finer[1] > 1.44 * finer[2]
    assert all(fine < 0.6 * coarse for coarse, fine in means)
    assert others[1] < 0.1  # all of it, had nothing been learned


@torch.no_grad()
def test_rows_are_looked_up_by_their_definition() -> None:
    table = decaying(rows=500, width=12)
    frequency = torch.rand(500, generator=torch.Generator().manual_seed(2))
    shared = ProductQuantisedEmbedding.from_table(
        table, frequency, parts=4, finer_parts=3, frequent=100
    )
    by_place = frequency.argsort(descending=True).tolist()
    places = [0, 99, 100, 499]
    found = shared(torch.tensor([by_place[place] for place in places]).view(2, 2))
    assert found.shape == (2, 2, 12)
    for place, row in zip(places, found.flatten(0, 1), strict=True):
        turned = [0.0] * 12
        for part in range(4):
            entry = shared.codebooks[part][int(shared.codes[place][part])]
            for number in range(3):
                turned[3 * part + number] += float(entry[number])
        for part in range(3 if place < 100 else 0):
            entry = shared.finer_codebooks[part][int(shared.finer_codes[place][part])]
            for number in range(4):
                turned[4 * part + number] += float(entry[number])
        expected = shared.centre.clone()
        for value, axis in zip(turned, shared.rotation, strict=True):
            expected += value * axis
        torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-5)


def test_each_part_names_the_nearest_entry_of_its_codebook() -> None:
    table = decaying(rows=700, width=8)
    shared = ProductQuantisedEmbedding.from_table(
        table, torch.arange(700.0), parts=2, finer_parts=2, frequent=10
    )
    turned = (table.flip(0) - shared.centre) @ shared.rotation.T  # the most frequent was the last
    for part in range(2):
        distances = torch.cdist(turned[:, 4 * part : 4 * part + 4], shared.codebooks[part])
        chosen = distances.gather(1, shared.codes[:, part : part + 1].long())
        assert (chosen <= distances.amin(1, keepdim=True) + 1e-4).all()


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_rotation_is_one_and_deals_variance_evenly(scale: float) -> None:
    rows = decaying(scale=scale)
    rows -= rows.mean(0)
    rotation = _balanced_rotation(rows, 4)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(32), atol=1e-5, rtol=0)
    turned = rows @ rotation.T
    off_diagonal = torch.corrcoef(turned.T) - torch.eye(32)
    assert off_diagonal.abs().max() < 1e-2  # principal axes
    products = turned.var(0).log().view(4, 8).sum(1)
    # One part of the eight largest and one of the eight smallest would be 62 apart.
    assert products.max() - products.min() < 3


def test_few_words_each_keep_an_entry() -> None:
    table = decaying(rows=40)
    shared = ProductQuantisedEmbedding.from_table(
        table, torch.arange(40.0), parts=4, finer_parts=2, frequent=90
    )
    assert error_of(table, shared).max() < 1e-6
    with pytest.raises(PolyglanceError, match="set frequent to 1 or more"):
        ProductQuantisedEmbedding.from_table(
            table, torch.arange(40.0), parts=4, finer_parts=2, frequent=0
        )


@pytest.mark.parametrize(("parts", "finer_parts"), [(5, 4), (4, 5), (0, 4)])
def test_rows_that_do_not_divide_are_one_sentence(parts: int, finer_parts: int) -> None:
    with pytest.raises(PolyglanceError, match=r"are not divisible into [05] parts: change"):
        ProductQuantisedEmbedding.from_table(
            decaying(40), torch.arange(40.0), parts=parts, finer_parts=finer_parts, frequent=9
        )
    with pytest.raises(PolyglanceError, match="100 weights is not divisible into blocks of 64"):
        quantise_4bit(normal(2, 100))


def test_what_cannot_be_compressed_is_told_beforehand() -> None:
    settings = {"parts": 16, "finer_parts": 16, "frequent": 9}
    check_compressible(tiny(), **settings)
    with pytest.raises(PolyglanceError, match="32 weights is not divisible into blocks of 64"):
        check_compressible(tiny(visual_width=32), **settings)
    for wrong in ({"parts": 7}, {"finer_parts": 7}, {"frequent": 0}):
        model = tiny()
        with pytest.raises(PolyglanceError, match=next(iter(wrong))):
            compress(model, FREQUENCY, **(settings | wrong))
        assert isinstance(model.encoder.words, nn.Embedding)


def cosines(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum(1)


@pytest.mark.parametrize("text_pooling", ["transformer", "mean"])
def test_a_compressed_model_is_near_the_whole_one(text_pooling: str) -> None:
    whole = outputs(tiny(text_pooling=text_pooling))
    compressed = outputs(small(tiny(text_pooling=text_pooling), parts=32))
    for before, after in zip(whole, compressed, strict=True):
        assert not torch.allclose(before, after, atol=1e-4)
        assert cosines(before, after).min() > 0.99
        assert cosines(before, after.roll(1, 0)).mean() < cosines(before, after).min() - 0.01
    coarse = outputs(small(tiny(text_pooling=text_pooling), parts=4))
    assert cosines(whole[0], coarse[0]).mean() < cosines(whole[0], compressed[0]).mean() - 0.01


@pytest.mark.parametrize("changes", [{}, {"share_pooling": True}, {"text_pooling": "mean"}])
def test_stored_and_loaded_it_acts_as_before(changes: dict[str, bool | str]) -> None:
    model = small(tiny(**changes))
    state = compact_state(model)
    fresh = tiny(**changes)
    for parameter in fresh.parameters():
        nn.init.constant_(parameter, 7.0)
    load_compact(fresh, state)
    for before, after in zip(outputs(model), outputs(fresh), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=1e-3)
    whole = sum(4 * value.numel() for value in fresh.state_dict().values())
    stored = sum(value.numel() * value.element_size() for value in state.values())
    assert stored < 0.75 * whole  # even where codebooks are larger than what they stand for


def test_two_codes_share_a_byte_the_earlier_in_its_low_half(compressed: MMP) -> None:
    state = compact_state(compressed)
    codes, scales = quantise_4bit(compressed.visual_input.weight)
    packed = state["visual_input.weight.codes"]
    assert packed.shape == (64, 1, 32)
    for byte, number in ((0, 0), (5, 10), (31, 62)):
        value = int(packed[3, 0, byte])
        assert (value & 15, value >> 4) == (int(codes[3, number]), int(codes[3, number + 1]))
    torch.testing.assert_close(state["visual_input.weight.scales"].float(), scales)
    assert state["image_backbone.last.weight.codes"].dtype == torch.int8
    assert not any("parametrizations" in name or name.endswith("original") for name in state)


WRONG: list[tuple[Callable[[], MMP], str]] = [
    (lambda: tiny(width=128), "another model: visual_input"),
    (lambda: tiny(text_pooling="mean"), "another model: text_pooling"),
    (lambda: tiny(pooling_layers=3), "another model: text_pooling.layers.2"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_another_model_s_weights_are_one_sentence(
    compressed: MMP, make: Callable[[], MMP], message: str
) -> None:
    state, model = compact_state(compressed), make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(PolyglanceError, match=message) as caught:
        load_compact(model, state)
    assert "\n" not in str(caught.value)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_weights_of_an_uncompressed_model_are_one_sentence() -> None:
    with pytest.raises(PolyglanceError, match=r"encoder\.words\.codes is missing"):
        load_compact(tiny(), dict(tiny().state_dict()))

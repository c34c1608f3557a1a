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
    """Quantise one block with a loop."""
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


def test_4bit_quantisation_agrees_with_a_loop() -> None:
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


def test_all_sixteen_codes_are_used() -> None:
    """The value of greatest magnitude is code 0, positive or negative."""
    codes, scales = quantise_4bit(torch.tensor([[8.0, -7.0, 0.0, 1.0], [-8.0, 7.0, 0.4, -1.0]]), 4)
    assert codes.tolist() == [[0, 15, 8, 7], [0, 15, 8, 7]]
    assert scales.tolist() == [[-1.0], [1.0]]


def test_8bit_quantisation_agrees_with_a_loop() -> None:
    weight = normal(4, 3, 2, 2) * torch.tensor([1e-4, 1.0, 50.0, 0.0])[:, None, None, None]
    codes, scales = quantise_8bit(weight)
    assert codes.dtype == torch.int8
    assert scales.shape == (4,)
    assert codes[:3].int().abs().flatten(1).amax(1).tolist() == [127] * 3
    for channel, found in zip(weight, dequantise_8bit(codes, scales), strict=True):
        expected = in_eight_bits(channel.flatten().tolist())
        assert found.flatten().tolist() == pytest.approx(expected, rel=1e-5)


def test_rounding_errors_are_below_half_a_step() -> None:
    weight = normal(200, 128)
    blocks = weight.view(200, 2, 64)
    step = blocks.abs().amax(2, keepdim=True) / 8
    error = (rounded_to_four(weight).view_as(blocks) - blocks).abs()
    # Half a step, or one where -8 has no counterpart; float16 rounds scales by up to 1/2048.
    opposite = blocks / blocks.gather(2, blocks.abs().argmax(2, keepdim=True)) < -7.5 / 8
    assert (error <= step * (torch.where(opposite, 1.0, 0.5) + 8 / 2048)).all()
    kernels = weight.view(200, 8, 4, 4)
    step = kernels.flatten(1).abs().amax(1)[:, None, None, None] / 127
    assert ((rounded_to_eight(kernels) - kernels).abs() <= step * 0.5001).all()


def test_quantisation_is_idempotent() -> None:
    weight = normal(100, 128) * 10 ** (2 * normal(100, 1, seed=1)).clamp(-3, 3)
    for rounded in (rounded_to_four(weight), rounded_to_eight(weight.view(100, 8, 4, 4))):
        again = rounded_to_four if rounded.dim() == 2 else rounded_to_eight
        torch.testing.assert_close(again(rounded), rounded, rtol=1e-6, atol=0)


def tiny(**changes: int | bool | str) -> MMP:
    """A small model with an image backbone; quantised rows are divisible into blocks."""
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
    """Return unit vectors of eight sentences and eight images."""
    ids = torch.randint(0, 600, (8 * 9,), generator=torch.Generator().manual_seed(1))
    cells = model.image_backbone(normal(8, 3, 32, 32)).flatten(2).transpose(1, 2)  # type: ignore[operator]
    pictures = model.encode_visual(cells.flatten(0, 1), Packing.of([cells.shape[1]] * 8))
    return model.encode_text(ids, Packing.of([9] * 8)), pictures


@pytest.fixture(scope="module")
def compressed() -> MMP:
    """Return a small compressed model."""
    return small(tiny())


def test_gradients_are_straight_through_at_the_rounded_weight(compressed: MMP) -> None:
    layer, x = compressed.visual_input, normal(5, 64)
    layer(x).pow(2).sum().backward()
    original = layer.parametrizations.weight.original  # type: ignore[union-attr]
    weight = rounded_to_four(original).detach().requires_grad_()
    (x @ weight.T + layer.bias).pow(2).sum().backward()
    assert not torch.equal(weight, original)
    assert original.grad is not None  # type: ignore[union-attr]
    torch.testing.assert_close(original.grad, weight.grad)  # type: ignore[union-attr]


def decaying(rows: int = 2000, width: int = 32, scale: float = 1.0) -> Tensor:
    """Return a table with most variance in few directions, as word embeddings have."""
    axes = torch.linalg.qr(normal(width, width, seed=5)).Q
    return scale * (normal(rows, width) * 0.85 ** torch.arange(width)) @ axes + 0.3 * scale


def error_of(table: Tensor, quantised: ProductQuantisedEmbedding) -> Tensor:
    with torch.no_grad():
        return (quantised(torch.arange(len(table))) - table).pow(2).sum(1)


def test_more_parts_and_frequent_words_have_smaller_errors() -> None:
    table = decaying()
    frequency = torch.rand(2000, generator=torch.Generator().manual_seed(2))
    frequent = frequency >= frequency.sort(descending=True).values[599]
    variance = (table - table.mean(0)).pow(2).sum(1).mean()
    means = []
    for parts in (2, 4, 8):
        quantised = ProductQuantisedEmbedding.from_table(
            table, frequency, parts=parts, finer_parts=4, frequent=600
        )
        error = error_of(table, quantised) / variance
        means.append((float(error[~frequent].mean()), float(error[frequent].mean())))
        assert int(quantised.order[frequency.argmax()]) == 0
    others, finer = zip(*means, strict=True)
    assert others[0] > 1.5 * others[1] > 2.25 * others[2]
    assert finer[0] > 1.2 * finer[1] > 1.44 * finer[2]
    assert all(fine < 0.6 * coarse for coarse, fine in means)
    assert others[1] < 0.1  # 1 without any codes


@torch.no_grad()
def test_lookup_agrees_with_the_definition() -> None:
    table = decaying(rows=500, width=12)
    frequency = torch.rand(500, generator=torch.Generator().manual_seed(2))
    quantised = ProductQuantisedEmbedding.from_table(
        table, frequency, parts=4, finer_parts=3, frequent=100
    )
    by_rank = frequency.argsort(descending=True).tolist()
    ranks = [0, 99, 100, 499]
    found = quantised(torch.tensor([by_rank[rank] for rank in ranks]).view(2, 2))
    assert found.shape == (2, 2, 12)
    for rank, row in zip(ranks, found.flatten(0, 1), strict=True):
        turned = [0.0] * 12
        for part in range(4):
            entry = quantised.codebooks[part][int(quantised.codes[rank][part])]
            for number in range(3):
                turned[3 * part + number] += float(entry[number])
        for part in range(3 if rank < 100 else 0):
            entry = quantised.finer_codebooks[part][int(quantised.finer_codes[rank][part])]
            for number in range(4):
                turned[4 * part + number] += float(entry[number])
        expected = quantised.centre.clone()
        for value, axis in zip(turned, quantised.rotation, strict=True):
            expected += value * axis
        torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-5)


def test_codes_select_the_nearest_codebook_entry() -> None:
    table = decaying(rows=700, width=8)
    quantised = ProductQuantisedEmbedding.from_table(
        table, torch.arange(700.0), parts=2, finer_parts=2, frequent=10
    )
    turned = (
        table.flip(0) - quantised.centre
    ) @ quantised.rotation.T  # the last word is the most frequent
    for part in range(2):
        distances = torch.cdist(turned[:, 4 * part : 4 * part + 4], quantised.codebooks[part])
        chosen = distances.gather(1, quantised.codes[:, part : part + 1].long())
        assert (chosen <= distances.amin(1, keepdim=True) + 1e-4).all()


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_rotation_is_orthogonal_and_balances_variance(scale: float) -> None:
    rows = decaying(scale=scale)
    rows -= rows.mean(0)
    rotation = _balanced_rotation(rows, 4)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(32), atol=1e-5, rtol=0)
    turned = rows @ rotation.T
    off_diagonal = torch.corrcoef(turned.T) - torch.eye(32)
    assert off_diagonal.abs().max() < 1e-2  # principal axes
    products = turned.var(0).log().view(4, 8).sum(1)
    # Parts of the eight largest and the eight smallest would differ by 62.
    assert products.max() - products.min() < 3


def test_fewer_words_than_codes_are_exact() -> None:
    table = decaying(rows=40)
    quantised = ProductQuantisedEmbedding.from_table(
        table, torch.arange(40.0), parts=4, finer_parts=2, frequent=90
    )
    assert error_of(table, quantised).max() < 1e-6
    with pytest.raises(PolyglanceError, match="set frequent to 1 or more"):
        ProductQuantisedEmbedding.from_table(
            table, torch.arange(40.0), parts=4, finer_parts=2, frequent=0
        )


@pytest.mark.parametrize(("parts", "finer_parts"), [(5, 4), (4, 5), (0, 4)])
def test_indivisible_rows_raise_a_clear_error(parts: int, finer_parts: int) -> None:
    with pytest.raises(PolyglanceError, match=r"are not divisible into [05] parts: change"):
        ProductQuantisedEmbedding.from_table(
            decaying(40), torch.arange(40.0), parts=parts, finer_parts=finer_parts, frequent=9
        )
    with pytest.raises(PolyglanceError, match="100 weights is not divisible into blocks of 64"):
        quantise_4bit(normal(2, 100))


def test_check_compressible_refuses_before_training() -> None:
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
def test_a_compressed_model_is_close_to_the_original(text_pooling: str) -> None:
    original = outputs(tiny(text_pooling=text_pooling))
    compressed = outputs(small(tiny(text_pooling=text_pooling), parts=32))
    for before, after in zip(original, compressed, strict=True):
        assert not torch.allclose(before, after, atol=1e-4)
        assert cosines(before, after).min() > 0.99
        assert cosines(before, after.roll(1, 0)).mean() < cosines(before, after).min() - 0.01
    coarse = outputs(small(tiny(text_pooling=text_pooling), parts=4))
    assert (
        cosines(original[0], coarse[0]).mean() < cosines(original[0], compressed[0]).mean() - 0.01
    )


@pytest.mark.parametrize("changes", [{}, {"share_pooling": True}, {"text_pooling": "mean"}])
def test_a_loaded_compact_state_gives_the_same_vectors(changes: dict[str, bool | str]) -> None:
    model = small(tiny(**changes))
    state = compact_state(model)
    fresh = tiny(**changes)
    for parameter in fresh.parameters():
        nn.init.constant_(parameter, 7.0)
    load_compact(fresh, state)
    for before, after in zip(outputs(model), outputs(fresh), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=1e-3)
    original = sum(4 * value.numel() for value in fresh.state_dict().values())
    stored = sum(value.numel() * value.element_size() for value in state.values())
    assert stored < 0.75 * original  # although codebooks are larger than the table here


def test_two_codes_share_a_byte_the_first_in_its_low_half(compressed: MMP) -> None:
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
def test_weights_of_another_model_raise_a_clear_error(
    compressed: MMP, make: Callable[[], MMP], message: str
) -> None:
    state, model = compact_state(compressed), make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(PolyglanceError, match=message) as caught:
        load_compact(model, state)
    assert "\n" not in str(caught.value)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_weights_of_an_uncompressed_model_raise_a_clear_error() -> None:
    with pytest.raises(PolyglanceError, match=r"encoder\.words\.codes is missing"):
        load_compact(tiny(), dict(tiny().state_dict()))

from __future__ import annotations

import pytest
import torch

from polyglance.vision.convnet import SmallConvNet


@pytest.fixture
def network() -> SmallConvNet:
    torch.manual_seed(0)
    return SmallConvNet(16).eval()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (64, 24), (33, 9)])
def test_a_cell_for_every_eight_pixels_begun(
    network: SmallConvNet, height: int, width: int
) -> None:
    cells = network(torch.randn(2, 3, height, width))
    assert cells.shape == (2, 16, -(-height // 8), -(-width // 8))
    assert cells.min() >= 0


def test_a_picture_is_seen_alike_in_any_company(network: SmallConvNet) -> None:
    pictures = torch.randn(3, 3, 32, 32)
    torch.testing.assert_close(network(pictures)[1:2], network(pictures[1:2]))


def test_left_and_right_differ_even_in_the_mean_of_all_cells(network: SmallConvNet) -> None:
    pictures = torch.zeros(2, 3, 64, 64)
    pictures[0, :, 24:40, 16:24] = 1.0
    pictures[1, :, 24:40, 40:48] = 1.0  # the same, three cells further right
    means = network(pictures).mean((2, 3))
    assert (means[0] - means[1]).abs().max() > 1e-3
    torch.nn.init.zeros_(network.last.weight[:, -2:])  # blind to places
    left, right = network(pictures).mean((2, 3))
    torch.testing.assert_close(left, right)


def test_all_layers_learn() -> None:
    network = SmallConvNet(8)
    network(torch.randn(4, 3, 16, 16)).square().mean().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None and gradient.any() for gradient in gradients)


def test_half_precision_stays_half(network: SmallConvNet) -> None:
    assert network.bfloat16()(torch.randn(1, 3, 16, 16).bfloat16()).dtype is torch.bfloat16

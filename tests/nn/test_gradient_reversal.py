from __future__ import annotations

import math

import pytest
import torch

from polyglance.nn.gradient_reversal import ReversalSchedule, reverse_gradient


@pytest.mark.parametrize("strength", [1.0, 0.25, torch.tensor(3.0)])
def test_identity_forwards_and_negated_gradient_backwards(
    strength: float | torch.Tensor,
) -> None:
    rows = torch.randn(4, 3, requires_grad=True)
    output = reverse_gradient(rows, strength)
    assert torch.equal(output, rows)
    weight = torch.randn(4, 3)
    (output * weight).sum().backward()
    torch.testing.assert_close(rows.grad, -float(strength) * weight)


def test_the_schedule_follows_training_steps_and_survives_a_checkpoint() -> None:
    ramp = ReversalSchedule(steps=8).train()
    strengths = [float(ramp()) for _ in range(10)]
    expected = [2 / (1 + math.exp(-10 * min(1, step / 8))) - 1 for step in range(10)]
    assert strengths == pytest.approx(expected, abs=1e-6)
    assert strengths[0] == 0
    assert strengths[-1] > 0.999
    half = ReversalSchedule(steps=8)
    for _ in range(4):
        half()
    resumed = ReversalSchedule(steps=8)
    resumed.load_state_dict(half.state_dict())
    assert float(resumed()) == pytest.approx(expected[4], abs=1e-6)
    resumed.eval()
    assert float(resumed()) == float(resumed()) == pytest.approx(expected[5], abs=1e-6)

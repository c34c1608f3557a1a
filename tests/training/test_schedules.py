from __future__ import annotations

import pytest

from polyglance.training.schedules import Schedule, lr_factor


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.2, 0.6, 1, 1, 1]),
        ("linear", [0.2, 0.6, 1, 0.5, 0]),
        ("cosine", [0.2, 0.6, 1, 0.5, 0]),
        ("inverse-sqrt", [0.2, 0.6, 1, (4 / 54) ** 0.5, (4 / 104) ** 0.5]),
    ],
)
def test_schedules_by_hand(schedule: Schedule, expected: list[float]) -> None:
    at = [lr_factor(schedule, step, warmup=4, steps=104) for step in (0, 2, 4, 54, 104)]
    assert at == pytest.approx(expected)


def test_without_warmup_the_first_step_is_at_the_peak() -> None:
    assert lr_factor("cosine", 0, warmup=0, steps=10) == 1
    assert lr_factor("inverse-sqrt", 0, warmup=0, steps=10) == 1

"""Settings that validate themselves, and fields of any type."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from polyglance.config import load, validate_fields
from polyglance.errors import PolyglanceError


@dataclass(frozen=True)
class Bounded:
    size: int = 1
    rate: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value > 0, "a number above 0", "size", "rate")


def test_validation_errors_have_a_location():
    assert load(Bounded, {"rate": 2}) == Bounded(rate=2.0)
    with pytest.raises(PolyglanceError, match=r"^rate is 0\.0: give a number above 0$"):
        load(Bounded, {"rate": 0})
    with pytest.raises(PolyglanceError, match=r"^size is -1: give a number above 0$"):
        Bounded(size=-1)


def test_any_values_are_kept_unchanged():
    notes = {"a": [1, {"b": None}], "c": 1.5, "d": {}}
    assert load(Bounded, {"notes": notes}).notes == notes
    with pytest.raises(PolyglanceError, match="notes: expected a mapping"):
        load(Bounded, {"notes": 5})

"""Options of commands that decode files: what a file may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from polyglance.vision.limited_decoding import DecodeLimits

MaxPixels = Annotated[
    int | None, typer.Option(min=1, help="Skip larger pictures; default: 100 million pixels.")
]
MaxSeconds = Annotated[
    int | None, typer.Option(min=1, help="CPU seconds to decode a picture; default: 20.")
]
MaxMemory = Annotated[
    int | None, typer.Option(min=1, help="Megabytes to decode a file; default: 2000.")
]


def decode_limits(
    max_pixels: int | None, max_seconds: int | None, max_memory: int | None
) -> DecodeLimits:
    """Return the limits that options give; those not given are the defaults."""
    from polyglance.vision.limited_decoding import DecodeLimits

    given = {
        "max_pixels": max_pixels,
        "max_seconds": max_seconds,
        "max_memory": None if max_memory is None else max_memory * 1_000_000,
    }
    return DecodeLimits(**{name: value for name, value in given.items() if value is not None})

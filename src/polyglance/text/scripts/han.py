"""Chinese in traditional characters, in the simplified ones that models know better.

``traditional.xz`` has pairs of characters, from OpenCC (Apache-2.0).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from polyglance.utils.bounded import decompress_xz

_PATH = Path(__file__).parent / "traditional.xz"


def to_simplified(text: str) -> str:
    """Return a text with traditional characters replaced; others, and other scripts, stay."""
    if text.isascii():
        return text
    return text.translate(_table())


def traditional_characters() -> dict[int, str]:
    """Return traditional characters by the code of simplified ones, where only one belongs."""
    found: dict[int, str] = {}
    for code, simplified in _table().items():
        found[ord(simplified)] = "" if ord(simplified) in found else chr(code)
    return {code: character for code, character in found.items() if character}


@cache
def _table() -> dict[int, str]:
    traditional, simplified = decompress_xz(_PATH.read_bytes()).decode().split("\n")
    return dict(zip(map(ord, traditional), simplified, strict=True))

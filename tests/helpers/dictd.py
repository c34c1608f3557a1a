"""dictd's format, written from its description, to be read back."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def base64(number: int) -> str:
    """A number in dictd's base 64, without leading zeros."""
    digits = _DIGITS[number % 64]
    while number := number // 64:
        digits = _DIGITS[number % 64] + digits
    return digits


def write_dictd(
    folder: Path, articles: Sequence[tuple[str, str]], *, name: str = "x", zipped: bool = True
) -> Path:
    """Write articles by headword as an index and its file; returns the index's path."""
    about = ("00-database-short", "00-database-short\nEnglish - German dictionary\n")
    data, lines = b"", []
    places: dict[str, int] = {}
    for headword, article in [about, *articles]:
        if article not in places:
            places[article] = len(data)
            data += article.encode()
        length = base64(len(article.encode()))
        lines.append(f"{headword}\t{base64(places[article])}\t{length}\n")
    index = folder / f"{name}.index"
    index.write_text("".join(sorted(lines)), encoding="utf-8")
    ending, content = (".dict.dz", gzip.compress(data)) if zipped else (".dict", data)
    (folder / f"{name}{ending}").write_bytes(content)
    return index

"""Write dictionaries in dictd's format, from its specification."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def base64(number: int) -> str:
    """Encode a number in dictd's base 64, without leading zeros."""
    digits = _DIGITS[number % 64]
    while number := number // 64:
        digits = _DIGITS[number % 64] + digits
    return digits


def write_dictd(
    folder: Path, articles: Sequence[tuple[str, str]], *, name: str = "x", zipped: bool = True
) -> Path:
    """Write (headword, article) pairs as a dictionary; return the path of its index."""
    metadata = ("00-database-short", "00-database-short\nEnglish - German dictionary\n")
    data, lines = b"", []
    offsets: dict[str, int] = {}
    for headword, article in [metadata, *articles]:
        if article not in offsets:
            offsets[article] = len(data)
            data += article.encode()
        length = base64(len(article.encode()))
        lines.append(f"{headword}\t{base64(offsets[article])}\t{length}\n")
    index = folder / f"{name}.index"
    index.write_text("".join(sorted(lines)), encoding="utf-8")
    ending, content = (".dict.dz", gzip.compress(data)) if zipped else (".dict", data)
    (folder / f"{name}{ending}").write_bytes(content)
    return index

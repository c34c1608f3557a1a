"""Fill docs pages: text between marks, and Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

NOT_MEASURED = "Not measured yet."


def fill(document: Path, contents: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->``, for each name."""
    text = document.read_text(encoding="utf-8")
    for name, content in contents.items():
        marks = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)"
        text, count = re.subn(
            marks, lambda m, c=content: f"{m[1]}\n{c}\n\n{m[2]}", text, flags=re.DOTALL
        )
        if not count:
            raise SystemExit(f"{document} has no mark <!-- {name} -->")
    document.write_text(text, encoding="utf-8")
    print(f"wrote {document}")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Format a Markdown table; columns after the first ``text_columns`` are aligned right."""
    line = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, line, *rows])


def bullets(sentences: Iterable[str]) -> str:
    """Format sentences as a bulleted list."""
    return "\n".join(f"- {sentence}" for sentence in sentences) or NOT_MEASURED

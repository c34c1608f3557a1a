"""Pages whose figures come from result files: tables between marks, and plots of logs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def fill(document: Path, contents: Mapping[str, str]) -> None:
    """Put fresh contents between the marks ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""
    text = document.read_text(encoding="utf-8")
    for name, content in contents.items():
        marks = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)"
        text, found = re.subn(
            marks, lambda m, c=content: f"{m[1]}\n{c}\n\n{m[2]}", text, flags=re.DOTALL
        )
        if not found:
            raise SystemExit(f"{document} has no mark <!-- {name} -->")
    document.write_text(text, encoding="utf-8")
    print(f"wrote {document}")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """A Markdown table whose figures stand to the right."""
    line = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, line, *rows])


Curve = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT, _LEFT, _BELOW, _RIGHT = 760, 300, 46, 40, 190
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")


def plot(curves: Mapping[str, Curve], *, across: str, up: str) -> str:
    """Curves as an SVG picture, each named at its end."""
    points = [point for curve in curves.values() for point in curve]
    most_x = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100) if (high - low) / s <= 7)
    low, high = step * (low // step), step * -(-high // step)

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BELOW - 12
        return _LEFT + x / most_x * wide, 12 + (high - y) / (high - low) * tall

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    level = low
    while level <= high:
        x, y = place(0, level)
        end, _ = place(most_x, level)
        parts.append(f'<path d="M{x} {y:.1f}H{end:.1f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{level:g}</text>'
        )
        level += step
    for x in range(0, int(most_x) + 1, max(1, int(most_x) // 4)):
        at, y = place(x, low)
        parts.append(
            f'<text x="{at:.1f}" y="{y + 16:.1f}" text-anchor="middle" fill="#555">{x:,}</text>'
        )
    taken: list[float] = []
    by_end = sorted(curves.items(), key=lambda named: -named[1][-1][1])
    for number, (name, curve) in enumerate(by_end):
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = place(*curve[-1])
        y = max([y, *(other + 14 for other in taken[-1:])])  # names do not lie on each other
        taken.append(y)
        label = f"{html.escape(name)} {curve[-1][1]:.1f}"
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{label}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle" fill="#555">'
        f"{html.escape(across)}; {html.escape(up)}</text>"
    )
    return "\n".join([*parts, "</svg>\n"])

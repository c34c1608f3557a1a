"""Points and lines of labelled points as an SVG picture."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence

Point = tuple[float, float]
Labelled = tuple[str, float, float]

_WIDTH, _HEIGHT, _LEFT, _BELOW, _RIGHT, _TOP = 760, 420, 46, 44, 110, 14
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
            "#9c6b4e", "#9498a0", "#2f6f4f")  # fmt: skip


def plot(
    points: Mapping[str, Point],
    lines: Mapping[str, Sequence[Labelled]],
    *,
    across: str,
    up: str,
) -> str:
    """Named points, and lines whose points carry short labels of their own."""
    everything = [*points.values(), *((x, y) for line in lines.values() for _, x, y in line)]
    low, high, step_up = _range([y for _, y in everything])
    left, right, step_across = _range([0.0, *(x for x, _ in everything)])

    def place(x: float, y: float) -> Point:
        wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BELOW - _TOP
        return (
            _LEFT + (x - left) / (right - left) * wide,
            _TOP + (high - y) / (high - low) * tall,
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_axes(place, (left, right, step_across), (low, high, step_up)),
    ]
    colours = iter(_COLOURS * (1 + (len(points) + len(lines)) // len(_COLOURS)))
    for name, line in lines.items():
        colour = next(colours)
        drawn = [place(x, y) for _, x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>'
        )
        for (label, _, _), (x, y) in zip(line, drawn, strict=True):
            if label not in points:  # which is drawn as a point of its own
                parts.append(_dot(x, y, 3.5, colour))
                parts.append(_text(x, y + 16, f"{name} {label}", colour, "middle", 10))
    taken: list[tuple[float, float, float]] = []
    for name, point in sorted(points.items(), key=lambda named: named[1][1]):
        colour = next(colours)
        x, y = place(*point)
        parts.append(_dot(x, y, 6, colour))
        label = f"{name} {point[1]:.1f}"
        begin, end, height = x + 9, x + 9 + 7 * len(label), y + 4
        while any(begin < b and a < end and abs(height - h) < 13 for a, b, h in taken):
            height -= 13  # names do not lie on each other
        taken.append((begin, end, height))
        parts.append(_text(begin, height, label, colour, "start", 12))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(_text(middle, _HEIGHT - 8, f"{across}; {up}", "#555", "middle", 12))
    return "\n".join([*parts, "</svg>\n"])


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    """A round range around values, and the step of its ticks."""
    low, high = min(values), max(values)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if (high - low) / s <= 8)
    low, high = step * (low // step), step * -(-high // step)
    return low, max(high, low + step), step


def _axes(
    place: Callable[[float, float], Point],
    across: tuple[float, float, float],
    up: tuple[float, float, float],
) -> list[str]:
    parts = []
    for level in _ticks(*up):
        (x, y), (end, _) = place(across[0], level), place(across[1], level)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{end:.1f}" stroke="#ddd"/>')
        parts.append(_text(x - 6, y + 4, f"{level:g}", "#555", "end", 12))
    for level in _ticks(*across):
        x, y = place(level, up[0])
        parts.append(_text(x, y + 16, f"{level:g}", "#555", "middle", 12))
    return parts


def _ticks(low: float, high: float, step: float) -> list[float]:
    return [low + step * number for number in range(1 + round((high - low) / step))]


def _dot(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str, anchor: str, size: int) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
        f' font-size="{size}">{html.escape(text)}</text>'
    )

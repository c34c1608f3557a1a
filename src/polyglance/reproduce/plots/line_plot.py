"""Draw curves as an SVG image."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

Curve = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT, _LEFT, _BELOW, _RIGHT = 760, 300, 46, 40, 190
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")


def plot(curves: Mapping[str, Curve], *, x_label: str, y_label: str) -> str:
    """Draw curves as an SVG image, each labelled at its end.

    Args:
        curves: Points ``(x, y)`` of each curve, by its name.
        x_label: What the horizontal axis shows.
        y_label: What the vertical axis shows.
    """
    points = [point for curve in curves.values() for point in curve]
    max_x = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100) if (high - low) / s <= 7)
    low, high = step * (low // step), step * -(-high // step)

    def to_pixels(x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BELOW - 12
        return _LEFT + x / max_x * width, 12 + (high - y) / (high - low) * height

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    level = low
    while level <= high:
        x, y = to_pixels(0, level)
        end, _ = to_pixels(max_x, level)
        parts.append(f'<path d="M{x} {y:.1f}H{end:.1f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{level:g}</text>'
        )
        level += step
    for x in range(0, int(max_x) + 1, max(1, int(max_x) // 4)):
        tick, y = to_pixels(x, low)
        parts.append(
            f'<text x="{tick:.1f}" y="{y + 16:.1f}" text-anchor="middle" fill="#555">{x:,}</text>'
        )
    label_heights: list[float] = []
    by_end = sorted(curves.items(), key=lambda named: -named[1][-1][1])
    for number, (name, curve) in enumerate(by_end):
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join("{:.1f},{:.1f}".format(*to_pixels(*point)) for point in curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = to_pixels(*curve[-1])
        if len(curve) == 1:  # no line shows it
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        y = max([y, *(other + 14 for other in label_heights[-1:])])  # labels must not overlap
        label_heights.append(y)
        label = f"{html.escape(name)} {curve[-1][1]:.1f}"
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{label}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle" fill="#555">'
        f"{html.escape(x_label)}; {html.escape(y_label)}</text>"
    )
    return "\n".join([*parts, "</svg>\n"])

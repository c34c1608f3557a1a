"""Draw named points, and lines of labelled points, as an SVG image."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

Point = tuple[float, float]
Labelled = tuple[str, float, float]
Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""

_WIDTH, _HEIGHT, _LEFT, _BELOW, _RIGHT, _TOP = 860, 520, 46, 44, 70, 14
_COLOURS = ("#4269d0", "#b57f00", "#d0402b", "#2a8f7b", "#2c7d3c", "#c9437f", "#8139d6", "#2f6fc2",
            "#7a5237", "#5f6570", "#111111")  # fmt: skip
_LETTER = 0.56
"""Width of a letter relative to its height: a little more than the mean of common fonts."""


def plot(
    points: Mapping[str, Point],
    lines: Mapping[str, Sequence[Labelled]],
    *,
    x_label: str,
    y_label: str,
) -> str:
    """Draw points and lines over a logarithmic horizontal axis.

    Args:
        points: Place ``(x, y)`` of each named point.
        lines: Labelled points ``(label, x, y)`` of each named line.
        x_label: What the horizontal axis shows.
        y_label: What the vertical axis shows.
    """
    everything = [*points.values(), *((x, y) for line in lines.values() for _, x, y in line)]
    low, high, step = _rounded_range([y for _, y in everything])
    sizes = _doublings([x for x, _ in everything])

    def to_pixels(x: float, y: float) -> Point:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BELOW - _TOP
        return (
            _LEFT + math.log(x / sizes[0]) / math.log(sizes[-1] / sizes[0]) * width,
            _TOP + (high - y) / (high - low) * height,
        )

    colours = iter(_COLOURS * (1 + (len(points) + len(lines)) // len(_COLOURS)))
    dots: list[tuple[str, float, float, float, int, str]] = []
    parts: list[str] = []
    for name, line in lines.items():
        colour = next(colours)
        path = " ".join("{:.1f},{:.1f}".format(*to_pixels(x, y)) for _, x, y in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>'
        )
        dots += [
            (f"{name} {label}", *to_pixels(x, y), 3.5, 11, colour)
            for label, x, y in line
            if label not in points  # drawn as a point below
        ]
    dots += [
        (f"{name} {y:.1f}", *to_pixels(x, y), 6, 13, next(colours))
        for name, (x, y) in points.items()
    ]
    parts += [_dot(x, y, radius, colour) for _, x, y, radius, _, colour in dots]
    occupied = [(x - r, y - r, x + r, y + r) for _, x, y, r, _, _ in dots]
    for label, x, y, radius, size, colour in sorted(dots, key=lambda dot: -dot[4]):
        box = _best_place(_candidate_places(x, y, radius, size, len(label)), occupied)
        occupied.append(box)
        parts.append(_text(box[0], box[3] - size * 0.2, label, colour, "start", size))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
            ' font-family="system-ui, sans-serif">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            *_axes(to_pixels, sizes, (low, high, step)),
            *parts,
            _text(
                (_LEFT + _WIDTH - _RIGHT) / 2,
                _HEIGHT - 8,
                f"across: {x_label}; up: {y_label}",
                "#555",
                "middle",
                12,
            ),
            "</svg>\n",
        ]
    )


def _candidate_places(x: float, y: float, radius: float, size: int, letters: int) -> Iterator[Box]:
    """Yield places for the label of a dot, best first: right, left, above, below, then further."""
    width, height = letters * size * _LETTER, size * 1.1
    for distance in range(12):
        side, over = radius + 3 + 4 * distance, radius + height * (0.2 + distance / 2)
        for left, top in (
            (x + side, y - height / 2),
            (x - side - width, y - height / 2),
            (x - width / 2, y - over - height),
            (x - width / 2, y + over),
            (x + radius, y - over - height),
            (x + radius, y + over),
            (x - radius - width, y - over - height),
            (x - radius - width, y + over),
        ):
            yield left, top, left + width, top + height


def _best_place(places: Iterator[Box], occupied: Sequence[Box]) -> Box:
    """Return the first place inside the image that overlaps nothing, else the least overlapping."""
    best, min_overlap = (0.0, 0.0, 0.0, 0.0), math.inf
    for box in places:
        if not (box[0] >= _LEFT and box[2] <= _WIDTH and box[1] >= 0 and box[3] <= _HEIGHT):
            continue
        overlap = sum(_overlap(box, other) for other in occupied)
        if overlap < min_overlap:
            best, min_overlap = box, overlap
        if not overlap:
            break
    return best


def _overlap(a: Box, b: Box) -> float:
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


def _rounded_range(values: Sequence[float]) -> tuple[float, float, float]:
    """Return a rounded range that contains the values, and the step between its ticks."""
    low, high = min(values), max(values)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if (high - low) / s <= 10)
    low, high = step * (low // step), step * -(-high // step)
    return low, max(high, low + step), step


def _doublings(values: Sequence[float]) -> list[float]:
    """Return ticks around all values, each twice the one before: ... 5, 10, 20, 40 ..."""
    first = math.floor(math.log2(min(values) / 5))
    last = max(first + 1, math.ceil(math.log2(max(values) / 5)))
    return [5 * 2.0**power for power in range(first, last + 1)]


def _axes(
    to_pixels: Callable[[float, float], Point],
    x_ticks: Sequence[float],
    y_range: tuple[float, float, float],
) -> list[str]:
    parts = []
    low, high, step = y_range
    for number in range(1 + round((high - low) / step)):
        level = low + step * number
        (x, y), (end, _) = to_pixels(x_ticks[0], level), to_pixels(x_ticks[-1], level)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{end:.1f}" stroke="#ddd"/>')
        parts.append(_text(x - 6, y + 4, f"{level:g}", "#555", "end", 12))
    for level in x_ticks:
        x, y = to_pixels(level, low)
        parts.append(_text(x, y + 16, f"{level:g}", "#555", "middle", 12))
    return parts


def _dot(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str, anchor: str, size: int) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
        f' font-size="{size}">{html.escape(text)}</text>'
    )

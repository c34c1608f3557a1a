"""Points and lines of labelled points as an SVG picture."""

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
"""Width of a letter by its height: the mean of common fonts, and a little more."""


def plot(
    points: Mapping[str, Point],
    lines: Mapping[str, Sequence[Labelled]],
    *,
    across: str,
    up: str,
) -> str:
    """Named points, and lines whose points carry short labels of their own.

    Sizes go across on a logarithmic scale: half as much is as far everywhere.
    """
    everything = [*points.values(), *((x, y) for line in lines.values() for _, x, y in line)]
    low, high, step = _range([y for _, y in everything])
    sizes = _doublings([x for x, _ in everything])

    def place(x: float, y: float) -> Point:
        wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BELOW - _TOP
        return (
            _LEFT + math.log(x / sizes[0]) / math.log(sizes[-1] / sizes[0]) * wide,
            _TOP + (high - y) / (high - low) * tall,
        )

    colours = iter(_COLOURS * (1 + (len(points) + len(lines)) // len(_COLOURS)))
    dots: list[tuple[str, float, float, float, int, str]] = []
    drawn: list[str] = []
    for name, line in lines.items():
        colour = next(colours)
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for _, x, y in line)
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>'
        )
        dots += [
            (f"{name} {label}", *place(x, y), 3.5, 11, colour)
            for label, x, y in line
            if label not in points  # which is drawn as a point of its own
        ]
    dots += [
        (f"{name} {y:.1f}", *place(x, y), 6, 13, next(colours)) for name, (x, y) in points.items()
    ]
    drawn += [_dot(x, y, radius, colour) for _, x, y, radius, _, colour in dots]
    taken = [(x - r, y - r, x + r, y + r) for _, x, y, r, _, _ in dots]
    for label, x, y, radius, size, colour in sorted(dots, key=lambda dot: -dot[4]):
        box = _free(_around(x, y, radius, size, len(label)), taken)
        taken.append(box)
        drawn.append(_text(box[0], box[3] - size * 0.2, label, colour, "start", size))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
            ' font-family="system-ui, sans-serif">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            *_axes(place, sizes, (low, high, step)),
            *drawn,
            _text(
                (_LEFT + _WIDTH - _RIGHT) / 2,
                _HEIGHT - 8,
                f"across: {across}; up: {up}",
                "#555",
                "middle",
                12,
            ),
            "</svg>\n",
        ]
    )


def _around(x: float, y: float, radius: float, size: int, letters: int) -> Iterator[Box]:
    """Places of a label by its dot, the best first: right, left, above, below, then further."""
    wide, tall = letters * size * _LETTER, size * 1.1
    for away in range(12):
        beside, over = radius + 3 + 4 * away, radius + tall * (0.2 + away / 2)
        for left, top in (
            (x + beside, y - tall / 2),
            (x - beside - wide, y - tall / 2),
            (x - wide / 2, y - over - tall),
            (x - wide / 2, y + over),
            (x + radius, y - over - tall),
            (x + radius, y + over),
            (x - radius - wide, y - over - tall),
            (x - radius - wide, y + over),
        ):
            yield left, top, left + wide, top + tall


def _free(places: Iterator[Box], taken: Sequence[Box]) -> Box:
    """The first place inside the picture that covers nothing, else the one that covers least."""
    best, least = (0.0, 0.0, 0.0, 0.0), math.inf
    for box in places:
        if not (box[0] >= _LEFT and box[2] <= _WIDTH and box[1] >= 0 and box[3] <= _HEIGHT):
            continue
        covered = sum(_overlap(box, other) for other in taken)
        if covered < least:
            best, least = box, covered
        if not covered:
            break
    return best


def _overlap(a: Box, b: Box) -> float:
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    """A round range around values, and the step of its ticks."""
    low, high = min(values), max(values)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if (high - low) / s <= 10)
    low, high = step * (low // step), step * -(-high // step)
    return low, max(high, low + step), step


def _doublings(values: Sequence[float]) -> list[float]:
    """Ticks that include all values, each twice the one before: ... 5, 10, 20, 40 ..."""
    first = math.floor(math.log2(min(values) / 5))
    last = max(first + 1, math.ceil(math.log2(max(values) / 5)))
    return [5 * 2.0**power for power in range(first, last + 1)]


def _axes(
    place: Callable[[float, float], Point],
    across: Sequence[float],
    up: tuple[float, float, float],
) -> list[str]:
    parts = []
    low, high, step = up
    for number in range(1 + round((high - low) / step)):
        level = low + step * number
        (x, y), (end, _) = place(across[0], level), place(across[-1], level)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{end:.1f}" stroke="#ddd"/>')
        parts.append(_text(x - 6, y + 4, f"{level:g}", "#555", "end", 12))
    for level in across:
        x, y = place(level, low)
        parts.append(_text(x, y + 16, f"{level:g}", "#555", "middle", 12))
    return parts


def _dot(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str, anchor: str, size: int) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
        f' font-size="{size}">{html.escape(text)}</text>'
    )

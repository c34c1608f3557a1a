"""Draw scores by language as an SVG image: a column per language, a dot per setting."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_COLUMN, _HEIGHT, _LEFT, _BELOW, _RIGHT, _TOP = 76, 380, 40, 46, 250, 14
_COLOURS = ("#4269d0", "#b57f00", "#d0402b", "#2a8f7b", "#8139d6", "#5f6570")
_LINE = 18
"""Pixels from one name of the legend to the next."""


@dataclass(frozen=True)
class Dots:
    """Values of one setting, by column."""

    name: str
    group: str
    """Settings of a group share a colour and a place within each column."""
    values: Mapping[str, float]
    hollow: bool = False


def plot(columns: Sequence[str], series: Sequence[Dots], *, y_label: str) -> str:
    """Draw a dot per setting over each column, and a legend sorted from highest to lowest mean."""
    groups = list(dict.fromkeys(dots.group for dots in series))
    low, high, step = _rounded_range([value for dots in series for value in dots.values.values()])
    width = _LEFT + _COLUMN * len(columns) + _RIGHT
    tall = max(_HEIGHT, 2 * _TOP + _LINE * len(series))

    def height(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (tall - _BELOW - _TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{tall}" fill="white"/>',
    ]
    for number in range(1 + round((high - low) / step)):
        level = low + number * step
        parts.append(f'<path d="M{_LEFT} {height(level):.1f}H{width - _RIGHT}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, height(level) + 4, f"{level:g}", "#555", "end"))
    for number, column in enumerate(columns):
        middle = _LEFT + _COLUMN * (number + 0.5)
        parts.append(_text(middle, tall - _BELOW + 18, column, "#555", "middle"))
        for dots in series:
            offset = (groups.index(dots.group) + 0.5) / len(groups) - 0.5
            if column in dots.values:
                centre = middle + 0.8 * _COLUMN * offset, height(dots.values[column])
                parts.append(_dot(*centre, dots, groups))
    ranked = sorted(series, key=lambda dots: -sum(dots.values.values()) / len(dots.values))
    for number, dots in enumerate(ranked):
        y = _TOP + _LINE * (number + 0.5)
        parts.append(_dot(width - _RIGHT + 16, y, dots, groups))
        parts.append(_text(width - _RIGHT + 28, y + 4, dots.name, _colour(dots, groups), "start"))
    parts.append(_text((_LEFT + width - _RIGHT) / 2, tall - 8, y_label, "#555", "middle"))
    return "\n".join([*parts, "</svg>\n"])


def _rounded_range(values: Sequence[float]) -> tuple[float, float, float]:
    """Return a rounded range that contains the values, and the step between its lines."""
    low, high = min(values), max(values)
    steps = (m * 10.0**e for e in range(12) for m in (1, 2, 5))
    step = next(s for s in steps if (high - low) / s <= 8)
    low, high = step * (low // step), step * -(-high // step)
    return low, max(high, low + step), step


def _dot(x: float, y: float, dots: Dots, groups: Sequence[str]) -> str:
    colour = _colour(dots, groups)
    fill = "white" if dots.hollow else colour
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{colour}"'
        ' stroke-width="1.5"/>'
    )


def _colour(dots: Dots, groups: Sequence[str]) -> str:
    return _COLOURS[groups.index(dots.group) % len(_COLOURS)]


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">'
        f"{html.escape(text)}</text>"
    )

"""Compose scenes from facts and films from events, at random.

Positions, radii, tilt, tint and background are drawn at random, so two pictures of one
fact share their meaning and hardly a pixel. Lengths are fractions of the picture's side;
y grows downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from polyglance.data.toy.semantics import (
    Colour,
    Direction,
    Event,
    Fact,
    Relation,
    Speed,
    Thing,
)
from polyglance.data.toy.shapes import (
    CIRCUMRADII,
    INSCRIBED_DISCS,
    INTERIOR_POINTS,
    contains_points,
    rotate,
)

RGB = tuple[int, int, int]

PALETTE: dict[Colour, RGB] = {
    "red": (214, 32, 36),
    "orange": (250, 134, 16),
    "yellow": (250, 222, 40),
    "green": (28, 150, 62),
    "blue": (30, 80, 216),
    "purple": (142, 46, 182),
    "black": (22, 22, 24),
    "white": (244, 244, 242),
}
_RADII = {"small": (0.10, 0.125), "large": (0.175, 0.21)}
_ENCLOSING_RADII = (0.33, 0.39)
_MARGIN = 0.02
_GAP = 0.03
_TRAVEL: dict[Speed, tuple[float, float]] = {"slow": (0.14, 0.2), "fast": (0.46, 0.52)}
_HEADINGS: dict[Direction, tuple[int, int]] = {
    "left": (-1, 0),
    "right": (1, 0),
    "up": (0, -1),
    "down": (0, 1),
}


@dataclass(frozen=True, slots=True)
class PlacedThing:
    """A thing with its centre, radius, tilt in radians and exact colour."""

    thing: Thing
    x: float
    y: float
    radius: float
    angle: float
    rgb: RGB


@dataclass(frozen=True, slots=True)
class Background:
    """A muted colour gradient with noise."""

    rgb: RGB
    slope: tuple[float, float]
    grain: int
    """Seed of the noise."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture before rendering; things are ordered from back to front."""

    fact: Fact
    things: tuple[PlacedThing, ...]
    background: Background


@dataclass(frozen=True, slots=True)
class Film:
    """A clip before rendering: the mover moves along the vector ``travel``."""

    event: Event
    mover: PlacedThing
    still: PlacedThing
    travel: tuple[float, float]
    background: Background


def compose_scene(fact: Fact, rng: np.random.Generator, distractors: Sequence[Thing] = ()) -> Scene:
    """Compose a scene that shows ``fact``, which must use a primary relation.

    ``distractors`` are placed apart from the two things of the fact; one that does not
    fit is left out.
    """
    figure, ground = _draw_appearance(fact.figure, rng), _draw_appearance(fact.ground, rng)
    if fact.relation == "inside":
        figure, ground = _fit_inside(figure, ground, rng)
    x, y = _offset(fact.relation, figure, ground, rng)
    ground = replace(ground, x=x, y=y)
    if fact.relation == "in_front_of":
        ground = _reduce_overlap(ground, figure)
    figure, ground = _place_pair(figure, ground, rng)
    # The figure is in front or inside, so it is drawn last.
    things = [ground, figure]
    for thing in distractors:
        if (placed := _place_apart(_draw_appearance(thing, rng), things, rng)) is not None:
            things.insert(0, placed)
    return Scene(fact, tuple(things), _background(rng))


def compose_film(event: Event, rng: np.random.Generator) -> Film:
    """Compose a film of ``event``; the two things move in separate lanes, so they never meet."""
    if event.still is None or event.speed is None:
        raise ValueError("a film needs an event with a speed and a still thing")
    mover, still = _draw_appearance(event.mover, rng), _draw_appearance(event.still, rng)
    distance = rng.uniform(*_TRAVEL[event.speed])
    dx, dy = _HEADINGS[event.direction]
    along = _draw_coordinate(rng, mover.radius + abs(min(0, dx + dy)) * distance,
                     mover.radius + max(0, dx + dy) * distance)  # fmt: skip
    beside = _draw_coordinate(rng, still.radius, still.radius)
    lanes = _draw_lanes(mover.radius, still.radius, rng)
    if rng.random() < 0.5:
        lanes = (1 - lanes[0], 1 - lanes[1])
    if dx:
        mover = replace(mover, x=along, y=lanes[0])
        still = replace(still, x=beside, y=lanes[1])
    else:
        mover = replace(mover, x=lanes[0], y=along)
        still = replace(still, x=lanes[1], y=beside)
    return Film(event, mover, still, (dx * distance, dy * distance), _background(rng))


def _draw_appearance(thing: Thing, rng: np.random.Generator) -> PlacedThing:
    """Draw a thing's radius, tilt and tint; its position is set later."""
    if thing.colour is None or thing.size is None:
        raise ValueError("only a thing with a colour and a size can be rendered")
    tint = rng.integers(-14, 15, 3)
    red, green, blue = (int(c) for c in np.clip(np.add(PALETTE[thing.colour], tint), 0, 255))
    radius, angle = rng.uniform(*_RADII[thing.size]), rng.uniform(-0.14, 0.14)
    return PlacedThing(thing, 0.0, 0.0, radius, angle, (red, green, blue))


def _fit_inside(
    figure: PlacedThing, ground: PlacedThing, rng: np.random.Generator
) -> tuple[PlacedThing, PlacedThing]:
    """Enlarge the ground so that the figure fits inside."""
    ground = replace(ground, radius=rng.uniform(*_ENCLOSING_RADII))
    max_radius = 0.92 * INSCRIBED_DISCS[ground.thing.shape][1] * ground.radius
    reach = CIRCUMRADII[figure.thing.shape]
    return replace(figure, radius=min(figure.radius, max_radius / reach)), ground


def _offset(
    relation: Relation, figure: PlacedThing, ground: PlacedThing, rng: np.random.Generator
) -> tuple[float, float]:
    """Draw the vector from the figure's centre to the ground's."""
    if relation in ("left_of", "above"):
        reach = figure.radius + ground.radius
        spare = 1 - 2 * _MARGIN - 2 * reach
        apart = reach + rng.uniform(_GAP, min(spare, 0.3))
        aside = rng.uniform(-0.05, 0.05)
        return (apart, aside) if relation == "left_of" else (aside, apart)
    (figure_centre, figure_disc), (ground_centre, ground_disc) = (
        INSCRIBED_DISCS[figure.thing.shape],
        INSCRIBED_DISCS[ground.thing.shape],
    )
    angle = rng.uniform(0, 2 * np.pi)
    if relation == "inside":
        slack = ground_disc * ground.radius - CIRCUMRADII[figure.thing.shape] * figure.radius
        distance, figure_centre = max(0.0, slack) * rng.random(), 0.0
    elif relation == "in_front_of":
        # The inscribed discs overlap, so any two shapes do.
        touch = figure_disc * figure.radius + ground_disc * ground.radius
        distance = rng.uniform(0.72, 0.88) * touch
    else:
        raise ValueError(f"{relation!r} is not a primary relation")
    shift = figure_centre * figure.radius - ground_centre * ground.radius
    return distance * float(np.cos(angle)), distance * float(np.sin(angle)) + shift


def _reduce_overlap(back: PlacedThing, front: PlacedThing) -> PlacedThing:
    """Move ``back`` away from behind ``front`` until at most a third of it is hidden."""
    while hidden_fraction(back, front) > 0.33:
        back = replace(back, x=back.x * 1.08, y=back.y * 1.08)
    return back


def hidden_fraction(back: PlacedThing, front: PlacedThing) -> float:
    """Return the fraction of ``back`` that ``front`` occludes."""
    points = rotate(INTERIOR_POINTS[back.thing.shape], back.angle) * back.radius
    points += np.array([back.x - front.x, back.y - front.y])
    return float(
        contains_points(front.thing.shape, rotate(points / front.radius, -front.angle)).mean()
    )


def _place_pair(
    first: PlacedThing, second: PlacedThing, rng: np.random.Generator
) -> tuple[PlacedThing, PlacedThing]:
    """Move both together to a random position inside the picture."""
    shift = [
        rng.uniform(
            _MARGIN - min(a - first.radius, b - second.radius),
            1 - _MARGIN - max(a + first.radius, b + second.radius),
        )
        for a, b in ((first.x, second.x), (first.y, second.y))
    ]
    return (
        replace(first, x=first.x + shift[0], y=first.y + shift[1]),
        replace(second, x=second.x + shift[0], y=second.y + shift[1]),
    )


def _place_apart(
    thing: PlacedThing, things: Sequence[PlacedThing], rng: np.random.Generator
) -> PlacedThing | None:
    """Place a thing clear of all others, or return None after 40 attempts."""
    for _ in range(40):
        x, y = (
            _draw_coordinate(rng, thing.radius, thing.radius),
            _draw_coordinate(rng, thing.radius, thing.radius),
        )
        if all(max(abs(x - t.x), abs(y - t.y)) > thing.radius + t.radius + _GAP for t in things):
            return replace(thing, x=x, y=y)
    return None


def _draw_lanes(first: float, second: float, rng: np.random.Generator) -> tuple[float, float]:
    """Draw the centres of two parallel lanes, the first before the second."""
    spare = 1 - 2 * _MARGIN - 2 * (first + second) - _GAP
    before, between = sorted(rng.uniform(0, spare, 2))
    lane = _MARGIN + before + first
    return lane, lane + first + _GAP + (between - before) + second


def _draw_coordinate(rng: np.random.Generator, before: float, after: float) -> float:
    """Draw a coordinate with at least these margins before and after it."""
    return rng.uniform(_MARGIN + before, 1 - _MARGIN - after)


def _background(rng: np.random.Generator) -> Background:
    shade = rng.integers(118, 160)
    red, green, blue = (int(c) for c in shade + rng.integers(-12, 13, 3))
    across, down = rng.uniform(-12, 12, 2)
    return Background((red, green, blue), (across, down), int(rng.integers(2**31)))

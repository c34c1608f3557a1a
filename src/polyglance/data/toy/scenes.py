"""Where things stand: a fact becomes a scene, an event a film, never twice the same.

Positions, sizes within their class, tilt, tint and background are drawn at
random, so that two pictures of one fact share their meaning and hardly a
pixel. Lengths are fractions of the picture's side; y grows downwards.
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
from polyglance.data.toy.shapes import CORES, INTERIORS, REACHES, covers, turn

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
class Placed:
    """A thing at its place: centre, radius, tilt in radians, and its exact colour."""

    thing: Thing
    x: float
    y: float
    radius: float
    angle: float
    rgb: RGB


@dataclass(frozen=True, slots=True)
class Background:
    """A muted colour that changes across the picture, with grain."""

    rgb: RGB
    slope: tuple[float, float]
    grain: int
    """Seed of the grain."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture before it is drawn. Things are listed from back to front."""

    fact: Fact
    things: tuple[Placed, ...]
    background: Background


@dataclass(frozen=True, slots=True)
class Film:
    """A clip before it is drawn: the mover goes straight by ``travel`` from where it stands."""

    event: Event
    mover: Placed
    still: Placed
    travel: tuple[float, float]
    background: Background


def compose(fact: Fact, rng: np.random.Generator, others: Sequence[Thing] = ()) -> Scene:
    """A scene in which ``fact``, told by a primary relation, is plain to see.

    ``others`` stand apart from the two things of the fact; one for which no
    room is found is left out.
    """
    figure, ground = _loose(fact.figure, rng), _loose(fact.ground, rng)
    if fact.relation == "inside":
        figure, ground = _fit_inside(figure, ground, rng)
    x, y = _offset(fact.relation, figure, ground, rng)
    ground = replace(ground, x=x, y=y)
    if fact.relation == "in_front_of":
        ground = _peep_out(ground, figure)
    figure, ground = _settle(figure, ground, rng)
    # Whatever is in front or inside is drawn last.
    things = [ground, figure]
    for other in others:
        if (placed := _squeeze_in(_loose(other, rng), things, rng)) is not None:
            things.insert(0, placed)
    return Scene(fact, tuple(things), _background(rng))


def stage(event: Event, rng: np.random.Generator) -> Film:
    """A film of ``event``: mover and still thing keep to lanes of their own, so never meet."""
    if event.still is None or event.speed is None:
        raise ValueError("only an event with a speed and a still thing can be staged")
    mover, still = _loose(event.mover, rng), _loose(event.still, rng)
    distance = rng.uniform(*_TRAVEL[event.speed])
    dx, dy = _HEADINGS[event.direction]
    along = _between(rng, mover.radius + abs(min(0, dx + dy)) * distance,
                     mover.radius + max(0, dx + dy) * distance)  # fmt: skip
    beside = _between(rng, still.radius, still.radius)
    lanes = _pair_along(mover.radius, still.radius, rng)
    if rng.random() < 0.5:
        lanes = (1 - lanes[0], 1 - lanes[1])
    if dx:
        mover = replace(mover, x=along, y=lanes[0])
        still = replace(still, x=beside, y=lanes[1])
    else:
        mover = replace(mover, x=lanes[0], y=along)
        still = replace(still, x=lanes[1], y=beside)
    return Film(event, mover, still, (dx * distance, dy * distance), _background(rng))


def _loose(thing: Thing, rng: np.random.Generator) -> Placed:
    """The thing with everything drawn but its place."""
    if thing.colour is None or thing.size is None:
        raise ValueError("only a thing with a colour and a size can be drawn")
    tint = rng.integers(-14, 15, 3)
    red, green, blue = (int(c) for c in np.clip(np.add(PALETTE[thing.colour], tint), 0, 255))
    radius, angle = rng.uniform(*_RADII[thing.size]), rng.uniform(-0.14, 0.14)
    return Placed(thing, 0.0, 0.0, radius, angle, (red, green, blue))


def _fit_inside(figure: Placed, ground: Placed, rng: np.random.Generator) -> tuple[Placed, Placed]:
    """Blow the ground up until its core has room for the figure."""
    ground = replace(ground, radius=rng.uniform(*_ENCLOSING_RADII))
    room = 0.92 * CORES[ground.thing.shape][1] * ground.radius
    reach = REACHES[figure.thing.shape]
    return replace(figure, radius=min(figure.radius, room / reach)), ground


def _offset(
    relation: Relation, figure: Placed, ground: Placed, rng: np.random.Generator
) -> tuple[float, float]:
    """From the figure to the ground."""
    if relation in ("left_of", "above"):
        reach = figure.radius + ground.radius
        spare = 1 - 2 * _MARGIN - 2 * reach
        apart = reach + rng.uniform(_GAP, min(spare, 0.3))
        aside = rng.uniform(-0.05, 0.05)
        return (apart, aside) if relation == "left_of" else (aside, apart)
    (figure_core, figure_room), (ground_core, ground_room) = (
        CORES[figure.thing.shape],
        CORES[ground.thing.shape],
    )
    turn = rng.uniform(0, 2 * np.pi)
    if relation == "inside":
        slack = ground_room * ground.radius - REACHES[figure.thing.shape] * figure.radius
        distance, figure_core = max(0.0, slack) * rng.random(), 0.0
    elif relation == "in_front_of":
        # The cores overlap, so the shapes do, whatever their form.
        touch = figure_room * figure.radius + ground_room * ground.radius
        distance = rng.uniform(0.72, 0.88) * touch
    else:
        raise ValueError(f"{relation!r} is not a primary relation")
    cores = figure_core * figure.radius - ground_core * ground.radius
    return distance * float(np.cos(turn)), distance * float(np.sin(turn)) + cores


def _peep_out(back: Placed, front: Placed) -> Placed:
    """Draw ``back`` away from behind ``front`` until enough of it is seen."""
    while hidden_share(back, front) > 0.33:
        back = replace(back, x=back.x * 1.08, y=back.y * 1.08)
    return back


def hidden_share(back: Placed, front: Placed) -> float:
    """How much of ``back`` lies behind ``front``, from 0 to 1."""
    points = turn(INTERIORS[back.thing.shape], back.angle) * back.radius
    points += np.array([back.x - front.x, back.y - front.y])
    return float(covers(front.thing.shape, turn(points / front.radius, -front.angle)).mean())


def _settle(first: Placed, second: Placed, rng: np.random.Generator) -> tuple[Placed, Placed]:
    """Move both together to a random place where they are wholly in the picture."""
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


def _squeeze_in(loose: Placed, things: Sequence[Placed], rng: np.random.Generator) -> Placed | None:
    for _ in range(40):
        x, y = _between(rng, loose.radius, loose.radius), _between(rng, loose.radius, loose.radius)
        if all(max(abs(x - t.x), abs(y - t.y)) > loose.radius + t.radius + _GAP for t in things):
            return replace(loose, x=x, y=y)
    return None


def _pair_along(first: float, second: float, rng: np.random.Generator) -> tuple[float, float]:
    """Two lanes across the picture, the first before the second."""
    spare = 1 - 2 * _MARGIN - 2 * (first + second) - _GAP
    before, between = sorted(rng.uniform(0, spare, 2))
    lane = _MARGIN + before + first
    return lane, lane + first + _GAP + (between - before) + second


def _between(rng: np.random.Generator, before: float, after: float) -> float:
    """A coordinate that leaves this much room before and after it."""
    return rng.uniform(_MARGIN + before, 1 - _MARGIN - after)


def _background(rng: np.random.Generator) -> Background:
    shade = rng.integers(118, 160)
    red, green, blue = (int(c) for c in shade + rng.integers(-12, 13, 3))
    across, down = rng.uniform(-12, 12, 2)
    return Background((red, green, blue), (across, down), int(rng.integers(2**31)))

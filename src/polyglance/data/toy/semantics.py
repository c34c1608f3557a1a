"""The semantics of the toy dataset: things, facts and events, before they become pixels or text.

A `Fact` relates one thing to another and is the content of a picture; an `Event` is the
content of a clip. An attribute that is ``None`` is unspecified, so the same classes hold
what a scene is and what a caption says about it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

Shape = Literal["circle", "square", "triangle", "star", "heart", "diamond"]
Colour = Literal["red", "orange", "yellow", "green", "blue", "purple", "black", "white"]
Size = Literal["small", "large"]
Relation = Literal["left_of", "right_of", "above", "below", "in_front_of", "behind", "inside"]
Direction = Literal["left", "right", "up", "down"]
Speed = Literal["slow", "fast"]
Place = Literal["left", "right", "upper", "lower", "front", "back", "inner", "outer"]

SHAPES: tuple[Shape, ...] = get_args(Shape)
COLOURS: tuple[Colour, ...] = get_args(Colour)
SIZES: tuple[Size, ...] = get_args(Size)
RELATIONS: tuple[Relation, ...] = get_args(Relation)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
SPEEDS: tuple[Speed, ...] = get_args(Speed)
PLACES: tuple[Place, ...] = get_args(Place)

PRIMARY_RELATIONS: tuple[Relation, ...] = ("left_of", "above", "in_front_of", "inside")
"""One relation of each converse pair: every arrangement has exactly one primary relation."""

CONVERSE: dict[Relation, Relation] = {
    "left_of": "right_of",
    "right_of": "left_of",
    "above": "below",
    "below": "above",
    "in_front_of": "behind",
    "behind": "in_front_of",
}
"""The same arrangement from the other thing's side; *inside* has no everyday converse."""

PLACES_OF: dict[Relation, tuple[Place, Place]] = {
    "left_of": ("left", "right"),
    "above": ("upper", "lower"),
    "in_front_of": ("front", "back"),
    "inside": ("inner", "outer"),
}
"""The places of figure and ground under each primary relation."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape with a colour and a size; None where unspecified."""

    shape: Shape
    colour: Colour | None = None
    size: Size | None = None

    @property
    def true_colour(self) -> Colour:
        """The colour, of a thing that must have one, as every drawn thing does."""
        if self.colour is None:
            raise ValueError("this thing has no colour")
        return self.colour

    def without_size(self) -> Thing:
        """Return the thing without its size."""
        return replace(self, size=None)

    def without_colour(self) -> Thing:
        """Return the thing without its colour."""
        return replace(self, colour=None)

    def matches(self, description: Thing) -> bool:
        """Return whether every attribute that ``description`` specifies is this thing's."""
        return (
            description.shape == self.shape
            and description.colour in (None, self.colour)
            and description.size in (None, self.size)
        )


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure in a relation to a ground: a red circle left of a blue square."""

    figure: Thing
    relation: Relation
    ground: Thing

    def converse(self) -> Fact:
        """Return the same arrangement from the ground's side."""
        return Fact(self.ground, CONVERSE[self.relation], self.figure)

    def without_sizes(self) -> Fact:
        """Return the fact without sizes."""
        return Fact(self.figure.without_size(), self.relation, self.ground.without_size())

    def canonical(self) -> Fact:
        """Return the fact or its converse, whichever uses a primary relation."""
        return self if self.relation in PRIMARY_RELATIONS else self.converse()

    def implies(self, other: Fact) -> bool:
        """Return whether ``other`` is this fact, perhaps in less detail."""
        fact, other = self.canonical(), other.canonical()
        return (
            fact.relation == other.relation
            and fact.figure.matches(other.figure)
            and fact.ground.matches(other.ground)
        )

    def with_roles_swapped(self) -> Fact:
        """Return the fact with figure and ground swapped."""
        return Fact(self.ground, self.relation, self.figure)

    def with_colours_swapped(self) -> Fact:
        """Return the fact with the two colours swapped."""
        return replace(
            self,
            figure=replace(self.figure, colour=self.ground.colour),
            ground=replace(self.ground, colour=self.figure.colour),
        )

    def with_shapes_swapped(self) -> Fact:
        """Return the fact with the two shapes swapped."""
        return replace(
            self,
            figure=replace(self.figure, shape=self.ground.shape),
            ground=replace(self.ground, shape=self.figure.shape),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One thing moves while another, if given, stays still."""

    mover: Thing
    direction: Direction
    speed: Speed | None = None
    still: Thing | None = None

    def implies(self, other: Event) -> bool:
        """Return whether ``other`` is this event, perhaps in less detail."""
        still = other.still is None or (self.still is not None and self.still.matches(other.still))
        return (
            self.direction == other.direction
            and other.speed in (None, self.speed)
            and self.mover.matches(other.mover)
            and still
        )

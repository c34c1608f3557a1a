"""What can be the case in the toy world, before anyone draws it or says it.

A `Fact` puts one thing in relation to another and is what a picture shows; an
`Event` is what happens in a clip. Where an attribute is ``None`` it is left
unsaid, so the same classes hold what a scene is and what a caption says of it.
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
"""One relation of each converse pair: every arrangement is stated by exactly one of them."""

CONVERSE: dict[Relation, Relation] = {
    "left_of": "right_of",
    "right_of": "left_of",
    "above": "below",
    "below": "above",
    "in_front_of": "behind",
    "behind": "in_front_of",
}
"""The same arrangement seen from the other thing; *inside* has no everyday converse."""

PLACES_OF: dict[Relation, tuple[Place, Place]] = {
    "left_of": ("left", "right"),
    "above": ("upper", "lower"),
    "in_front_of": ("front", "back"),
    "inside": ("inner", "outer"),
}
"""What figure and ground of a primary relation are called by their place."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape with a colour and a size, as far as they are said."""

    shape: Shape
    colour: Colour | None = None
    size: Size | None = None

    @property
    def true_colour(self) -> Colour:
        """The colour of a thing that has one, as every drawn thing does."""
        if self.colour is None:
            raise ValueError("nothing is known of this thing's colour")
        return self.colour

    def without_size(self) -> Thing:
        """The thing with its size unsaid."""
        return replace(self, size=None)

    def without_colour(self) -> Thing:
        """The thing with its colour unsaid."""
        return replace(self, colour=None)

    def matches(self, said: Thing) -> bool:
        """Whether everything that ``said`` says is true of this thing."""
        return (
            said.shape == self.shape
            and said.colour in (None, self.colour)
            and said.size in (None, self.size)
        )


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure that stands in a relation to a ground: a red circle left of a blue square."""

    figure: Thing
    relation: Relation
    ground: Thing

    def converse(self) -> Fact:
        """The same arrangement told from the ground's side."""
        return Fact(self.ground, CONVERSE[self.relation], self.figure)

    def without_sizes(self) -> Fact:
        """The fact with both sizes unsaid."""
        return Fact(self.figure.without_size(), self.relation, self.ground.without_size())

    def canonical(self) -> Fact:
        """The one of both tellings that uses a primary relation."""
        return self if self.relation in PRIMARY_RELATIONS else self.converse()

    def implies(self, said: Fact) -> bool:
        """Whether ``said`` is true where this fact is: the same, perhaps told in less."""
        fact, said = self.canonical(), said.canonical()
        return (
            fact.relation == said.relation
            and fact.figure.matches(said.figure)
            and fact.ground.matches(said.ground)
        )

    def with_roles_swapped(self) -> Fact:
        """Figure and ground exchange their places."""
        return Fact(self.ground, self.relation, self.figure)

    def with_colours_swapped(self) -> Fact:
        """Figure and ground exchange their colours."""
        return replace(
            self,
            figure=replace(self.figure, colour=self.ground.colour),
            ground=replace(self.ground, colour=self.figure.colour),
        )

    def with_shapes_swapped(self) -> Fact:
        """Figure and ground exchange their shapes."""
        return replace(
            self,
            figure=replace(self.figure, shape=self.ground.shape),
            ground=replace(self.ground, shape=self.figure.shape),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One thing moves while another, if it is mentioned, stays where it is."""

    mover: Thing
    direction: Direction
    speed: Speed | None = None
    still: Thing | None = None

    def implies(self, said: Event) -> bool:
        """Whether ``said`` is true where this event happens."""
        return (
            self.direction == said.direction
            and said.speed in (None, self.speed)
            and self.mover.matches(said.mover)
            and (said.still is None or (self.still is not None and self.still.matches(said.still)))
        )

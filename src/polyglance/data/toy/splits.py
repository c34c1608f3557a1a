"""Which compositions belong to training, validation and test, and which differ in binding alone.

With ``held_out="combinations"`` an unordered pair of colours together with an
unordered pair of shapes belongs to one split: every red circle and every blue
square is known from training, never together. With ``"bindings"`` some colours
never go with some shapes in training: no purple heart is seen before the test.
With ``"nothing"`` splits differ in their pixels and wordings only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations, product
from typing import Literal, get_args

import numpy as np

from polyglance.data.toy.semantics import (
    DIRECTIONS,
    SPEEDS,
    Colour,
    Event,
    Fact,
    Relation,
    Shape,
    Thing,
)
from polyglance.errors import PolyglanceError

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
HeldOut = Literal["combinations", "bindings", "nothing"]

_SHARE = 0.1
"""Of the compositions, for validation and for test each."""


class Splits:
    """The compositions of a world, shared out among its splits."""

    def __init__(
        self,
        colours: Sequence[Colour],
        shapes: Sequence[Shape],
        relations: Sequence[Relation],
        held_out: HeldOut,
        seed: int,
    ) -> None:
        self.colours, self.shapes, self.relations = tuple(colours), tuple(shapes), tuple(relations)
        self.held_out = held_out
        rng = np.random.default_rng([seed, 0])
        self._owners: dict[object, Split] = {}
        if held_out == "combinations":
            # Pairs of different and of equal shapes apart: both kinds are in every split.
            for pairs in (combinations(shapes, 2), ((shape, shape) for shape in shapes)):
                self._share_out(list(product(combinations(colours, 2), pairs)), rng)
        elif held_out == "bindings":
            self._hold_out_bindings(rng)

    def belongs(self, split: Split, first: Thing, second: Thing) -> bool:
        """Whether a scene of these two things may be in this split."""
        if self.held_out == "nothing":
            return True
        if self.held_out == "combinations":
            return self._owners[self._combination(first, second)] == split
        owners = {self._owners[thing.true_colour, thing.shape] for thing in (first, second)}
        return owners - {"train"} == ({split} - {"train"})

    @cached_property
    def facts(self) -> dict[Split, list[Fact]]:
        """The facts of each split, by primary relations and without sizes."""
        return {
            split: [
                Fact(figure, relation, ground)
                for figure, ground in self._pairs(split)
                for relation in self.relations
            ]
            for split in SPLITS
        }

    @cached_property
    def events(self) -> dict[Split, list[Event]]:
        """The events of each split, without sizes."""
        return {
            split: [
                Event(mover, direction, speed, still)
                for mover, still in self._pairs(split)
                for direction, speed in product(DIRECTIONS, SPEEDS)
            ]
            for split in SPLITS
        }

    @cached_property
    def quartets(self) -> dict[Split, list[tuple[tuple[Thing, Thing], ...]]]:
        """Two colours and two shapes in all four bindings, where all four are in the split.

        A red circle and a blue square; a blue circle and a red square; and the
        same two with figure and ground exchanged.
        """
        quartets: dict[Split, list[tuple[tuple[Thing, Thing], ...]]] = {s: [] for s in SPLITS}
        for (one, other), (this, that) in product(
            combinations(self.colours, 2), combinations(self.shapes, 2)
        ):
            quartet = (
                (Thing(this, one), Thing(that, other)),
                (Thing(this, other), Thing(that, one)),
                (Thing(that, one), Thing(this, other)),
                (Thing(that, other), Thing(this, one)),
            )
            for split in SPLITS:
                if all(self.belongs(split, figure, ground) for figure, ground in quartet):
                    quartets[split].append(quartet)
        return quartets

    def _pairs(self, split: Split) -> Iterator[tuple[Thing, Thing]]:
        """Two things of different colour, in both orders."""
        things = [Thing(shape, colour) for colour, shape in product(self.colours, self.shapes)]
        for first, second in product(things, repeat=2):
            if first.colour != second.colour and self.belongs(split, first, second):
                yield first, second

    def _combination(self, first: Thing, second: Thing) -> object:
        colours = sorted((first.true_colour, second.true_colour), key=self.colours.index)
        shapes = sorted((first.shape, second.shape), key=self.shapes.index)
        return tuple(colours), tuple(shapes)

    def _share_out(self, compositions: Sequence[object], rng: np.random.Generator) -> None:
        few = max(1, round(_SHARE * len(compositions)))
        for place, number in enumerate(rng.permutation(len(compositions))):
            owner: Split = "test" if place < few else "val" if place < 2 * few else "train"
            self._owners[compositions[number]] = owner

    def _hold_out_bindings(self, rng: np.random.Generator) -> None:
        """Hold bindings out so long as every colour and every shape stays in training."""
        bindings = list(product(self.colours, self.shapes))
        few = max(1, round(_SHARE * len(bindings)))
        self._owners.update(dict.fromkeys(bindings, "train"))
        held: list[tuple[Colour, Shape]] = []
        for number in rng.permutation(len(bindings)):
            colour, shape = bindings[number]
            if len(held) == 2 * few:
                break
            if (
                sum(c == colour for c, _ in held) < len(self.shapes) - 2
                and sum(s == shape for _, s in held) < len(self.colours) - 2
            ):
                self._owners[colour, shape] = "test" if len(held) % 2 == 0 else "val"
                held.append((colour, shape))
        if not self.facts["val"] or not self.facts["test"]:
            raise PolyglanceError("holding bindings out needs more colours and shapes")

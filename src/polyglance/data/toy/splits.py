"""Assign compositions to the training, validation and test splits.

With ``held_out="combinations"`` an unordered pair of colours together with an unordered
pair of shapes belongs to one split: red circles and blue squares both occur in training,
but not together. With ``"bindings"`` some colours never occur with some shapes in
training: a purple heart first appears in the test split. With ``"nothing"`` splits differ
in pixels and wordings only.
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

_HELD_OUT_FRACTION = 0.1
"""Fraction of the compositions for validation, and again for test."""


class Splits:
    """The compositions of a dataset by split."""

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
        self._split_of: dict[object, Split] = {}
        if held_out == "combinations":
            # Pairs of different and of equal shapes separately, so that every split has both.
            for pairs in (combinations(shapes, 2), ((shape, shape) for shape in shapes)):
                self._assign_splits(list(product(combinations(colours, 2), pairs)), rng)
        elif held_out == "bindings":
            self._hold_out_bindings(rng)

    def is_in_split(self, split: Split, first: Thing, second: Thing) -> bool:
        """Return whether a scene of these two things may be in this split."""
        if self.held_out == "nothing":
            return True
        if self.held_out == "combinations":
            return self._split_of[self._combination(first, second)] == split
        splits = {self._split_of[thing.true_colour, thing.shape] for thing in (first, second)}
        return splits - {"train"} == ({split} - {"train"})

    @cached_property
    def facts(self) -> dict[Split, list[Fact]]:
        """The facts of each split, with primary relations and without sizes."""
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

        A red circle and a blue square; a blue circle and a red square; and the same two
        with figure and ground swapped.
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
                if all(self.is_in_split(split, figure, ground) for figure, ground in quartet):
                    quartets[split].append(quartet)
        return quartets

    def _pairs(self, split: Split) -> Iterator[tuple[Thing, Thing]]:
        """Yield pairs of things of different colour, in both orders."""
        things = [Thing(shape, colour) for colour, shape in product(self.colours, self.shapes)]
        for first, second in product(things, repeat=2):
            if first.colour != second.colour and self.is_in_split(split, first, second):
                yield first, second

    def _combination(self, first: Thing, second: Thing) -> object:
        colours = sorted((first.true_colour, second.true_colour), key=self.colours.index)
        shapes = sorted((first.shape, second.shape), key=self.shapes.index)
        return tuple(colours), tuple(shapes)

    def _assign_splits(self, compositions: Sequence[object], rng: np.random.Generator) -> None:
        few = max(1, round(_HELD_OUT_FRACTION * len(compositions)))
        for place, number in enumerate(rng.permutation(len(compositions))):
            split: Split = "test" if place < few else "val" if place < 2 * few else "train"
            self._split_of[compositions[number]] = split

    def _hold_out_bindings(self, rng: np.random.Generator) -> None:
        """Hold bindings out while every colour and every shape stays in training."""
        bindings = list(product(self.colours, self.shapes))
        few = max(1, round(_HELD_OUT_FRACTION * len(bindings)))
        self._split_of.update(dict.fromkeys(bindings, "train"))
        held: list[tuple[Colour, Shape]] = []
        for number in rng.permutation(len(bindings)):
            colour, shape = bindings[number]
            if len(held) == 2 * few:
                break
            if (
                sum(c == colour for c, _ in held) < len(self.shapes) - 2
                and sum(s == shape for _, s in held) < len(self.colours) - 2
            ):
                self._split_of[colour, shape] = "test" if len(held) % 2 == 0 else "val"
                held.append((colour, shape))
        if not self.facts["val"] or not self.facts["test"]:
            raise PolyglanceError("held_out='bindings' needs more colours or shapes")

"""The toy world: pictures and clips without end, each with captions, questions and regions.

    world = ToyDataset(seed=1)
    for picture in world.pictures(1000, "train"):
        picture.pixels()                     # 64 x 64 x 3
        picture.captions["cs"][0].text       # Červený kruh vlevo od modrého čtverce

Everything follows from the seed: the picture of a given number is the same
whatever was asked for before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, get_args

import numpy as np

from polyglance.data.toy.grammars import GRAMMARS, LANGUAGES
from polyglance.data.toy.items import Clip, Picture
from polyglance.data.toy.scenes import compose, stage
from polyglance.data.toy.semantics import (
    COLOURS,
    PRIMARY_RELATIONS,
    SHAPES,
    SIZES,
    SPEEDS,
    Colour,
    Direction,
    Event,
    Fact,
    Relation,
    Shape,
    Size,
    Thing,
)
from polyglance.data.toy.splits import SPLITS, HeldOut, Split, Splits
from polyglance.errors import PolyglanceError
from polyglance.records import Record

T = TypeVar("T")

# Random streams of a world; splits use stream 0.
_PICTURES, _CLIPS, _HARD_PICTURES, _HARD_CLIPS = 1, 2, 3, 4
_OPPOSITES: tuple[tuple[Direction, Direction], ...] = (("left", "right"), ("up", "down"))


class ToyDataset:
    """Coloured shapes in relations, told in up to eight languages.

    ``colours``, ``shapes``, ``sizes`` and ``relations`` make the world smaller
    (what is inside something is small, and that large, all the same);
    ``clutter`` is the most things a picture holds beside the two that are told
    of, small and each in a colour of its own; ``captions`` is their number a
    language; for ``held_out`` see `polyglance.data.toy.splits`.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        languages: Sequence[str] = LANGUAGES,
        colours: Sequence[Colour] = COLOURS,
        shapes: Sequence[Shape] = SHAPES,
        sizes: Sequence[Size] = SIZES,
        relations: Sequence[Relation] = PRIMARY_RELATIONS,
        held_out: HeldOut = "combinations",
        clutter: int = 0,
        captions_per_language: int = 2,
    ) -> None:
        if seed < 0:
            raise PolyglanceError(f"a seed is a whole number from 0, not {seed}")
        if captions_per_language < 1:
            raise PolyglanceError(
                f"a picture needs at least one caption, not {captions_per_language}"
            )
        if held_out not in get_args(HeldOut):
            known = ", ".join(get_args(HeldOut))
            raise PolyglanceError(f"held_out is one of {known}, not {held_out!r}")
        _check("language", languages, tuple(GRAMMARS), at_least=1)
        _check("colour", colours, COLOURS, at_least=3)
        _check("shape", shapes, SHAPES, at_least=3)
        _check("size", sizes, SIZES, at_least=1)
        _check("relation", relations, PRIMARY_RELATIONS, at_least=1)
        if not 0 <= clutter <= len(colours) - 2:
            raise PolyglanceError(
                f"clutter is a number from 0 to {len(colours) - 2}, since each thing has a "
                f"colour of its own, not {clutter}"
            )
        self.seed, self.languages, self.sizes = seed, tuple(languages), tuple(sizes)
        self.clutter, self.captions = clutter, captions_per_language
        self.splits = Splits(colours, shapes, relations, held_out, seed)
        self._orders: dict[tuple[int, ...], list[int]] = {}

    def pictures(self, count: int, split: Split = "train", start: int = 0) -> Iterator[Picture]:
        """Pictures of a split, by number from ``start``.

        No fact comes twice before every fact of the split has come once.
        """
        facts = self.splits.facts[_known(split)]
        for number in range(start, start + count):
            fact = self._turn(facts, _PICTURES, split, number)
            seed = (self.seed, _PICTURES, SPLITS.index(split), number)
            yield self._picture(f"{split}-{number:05d}", split, fact, seed)

    def clips(self, count: int, split: Split = "train", start: int = 0) -> Iterator[Clip]:
        """Clips of a split, by number from ``start``."""
        events = self.splits.events[_known(split)]
        for number in range(start, start + count):
            event = self._turn(events, _CLIPS, split, number)
            seed = (self.seed, _CLIPS, SPLITS.index(split), number)
            yield self._clip(f"clip-{split}-{number:05d}", split, event, seed)

    def records(self, count: int, split: Split = "train", start: int = 0) -> Iterator[Record]:
        """The pictures as manifest records that name no file."""
        return (picture.record() for picture in self.pictures(count, split, start))

    def hard_set(
        self, groups: int | None = None, split: Split = "test"
    ) -> list[tuple[Picture, ...]]:
        """Groups of pictures whose captions use the same words for different scenes.

        A group holds two colours and two shapes in all four bindings and roles,
        under two relations (or the only one there is). Half of a group is lost
        on whoever misses colour, shape or role, three quarters on whoever
        reads a bag of words. No fact comes twice in the set, and sizes tell
        nothing. Without ``groups``, all that the split has.
        """
        rng = np.random.default_rng([self.seed, _HARD_PICTURES, SPLITS.index(_known(split))])
        plans = [
            (quartet, relations)
            for quartet in self.splits.quartets[split]
            for relations in _twos(self.splits.relations, rng)
        ]
        hard = []
        for group, (quartet, relations) in enumerate(_some_of(plans, groups, split, rng)):
            size = self._size(rng)
            facts = [
                Fact(replace(figure, size=size), relation, replace(ground, size=size))
                for relation in relations
                for figure, ground in quartet
            ]
            seed = (self.seed, _HARD_PICTURES, SPLITS.index(split), group)
            hard.append(
                tuple(
                    self._picture(f"hard-{split}-{group:03d}-{i}", split, fact, (*seed, i), True)
                    for i, fact in enumerate(facts)
                )
            )
        return hard

    def hard_clips(
        self, groups: int | None = None, split: Split = "test"
    ) -> list[tuple[Clip, ...]]:
        """Groups of clips whose captions share their words but for the direction.

        A group holds two colours and two shapes in all four bindings and roles,
        moving either way along one axis at one speed.
        """
        rng = np.random.default_rng([self.seed, _HARD_CLIPS, SPLITS.index(_known(split))])
        hard = []
        quartets = self.splits.quartets[split]
        for group, quartet in enumerate(_some_of(quartets, groups, split, rng)):
            axis, speed = _OPPOSITES[int(rng.integers(2))], SPEEDS[int(rng.integers(2))]
            size = self._size(rng)
            events = [
                Event(replace(mover, size=size), direction, speed, replace(still, size=size))
                for direction in axis
                for mover, still in quartet
            ]
            seed = (self.seed, _HARD_CLIPS, SPLITS.index(split), group)
            hard.append(
                tuple(
                    self._clip(f"hard-clip-{split}-{group:03d}-{i}", split, event, (*seed, i), True)
                    for i, event in enumerate(events)
                )
            )
        return hard

    def _picture(
        self, key: str, split: Split, fact: Fact, seed: tuple[int, ...], exact: bool = False
    ) -> Picture:
        rng = np.random.default_rng(seed)
        if fact.relation == "inside":
            sizes: tuple[Size | None, Size | None] = ("small", "large")
        else:
            sizes = (fact.figure.size or self._size(rng), fact.ground.size or self._size(rng))
        fact = Fact(
            replace(fact.figure, size=sizes[0]), fact.relation, replace(fact.ground, size=sizes[1])
        )
        others = self._others(fact, split, rng) if self.clutter else []
        scene = compose(fact, rng, others)
        return Picture(key, split, self.languages, self.captions, seed, exact, scene)

    def _clip(
        self, key: str, split: Split, event: Event, seed: tuple[int, ...], exact: bool = False
    ) -> Clip:
        rng = np.random.default_rng(seed)
        mover = replace(event.mover, size=event.mover.size or self._size(rng))
        still = (
            None
            if event.still is None
            else replace(event.still, size=event.still.size or self._size(rng))
        )
        film = stage(replace(event, mover=mover, still=still), rng)
        return Clip(key, split, self.languages, self.captions, seed, exact, film)

    def _others(self, fact: Fact, split: Split, rng: np.random.Generator) -> list[Thing]:
        """Small things in colours of their own; in training, never a held-out composition."""
        things = [fact.figure, fact.ground]
        for _ in range(int(rng.integers(self.clutter + 1))):
            free = [
                thing
                for colour in self.splits.colours
                for shape in self.splits.shapes
                if all(colour != there.colour for there in things)
                for thing in [Thing(shape, colour, "small")]
                if split != "train"
                or all(self.splits.belongs("train", thing, there) for there in things)
            ]
            if free:
                things.append(free[int(rng.integers(len(free)))])
        return things[2:]

    def _size(self, rng: np.random.Generator) -> Size:
        return self.sizes[int(rng.integers(len(self.sizes)))]

    def _turn(self, choices: Sequence[T], stream: int, split: Split, number: int) -> T:
        """The choice whose turn it is, in an order that is shuffled anew each time round."""
        if not choices:
            raise PolyglanceError(
                f"this world has no {split} scenes: give it more colours or shapes"
            )
        again, place = divmod(number, len(choices))
        name = (self.seed, stream, SPLITS.index(split), again)
        if name not in self._orders:
            self._orders[name] = (
                np.random.default_rng([*name, 1]).permutation(len(choices)).tolist()
            )
        return choices[self._orders[name][place]]


def _twos(
    relations: Sequence[Relation], rng: np.random.Generator
) -> Iterator[tuple[Relation, ...]]:
    """The relations shuffled and taken two at a time; a single one is left alone."""
    shuffled = [relations[i] for i in rng.permutation(len(relations))]
    for first in range(0, max(1, len(shuffled) - 1), 2):
        yield tuple(shuffled[first : first + 2])


def _some_of(
    plans: Sequence[T], wanted: int | None, split: Split, rng: np.random.Generator
) -> Iterator[T]:
    """As many of the plans as are wanted, in random order."""
    if wanted is not None and not 0 <= wanted <= len(plans):
        raise PolyglanceError(
            f"this world has {len(plans)} groups of hard {split} scenes, not {wanted}: "
            "ask for fewer, or give it more colours, shapes or relations"
        )
    for number in rng.permutation(len(plans))[:wanted].tolist():
        yield plans[number]


def _known(split: Split) -> Split:
    if split not in SPLITS:
        raise PolyglanceError(f"a split is one of {', '.join(SPLITS)}, not {split!r}")
    return split


def _check(what: str, given: Sequence[str], known: Sequence[str], at_least: int) -> None:
    for name in given:
        if name not in known:
            raise PolyglanceError(f"the toy world knows no {what} {name!r}, but {', '.join(known)}")
    if len(set(given)) < at_least or len(set(given)) != len(given):
        raise PolyglanceError(
            f"a toy world needs at least {at_least} {what}(s), none of them twice"
        )

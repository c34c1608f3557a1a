"""The toy dataset: any number of pictures and clips, with captions, questions and regions.

    dataset = ToyDataset(seed=1)
    for picture in dataset.pictures(1000, "train"):
        picture.pixels()                     # 64 x 64 x 3
        picture.captions["cs"][0].text       # Červený kruh vlevo od modrého čtverce

Everything follows from the seed: picture number n is the same whatever was generated before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, get_args

import numpy as np

from polyglance.data.toy.grammars import GRAMMARS, LANGUAGES
from polyglance.data.toy.items import Clip, Picture
from polyglance.data.toy.scenes import compose_film, compose_scene
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

# Random streams of a dataset; splits use stream 0.
_PICTURES, _CLIPS, _HARD_PICTURES, _HARD_CLIPS = 1, 2, 3, 4
_OPPOSITES: tuple[tuple[Direction, Direction], ...] = (("left", "right"), ("up", "down"))


class ToyDataset:
    """Coloured shapes in spatial relations, described in up to eight languages."""

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
        max_distractors: int = 0,
        captions_per_language: int = 2,
    ) -> None:
        """Choose what the dataset consists of; the defaults use everything.

        Args:
            seed: Decides every draw.
            languages: Languages of the captions and questions.
            colours: Colours to use, at least three.
            shapes: Shapes to use, at least three.
            sizes: Sizes to use; an *inside* relation always has a small thing in a large one.
            relations: Primary relations to use.
            held_out: What training never shows (`polyglance.data.toy.splits`).
            max_distractors: Maximum number of further things in a picture, small and each
                of its own colour.
            captions_per_language: Captions of an item in each language.
        """
        if seed < 0:
            raise PolyglanceError(f"seed is {seed}: give a whole number of 0 or more")
        if captions_per_language < 1:
            raise PolyglanceError(
                f"captions_per_language is {captions_per_language}: give at least one"
            )
        if held_out not in get_args(HeldOut):
            known = ", ".join(get_args(HeldOut))
            raise PolyglanceError(f"held_out is {held_out!r}: give one of {known}")
        _check("language", languages, tuple(GRAMMARS), at_least=1)
        _check("colour", colours, COLOURS, at_least=3)
        _check("shape", shapes, SHAPES, at_least=3)
        _check("size", sizes, SIZES, at_least=1)
        _check("relation", relations, PRIMARY_RELATIONS, at_least=1)
        if not 0 <= max_distractors <= len(colours) - 2:
            raise PolyglanceError(
                f"max_distractors is {max_distractors}: give a number from 0 to "
                f"{len(colours) - 2}, since every thing in a picture has a colour of its own"
            )
        self.seed, self.languages, self.sizes = seed, tuple(languages), tuple(sizes)
        self.max_distractors = max_distractors
        self.captions_per_language = captions_per_language
        self.splits = Splits(colours, shapes, relations, held_out, seed)
        self._orders: dict[tuple[int, ...], list[int]] = {}

    def pictures(self, count: int, split: Split = "train", start: int = 0) -> Iterator[Picture]:
        """Yield ``count`` pictures of a split, from number ``start``.

        No fact is repeated before every fact of the split has occurred once.
        """
        facts = self.splits.facts[_check_split(split)]
        for number in range(start, start + count):
            fact = self._choice(facts, _PICTURES, split, number)
            seed = (self.seed, _PICTURES, SPLITS.index(split), number)
            yield self._picture(f"{split}-{number:05d}", split, fact, seed)

    def clips(self, count: int, split: Split = "train", start: int = 0) -> Iterator[Clip]:
        """Yield ``count`` clips of a split, from number ``start``."""
        events = self.splits.events[_check_split(split)]
        for number in range(start, start + count):
            event = self._choice(events, _CLIPS, split, number)
            seed = (self.seed, _CLIPS, SPLITS.index(split), number)
            yield self._clip(f"clip-{split}-{number:05d}", split, event, seed)

    def records(self, count: int, split: Split = "train", start: int = 0) -> Iterator[Record]:
        """Yield the pictures as manifest records without a file."""
        return (picture.record() for picture in self.pictures(count, split, start))

    def hard_set(
        self, groups: int | None = None, split: Split = "test"
    ) -> list[tuple[Picture, ...]]:
        """Return groups of pictures whose captions use the same words for different scenes.

        A group has two colours and two shapes in all four bindings and roles, under two
        relations (or the only one). A model that ignores colour, shape or role can be right
        on at most half of a group, a bag-of-words model on a quarter. No fact is repeated
        in the set, and sizes carry no information. ``groups`` is their number, by default
        all of the split.
        """
        rng = np.random.default_rng([self.seed, _HARD_PICTURES, SPLITS.index(_check_split(split))])
        plans = [
            (quartet, relations)
            for quartet in self.splits.quartets[split]
            for relations in _relation_pairs(self.splits.relations, rng)
        ]
        result = []
        for group, (quartet, relations) in enumerate(_sample_plans(plans, groups, split, rng)):
            size = self._size(rng)
            facts = [
                Fact(replace(figure, size=size), relation, replace(ground, size=size))
                for relation in relations
                for figure, ground in quartet
            ]
            seed = (self.seed, _HARD_PICTURES, SPLITS.index(split), group)
            result.append(
                tuple(
                    self._picture(f"hard-{split}-{group:03d}-{i}", split, fact, (*seed, i), True)
                    for i, fact in enumerate(facts)
                )
            )
        return result

    def hard_clips(
        self, groups: int | None = None, split: Split = "test"
    ) -> list[tuple[Clip, ...]]:
        """Return groups of clips whose captions share all words but the direction.

        A group has two colours and two shapes in all four bindings and roles, moving in
        both directions along one axis at one speed.
        """
        rng = np.random.default_rng([self.seed, _HARD_CLIPS, SPLITS.index(_check_split(split))])
        result = []
        quartets = self.splits.quartets[split]
        for group, quartet in enumerate(_sample_plans(quartets, groups, split, rng)):
            axis, speed = _OPPOSITES[int(rng.integers(2))], SPEEDS[int(rng.integers(2))]
            size = self._size(rng)
            events = [
                Event(replace(mover, size=size), direction, speed, replace(still, size=size))
                for direction in axis
                for mover, still in quartet
            ]
            seed = (self.seed, _HARD_CLIPS, SPLITS.index(split), group)
            result.append(
                tuple(
                    self._clip(f"hard-clip-{split}-{group:03d}-{i}", split, event, (*seed, i), True)
                    for i, event in enumerate(events)
                )
            )
        return result

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
        distractors = self._distractors(fact, split, rng) if self.max_distractors else []
        scene = compose_scene(fact, rng, distractors)
        return Picture(key, split, self.languages, self.captions_per_language, seed, exact, scene)

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
        film = compose_film(replace(event, mover=mover, still=still), rng)
        return Clip(key, split, self.languages, self.captions_per_language, seed, exact, film)

    def _distractors(self, fact: Fact, split: Split, rng: np.random.Generator) -> list[Thing]:
        """Draw small things of further colours; in training, never a held-out composition."""
        things = [fact.figure, fact.ground]
        for _ in range(int(rng.integers(self.max_distractors + 1))):
            free = [
                thing
                for colour in self.splits.colours
                for shape in self.splits.shapes
                if all(colour != there.colour for there in things)
                for thing in [Thing(shape, colour, "small")]
                if split != "train"
                or all(self.splits.is_in_split("train", thing, there) for there in things)
            ]
            if free:
                things.append(free[int(rng.integers(len(free)))])
        return things[2:]

    def _size(self, rng: np.random.Generator) -> Size:
        return self.sizes[int(rng.integers(len(self.sizes)))]

    def _choice(self, choices: Sequence[T], stream: int, split: Split, number: int) -> T:
        """Return choice ``number`` in an order that is reshuffled after every pass."""
        if not choices:
            raise PolyglanceError(
                f"this toy dataset has no {split} scenes: give it more colours or shapes"
            )
        epoch, place = divmod(number, len(choices))
        key = (self.seed, stream, SPLITS.index(split), epoch)
        if key not in self._orders:
            self._orders[key] = np.random.default_rng([*key, 1]).permutation(len(choices)).tolist()
        return choices[self._orders[key][place]]


def _relation_pairs(
    relations: Sequence[Relation], rng: np.random.Generator
) -> Iterator[tuple[Relation, ...]]:
    """Shuffle the relations and yield them two at a time; a single one stays alone."""
    shuffled = [relations[i] for i in rng.permutation(len(relations))]
    for first in range(0, max(1, len(shuffled) - 1), 2):
        yield tuple(shuffled[first : first + 2])


def _sample_plans(
    plans: Sequence[T], count: int | None, split: Split, rng: np.random.Generator
) -> Iterator[T]:
    """Yield ``count`` plans (by default all) in random order."""
    if count is not None and not 0 <= count <= len(plans):
        raise PolyglanceError(
            f"this toy dataset has {len(plans)} groups of hard {split} scenes, not {count}: "
            "ask for fewer, or give it more colours, shapes or relations"
        )
    for number in rng.permutation(len(plans))[:count].tolist():
        yield plans[number]


def _check_split(split: Split) -> Split:
    if split not in SPLITS:
        raise PolyglanceError(f"split is {split!r}: give one of {', '.join(SPLITS)}")
    return split


def _check(what: str, names: Sequence[str], known: Sequence[str], at_least: int) -> None:
    for name in names:
        if name not in known:
            raise PolyglanceError(
                f"the toy dataset has no {what} {name!r}: give some of {', '.join(known)}"
            )
    if len(set(names)) < at_least or len(set(names)) != len(names):
        raise PolyglanceError(
            f"the toy dataset needs at least {at_least} different {what}(s): give each once"
        )

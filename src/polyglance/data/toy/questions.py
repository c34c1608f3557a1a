"""Questions about pictures and clips with their answers, the same ones in every language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from polyglance.data.toy.grammar import Grammar, Tokens
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.scenes import Film, Scene
from polyglance.data.toy.semantics import PLACES_OF, SHAPES, Fact, Shape, Thing
from polyglance.records import Question

T = TypeVar("T")

_Asked = tuple[str, str, Callable[[Grammar], tuple[Tokens, str]]]
"""A kind of question, its type of answer in VQA's terms, and how a grammar asks and answers it."""


def ask_about_scene(
    scene: Scene, rng: np.random.Generator, languages: Sequence[str], key: str
) -> tuple[Question, ...]:
    """A colour, a shape, a number, a place, and whether something is so.

    Half of the yes-or-no questions are false, and those use all the words of the
    truth: colours, shapes or roles of the two things are exchanged.
    """
    things = [placed.thing for placed in scene.things]
    counts = Counter(thing.shape for thing in things)
    asked = [
        _shape(_pick(things, rng)),
        _count(counts, rng),
        _truth(scene.fact, rng),
    ]
    if unmistakable := [thing for thing in things if counts[thing.shape] == 1]:
        asked.insert(0, _colour(_pick(unmistakable, rng)))
    if len(things) == 2:
        asked.append(_place(scene.fact, rng))
    return _in_every_language(asked, languages, key)


def ask_about_film(film: Film, languages: Sequence[str], key: str) -> tuple[Question, ...]:
    """Which of the two things moves, and where to."""
    mover, direction = film.event.mover.without_size(), film.event.direction
    asked: list[_Asked] = [
        ("mover", "other", lambda g: (g.ask_mover(), g.colours[mover.true_colour])),
        ("direction", "other", lambda g: (g.ask_direction(mover), g.direction_name(direction))),
    ]
    return _in_every_language(asked, languages, key)


def _in_every_language(
    asked: Sequence[_Asked], languages: Sequence[str], key: str
) -> tuple[Question, ...]:
    questions = []
    for language in languages:
        grammar = GRAMMARS[language]
        for kind, answer_type, ask in asked:
            tokens, answer = ask(grammar)
            name = f"{key}-{kind}-{language}"
            questions.append(Question(grammar.text(tokens), language, (answer,), answer_type, name))
    return tuple(questions)


def _colour(thing: Thing) -> _Asked:
    colour, bare = thing.true_colour, Thing(thing.shape)
    return "colour", "other", lambda g: (g.ask_colour(bare), g.colours[colour])


def _shape(thing: Thing) -> _Asked:
    colour, bare = thing.true_colour, Thing(thing.shape)
    return "shape", "other", lambda g: (g.ask_shape(colour), g.join(g.label(bare)))


def _count(counts: Counter[Shape], rng: np.random.Generator) -> _Asked:
    """Of a shape that is there, or as often of one that is not."""
    there = rng.random() < 0.5
    shape = _pick([shape for shape in SHAPES if (counts[shape] > 0) == there] or SHAPES, rng)
    return "count", "number", lambda g: (g.ask_count(shape), str(counts[shape]))


def _truth(fact: Fact, rng: np.random.Generator) -> _Asked:
    fact = fact.without_sizes()
    true = bool(rng.random() < 0.5)
    if not true:
        swapped = [fact.with_colours_swapped(), fact.with_roles_swapped()]
        if fact.figure.shape != fact.ground.shape:
            swapped.append(fact.with_shapes_swapped())
        fact = _pick(swapped, rng)
    return "fact", "yes/no", lambda g: (g.ask_fact(fact), g.yes if true else g.no)


def _place(fact: Fact, rng: np.random.Generator) -> _Asked:
    which = int(rng.integers(2))
    colour = (fact.figure, fact.ground)[which].true_colour
    place = PLACES_OF[fact.relation][which]
    return "place", "other", lambda g: (g.ask_place(place), g.colours[colour])


def _pick(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]

"""Questions about pictures and clips with their answers, the same in every language."""

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

_Template = tuple[str, str, Callable[[Grammar], tuple[Tokens, str]]]
"""The kind of question, VQA's answer type, and how a grammar asks and answers it."""


def scene_questions(
    scene: Scene, rng: np.random.Generator, languages: Sequence[str], key: str
) -> tuple[Question, ...]:
    """Ask about a colour, a shape, a number, a place, and whether a fact holds.

    Half of the yes-or-no questions are false. Those keep all words of the true fact and
    swap the colours, shapes or roles of the two things.

    Args:
        scene: The scene to ask about.
        rng: Draws what is asked.
        languages: The languages to ask in.
        key: The picture's key, which the ids of the questions begin with.
    """
    things = [placed.thing for placed in scene.things]
    counts = Counter(thing.shape for thing in things)
    templates = [
        _shape(_pick(things, rng)),
        _count(counts, rng),
        _truth(scene.fact, rng),
    ]
    if unambiguous := [thing for thing in things if counts[thing.shape] == 1]:
        templates.insert(0, _colour(_pick(unambiguous, rng)))
    if len(things) == 2:
        templates.append(_place(scene.fact, rng))
    return _in_every_language(templates, languages, key)


def film_questions(film: Film, languages: Sequence[str], key: str) -> tuple[Question, ...]:
    """Ask which of the two things moves, and in which direction."""
    mover, direction = film.event.mover.without_size(), film.event.direction
    templates: list[_Template] = [
        ("mover", "other", lambda g: (g.ask_mover(), g.colours[mover.true_colour])),
        ("direction", "other", lambda g: (g.ask_direction(mover), g.direction_name(direction))),
    ]
    return _in_every_language(templates, languages, key)


def _in_every_language(
    templates: Sequence[_Template], languages: Sequence[str], key: str
) -> tuple[Question, ...]:
    questions = []
    for language in languages:
        grammar = GRAMMARS[language]
        for kind, answer_type, ask in templates:
            tokens, answer = ask(grammar)
            name = f"{key}-{kind}-{language}"
            questions.append(Question(grammar.text(tokens), language, (answer,), answer_type, name))
    return tuple(questions)


def _colour(thing: Thing) -> _Template:
    colour, bare = thing.true_colour, Thing(thing.shape)
    return "colour", "other", lambda g: (g.ask_colour(bare), g.colours[colour])


def _shape(thing: Thing) -> _Template:
    colour, bare = thing.true_colour, Thing(thing.shape)
    return "shape", "other", lambda g: (g.ask_shape(colour), g.join(g.label(bare)))


def _count(counts: Counter[Shape], rng: np.random.Generator) -> _Template:
    """Ask for the count of a shape that is present, or as often of one that is absent."""
    there = rng.random() < 0.5
    shape = _pick([shape for shape in SHAPES if (counts[shape] > 0) == there] or SHAPES, rng)
    return "count", "number", lambda g: (g.ask_count(shape), str(counts[shape]))


def _truth(fact: Fact, rng: np.random.Generator) -> _Template:
    fact = fact.without_sizes()
    true = bool(rng.random() < 0.5)
    if not true:
        swapped = [fact.with_colours_swapped(), fact.with_roles_swapped()]
        if fact.figure.shape != fact.ground.shape:
            swapped.append(fact.with_shapes_swapped())
        fact = _pick(swapped, rng)
    return "fact", "yes/no", lambda g: (g.ask_fact(fact), g.yes if true else g.no)


def _place(fact: Fact, rng: np.random.Generator) -> _Template:
    which = int(rng.integers(2))
    colour = (fact.figure, fact.ground)[which].true_colour
    place = PLACES_OF[fact.relation][which]
    return "place", "other", lambda g: (g.ask_place(place), g.colours[colour])


def _pick(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]

"""From a caption back to what it says.

Analysis by synthesis: the words that occur say which attributes and relations
can be meant; every arrangement of them is put into words again, and the
readings are those whose wording is the caption itself, letter by letter. That
there is always exactly one is what makes the toy world's captions reliable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from polyglance.data.toy.dictionaries import lexicon
from polyglance.data.toy.grammar import PLOTS, STYLES, Plot
from polyglance.data.toy.grammars import GRAMMARS, describe, narrate
from polyglance.data.toy.semantics import (
    COLOURS,
    DIRECTIONS,
    RELATIONS,
    SHAPES,
    SIZES,
    SPEEDS,
    Event,
    Fact,
    Speed,
    Thing,
)


def readings(language: str, text: str) -> set[Fact | Event]:
    """Everything that a caption can mean; empty if the grammar does not utter it."""
    heard = _heard(language, text)
    pairs = list(_pairs(heard))
    facts = (
        Fact(figure, relation, ground)
        for relation in RELATIONS
        if relation in heard
        for figure, ground in pairs
        if ground is not None
    )
    found: set[Fact | Event] = {
        fact
        for fact in facts
        if any(describe(language, fact, style).text == text for style in STYLES)
    }
    speeds: list[Speed | None] = [speed for speed in SPEEDS if speed in heard]
    events = (
        Event(mover, direction, speed, still)
        for direction in DIRECTIONS
        if direction in heard
        for speed in speeds or [None]
        for mover, still in pairs
    )
    found |= {
        event
        for event in events
        if any(narrate(language, event, plot).text == text for plot in _plots(event))
    }
    return found


def _heard(language: str, text: str) -> set[str]:
    """The senses of the words that occur."""
    text = text.lower()
    if GRAMMARS[language].spaced:
        spoken = set(re.split(r"[\s'.,،]+", text))
        return {
            sense
            for sense, forms in lexicon(language).items()
            if any(form.lower().rstrip("'") in spoken for form in forms)
        }
    return {s for s, forms in lexicon(language).items() if any(form in text for form in forms)}


def _pairs(heard: set[str]) -> Iterator[tuple[Thing, Thing | None]]:
    """Every way to share out what was heard between a figure and, perhaps, a ground."""
    attributes = heard & {*SHAPES, *COLOURS, *SIZES}
    shapes = [shape for shape in SHAPES if shape in heard]
    colours = [None, *(colour for colour in COLOURS if colour in heard)]
    sizes = [None, *(size for size in SIZES if size in heard)]
    things = [Thing(*choice) for choice in product(shapes, colours, sizes)]
    for figure, ground in product(things, (*things, None)):
        if _attributes(figure) | _attributes(ground) == attributes:
            yield figure, ground


def _attributes(thing: Thing | None) -> set[str]:
    return set() if thing is None else {a for a in (thing.shape, thing.colour, thing.size) if a}


def _plots(event: Event) -> tuple[Plot, ...]:
    return ("mover_only",) if event.still is None else PLOTS[:2]

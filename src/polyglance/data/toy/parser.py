"""Parse a caption back into the fact or event that it describes.

Analysis by synthesis: the words of a caption limit which attributes and relations it can
mention. Every arrangement of them is generated again, and the parses are those whose text
equals the caption. Tests check that there is always exactly one, so captions are unambiguous.
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


def parse_caption(language: str, text: str) -> set[Fact | Event]:
    """Return every fact or event that a caption can mean; empty if no grammar produces it."""
    senses = _senses_in(language, text)
    pairs = list(_pairs(senses))
    facts = (
        Fact(figure, relation, ground)
        for relation in RELATIONS
        if relation in senses
        for figure, ground in pairs
        if ground is not None
    )
    parses: set[Fact | Event] = {
        fact
        for fact in facts
        if any(describe(language, fact, style).text == text for style in STYLES)
    }
    speeds: list[Speed | None] = [speed for speed in SPEEDS if speed in senses]
    events = (
        Event(mover, direction, speed, still)
        for direction in DIRECTIONS
        if direction in senses
        for speed in speeds or [None]
        for mover, still in pairs
    )
    parses |= {
        event
        for event in events
        if any(narrate(language, event, plot).text == text for plot in _plots(event))
    }
    return parses


def _senses_in(language: str, text: str) -> set[str]:
    """Return the senses of the words in a text."""
    text = text.lower()
    if GRAMMARS[language].spaced:
        forms_in_text = set(re.split(r"[\s'.,،]+", text))
        return {
            sense
            for sense, forms in lexicon(language).items()
            if any(form.lower().rstrip("'") in forms_in_text for form in forms)
        }
    return {s for s, forms in lexicon(language).items() if any(form in text for form in forms)}


def _pairs(senses: set[str]) -> Iterator[tuple[Thing, Thing | None]]:
    """Every way to share out what was senses between a figure and, perhaps, a ground."""
    attributes = senses & {*SHAPES, *COLOURS, *SIZES}
    shapes = [shape for shape in SHAPES if shape in senses]
    colours = [None, *(colour for colour in COLOURS if colour in senses)]
    sizes = [None, *(size for size in SIZES if size in senses)]
    things = [Thing(*choice) for choice in product(shapes, colours, sizes)]
    for figure, ground in product(things, (*things, None)):
        if _attributes(figure) | _attributes(ground) == attributes:
            yield figure, ground


def _attributes(thing: Thing | None) -> set[str]:
    return set() if thing is None else {a for a in (thing.shape, thing.colour, thing.size) if a}


def _plots(event: Event) -> tuple[Plot, ...]:
    return ("mover_only",) if event.still is None else PLOTS[:2]

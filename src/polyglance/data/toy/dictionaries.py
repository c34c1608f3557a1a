"""Bilingual dictionaries from the grammars: word forms that share a sense are translations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from polyglance.data.toy.grammar import PLOTS, STYLES, Grammar, Token, Tokens
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.semantics import (
    COLOURS,
    DIRECTIONS,
    RELATIONS,
    SHAPES,
    SIZES,
    SPEEDS,
    Event,
    Fact,
    Thing,
)


@cache
def lexicon(language: str) -> dict[str, tuple[str, ...]]:
    """Return every word form that the language's grammar produces, inflected ones too, by sense."""
    forms: dict[str, dict[str, None]] = {}
    for token in _all_tokens(GRAMMARS[language]):
        if token.sense and token.sense != ".":
            forms.setdefault(token.sense, {})[token.text] = None
    return {sense: tuple(by_form) for sense, by_form in forms.items()}


@cache
def dictionary(source: str, target: str) -> dict[str, tuple[str, ...]]:
    """Return each word form of ``source`` with its translations, in every inflected form."""
    translations: dict[str, dict[str, None]] = {}
    for sense, forms in lexicon(source).items():
        for form in forms:
            entries = translations.setdefault(form, {})
            entries.update(dict.fromkeys(lexicon(target).get(sense, ())))
    return {form: tuple(entries) for form, entries in translations.items() if entries}


def _all_tokens(grammar: Grammar) -> Iterator[Token]:
    """Yield tokens that cover every word form of the grammar."""
    for sentence in _sentences(grammar):
        yield from sentence
    for colour in COLOURS:
        yield Token(grammar.colours[colour], colour)


def _sentences(grammar: Grammar) -> Iterator[Tokens]:
    for shape in SHAPES:
        yield grammar.label(Thing(shape))
        yield grammar.ask_count(shape)
    for colour in COLOURS:
        yield grammar.ask_shape(colour)
    things = [Thing(shape, colour) for shape, colour in product(SHAPES, (None, *COLOURS))]
    things += [Thing(shape, None, size) for shape, size in product(SHAPES, SIZES)]
    for thing, relation, style in product(things, RELATIONS, STYLES):
        yield grammar.describe(Fact(thing, relation, thing), style)
    for shape, direction, speed, plot in product(SHAPES, DIRECTIONS, SPEEDS, PLOTS):
        yield grammar.narrate(Event(Thing(shape), direction, speed, Thing(shape)), plot)

"""The grammars of the toy dataset, one file per language."""

from __future__ import annotations

from polyglance.data.toy.grammar import Caption, Grammar, Plot, Style
from polyglance.data.toy.grammars.ar import Arabic
from polyglance.data.toy.grammars.cs import Czech
from polyglance.data.toy.grammars.de import German
from polyglance.data.toy.grammars.en import English
from polyglance.data.toy.grammars.fr import French
from polyglance.data.toy.grammars.ja import Japanese
from polyglance.data.toy.grammars.ru import Russian
from polyglance.data.toy.grammars.zh import Chinese
from polyglance.data.toy.semantics import Event, Fact

GRAMMARS: dict[str, Grammar] = {
    grammar.language: grammar
    for grammar in (
        English(),
        German(),
        French(),
        Czech(),
        Russian(),
        Arabic(),
        Chinese(),
        Japanese(),
    )
}
LANGUAGES: tuple[str, ...] = tuple(GRAMMARS)
"""Codes of the languages that captions are made in."""


def describe(language: str, fact: Fact, style: Style = "phrase") -> Caption:
    """Return a caption that describes ``fact`` in the wording ``style``."""
    grammar = GRAMMARS[language]
    tokens = grammar.sentence(grammar.describe(fact, style))
    return Caption(language, fact, style, tokens, grammar.join(tokens))


def narrate(language: str, event: Event, plot: Plot = "mover_first") -> Caption:
    """Return a caption that narrates ``event`` in the wording ``plot``."""
    grammar = GRAMMARS[language]
    tokens = grammar.sentence(grammar.narrate(event, plot))
    return Caption(language, event, plot, tokens, grammar.join(tokens))

"""The base class of the eight grammars: tokens with senses, captions, word alignments.

Every word that a grammar produces carries its *sense* (``red``, ``left_of``) and,
inside a noun phrase, its *role* (``figure`` or ``ground``). Two words of two captions
of one scene are aligned when sense and role agree; two word forms are translations
when they share a sense. Alignments and dictionaries follow from that alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, NamedTuple, get_args

from polyglance.data.toy.semantics import Colour, Direction, Event, Fact, Place, Shape, Thing

Role = Literal["", "figure", "ground"]

Style = Literal["phrase", "in_picture", "ground_first", "definite", "you_see"]
STYLES: tuple[Style, ...] = get_args(Style)
"""Wordings of a fact: a bare phrase; "in the picture there is ..."; the ground first; definite
articles; "you can see ..."."""

Plot = Literal["mover_first", "still_first", "mover_only"]
PLOTS: tuple[Plot, ...] = get_args(Plot)
"""Wordings of an event: which of the two things comes first, or the moving one alone."""


class Token(NamedTuple):
    """A word form in a sentence, its sense, and the role of the thing it refers to."""

    text: str
    sense: str = ""
    role: Role = ""


Tokens = Sequence[Token]


@lru_cache(maxsize=4096)
def words(text: str, role: Role = "") -> Tokens:
    """Parse a line such as ``to the left/left_of of`` into tokens; ``/`` attaches a sense."""
    parts = (part.partition("/") for part in text.split())
    return tuple(Token(form, sense, role) for form, _, sense in parts)


class Grammar(ABC):
    """How one language describes facts, narrates events and asks questions."""

    language: ClassVar[str]
    spaced: ClassVar[bool] = True
    """Whether words are separated by spaces."""
    no_space_before: ClassVar[str] = ".,?"
    """Punctuation that follows a word without a space."""
    colours: ClassVar[Mapping[Colour, str]]
    """The name of each colour, as the answer to a question."""
    directions: ClassVar[Mapping[Direction, str]]
    """Each direction as tagged `words`; `direction_name` returns it without the tags."""
    yes: ClassVar[str]
    no: ClassVar[str]

    @abstractmethod
    def describe(self, fact: Fact, style: Style) -> Tokens:
        """Describe a picture."""

    @abstractmethod
    def narrate(self, event: Event, plot: Plot) -> Tokens:
        """Narrate a clip."""

    @abstractmethod
    def label(self, thing: Thing) -> Tokens:
        """Name a thing outside any sentence: ``red circle``."""

    @abstractmethod
    def ask_colour(self, thing: Thing) -> Tokens:
        """Ask: what colour is the circle?"""

    @abstractmethod
    def ask_shape(self, colour: Colour) -> Tokens:
        """Ask: which shape is red?"""

    @abstractmethod
    def ask_count(self, shape: Shape) -> Tokens:
        """Ask: how many circles are there?"""

    @abstractmethod
    def ask_fact(self, fact: Fact) -> Tokens:
        """Ask: is there a red circle to the left of a blue square?"""

    @abstractmethod
    def ask_place(self, place: Place) -> Tokens:
        """Ask: what colour is the shape on the left?"""

    @abstractmethod
    def ask_mover(self) -> Tokens:
        """Ask: what colour is the shape that moves?"""

    @abstractmethod
    def ask_direction(self, thing: Thing) -> Tokens:
        """Ask: which way does the red circle move?"""

    def join(self, tokens: Iterable[Token]) -> str:
        """Join tokens into text, with spaces where the language writes them."""
        text = ""
        for token in tokens:
            if self.spaced and text and text[-1] != "'" and token.text not in self.no_space_before:
                text += " "
            text += token.text
        return text

    def sentence(self, tokens: Tokens) -> tuple[Token, ...]:
        """Return the tokens with a capital first letter, where the script has capitals."""
        first, *rest = tokens
        return (Token(first.text[0].upper() + first.text[1:], first.sense, first.role), *rest)

    def text(self, tokens: Tokens) -> str:
        """Return a sentence as text, capitalised and joined."""
        return self.join(self.sentence(tokens))

    def direction_name(self, direction: Direction) -> str:
        """Return a direction as the answer to a question."""
        return self.join(words(self.directions[direction]))


@dataclass(frozen=True)
class Caption:
    """A sentence about a picture or clip, its tokens, and its exact meaning."""

    language: str
    meaning: Fact | Event
    wording: Style | Plot
    tokens: tuple[Token, ...]
    text: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The word forms of the tokens, in the order that word alignments index."""
        return tuple(token.text for token in self.tokens)


def align_captions(source: Caption, target: Caption) -> list[tuple[int, int]]:
    """Align the words of two captions of one scene, as pairs of positions.

    Function words (*of*, *von*, *の*) stay unaligned, as human annotators leave them
    where languages differ.
    """
    positions: dict[tuple[str, str], list[int]] = {}
    for j, token in enumerate(target.tokens):
        positions.setdefault((token.sense, token.role), []).append(j)
    return [
        (i, j)
        for i, token in enumerate(source.tokens)
        if token.sense
        for j in positions.get((token.sense, token.role), ())
    ]


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Format a word alignment in the Pharaoh format of word aligners: ``0-0 1-2``."""
    return " ".join(f"{i}-{j}" for i, j in links)

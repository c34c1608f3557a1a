"""What the eight grammars share: tokens that know what they mean, sentences, word alignments.

Every word that a grammar utters carries its *sense* (``red``, ``left_of``) and,
inside a noun phrase, whose word it is (``figure`` or ``ground``). Two words of
two captions of the same scene are aligned when both agree; two word forms are
translations when they share a sense. Nothing about alignments or dictionaries
is written down twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, get_args

from polyglance.data.toy.semantics import Colour, Direction, Event, Fact, Place, Shape, Thing

Role = Literal["", "figure", "ground"]

Style = Literal["phrase", "pictured", "fronted", "definite", "seen"]
STYLES: tuple[Style, ...] = get_args(Style)
"""Ways to word a fact: a bare phrase; "in the picture there is ..."; the ground first; both
things as known; "you can see ..."."""

Plot = Literal["mover_first", "still_first", "mover_only"]
PLOTS: tuple[Plot, ...] = get_args(Plot)
"""Ways to word an event: which of the two things comes first, or the moving one alone."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word as it stands in the sentence, its sense, and the thing it speaks of."""

    text: str
    sense: str = ""
    role: Role = ""


Tokens = Sequence[Token]


@lru_cache(maxsize=4096)
def words(text: str, role: Role = "") -> Tokens:
    """Tokens from a line like ``to the left/left_of of``, where ``/`` attaches a sense."""
    parts = (part.partition("/") for part in text.split())
    return tuple(Token(form, sense, role) for form, _, sense in parts)


class Grammar(ABC):
    """How one language says facts, tells events and asks questions."""

    language: ClassVar[str]
    spaced: ClassVar[bool] = True
    """Whether words are separated by spaces."""
    tight: ClassVar[str] = ".,?"
    """Marks that follow a word without a space."""
    colours: ClassVar[Mapping[Colour, str]]
    """The name of each colour, as it answers a question about colour."""
    directions: ClassVar[Mapping[Direction, str]]
    """Where to, as tagged `words`; without the tags it answers a question about direction."""
    yes: ClassVar[str]
    no: ClassVar[str]

    @abstractmethod
    def describe(self, fact: Fact, style: Style) -> Tokens:
        """A caption of a picture."""

    @abstractmethod
    def narrate(self, event: Event, plot: Plot) -> Tokens:
        """A caption of a clip."""

    @abstractmethod
    def label(self, thing: Thing) -> Tokens:
        """A thing's name outside any sentence: ``red circle``."""

    @abstractmethod
    def ask_colour(self, thing: Thing) -> Tokens:
        """What colour is the circle?"""

    @abstractmethod
    def ask_shape(self, colour: Colour) -> Tokens:
        """Which shape is red?"""

    @abstractmethod
    def ask_count(self, shape: Shape) -> Tokens:
        """How many circles are there?"""

    @abstractmethod
    def ask_fact(self, fact: Fact) -> Tokens:
        """Is there a red circle to the left of a blue square?"""

    @abstractmethod
    def ask_place(self, place: Place) -> Tokens:
        """What colour is the shape on the left?"""

    @abstractmethod
    def ask_mover(self) -> Tokens:
        """What colour is the shape that moves?"""

    @abstractmethod
    def ask_direction(self, thing: Thing) -> Tokens:
        """Where does the red circle move?"""

    def join(self, tokens: Iterable[Token]) -> str:
        """The tokens as one writes them."""
        text = ""
        for token in tokens:
            if self.spaced and text and text[-1] != "'" and token.text not in self.tight:
                text += " "
            text += token.text
        return text

    def sentence(self, tokens: Tokens) -> tuple[Token, ...]:
        """The tokens with a capital first letter, where the script has capitals."""
        first, *rest = tokens
        return (Token(first.text[0].upper() + first.text[1:], first.sense, first.role), *rest)

    def text(self, tokens: Tokens) -> str:
        """A sentence as one writes it."""
        return self.join(self.sentence(tokens))

    def direction_name(self, direction: Direction) -> str:
        """Where something moves, as it answers the question."""
        return self.join(words(self.directions[direction]))


@dataclass(frozen=True)
class Caption:
    """A sentence about a picture or clip, its words, and exactly what it says."""

    language: str
    meaning: Fact | Event
    wording: Style | Plot
    tokens: tuple[Token, ...]
    text: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The tokens' forms, which word alignments count."""
        return tuple(token.text for token in self.tokens)


def align(source: Caption, target: Caption) -> list[tuple[int, int]]:
    """Which words of two captions of one scene mean the same, as pairs of positions.

    Words of grammar alone (*of*, *von*, *の*) stay unaligned, as human
    annotators leave them where languages differ.
    """
    meant: dict[tuple[str, str], list[int]] = {}
    for j, token in enumerate(target.tokens):
        meant.setdefault((token.sense, token.role), []).append(j)
    return [
        (i, j)
        for i, token in enumerate(source.tokens)
        if token.sense
        for j in meant.get((token.sense, token.role), ())
    ]


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Word alignment in the Pharaoh format that aligners read and write: ``0-0 1-2``."""
    return " ".join(f"{i}-{j}" for i, j in links)

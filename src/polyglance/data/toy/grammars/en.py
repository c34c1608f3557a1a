"""English: *a* or *an*, adjectives before the noun."""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import COLOURS, Colour, Event, Fact, Place, Shape, Thing

_RELATIONS = {
    "left_of": "to the left/left_of of",
    "right_of": "to the right/right_of of",
    "above": "above/above",
    "below": "below/below",
    "in_front_of": "in front/in_front_of of",
    "behind": "behind/behind",
    "inside": "inside/inside",
}
_PLACES = {
    "left": "on the left",
    "right": "on the right",
    "upper": "at the top",
    "lower": "at the bottom",
    "front": "in front",
    "back": "at the back",
    "inner": "on the inside",
    "outer": "on the outside",
}
_SPEEDS = {"slow": "slowly/slow", "fast": "quickly/fast"}


class English(Grammar):
    """The grammar of English."""

    language = "en"
    colours = {colour: str(colour) for colour in COLOURS}
    directions = {
        "left": "to the left/left",
        "right": "to the right/right",
        "up": "upwards/up",
        "down": "downwards/down",
    }
    yes, no = "yes", "no"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        where = words(_RELATIONS[fact.relation])
        figure, ground = _some(fact.figure, "figure"), _some(fact.ground, "ground")
        match style:
            case "phrase":
                return [*figure, *where, *ground]
            case "in_picture":
                start = words("in the picture/picture there is/is")
                return [*start, *figure, *where, *ground, *words("./.")]
            case "ground_first":
                return [*where, *ground, *words("there is/is"), *figure, *words("./.")]
            case "definite":
                figure, ground = _the(fact.figure, "figure"), _the(fact.ground, "ground")
                return [*figure, *words("is/is"), *where, *ground, *words("./.")]
            case "you_see":
                return [*words("you can see/see"), *figure, *where, *ground, *words("./.")]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        moves = [*words("moves/moves"), *speed, *words(self.directions[event.direction])]
        moving = [*_some(event.mover, "figure"), *moves]
        if plot == "mover_only" or event.still is None:
            return [*moving, *words("./.")]
        resting = [*_some(event.still, "ground"), *words("stays still/still")]
        first, second = (moving, resting) if plot == "mover_first" else (resting, moving)
        return [*first, *words("while/while"), *second, *words("./.")]

    def label(self, thing: Thing) -> Tokens:
        return _bare(thing)

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*words("what colour is"), *_the(thing), *words("?")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return words(f"which shape is {colour}/{colour} ?")

    def ask_count(self, shape: Shape) -> Tokens:
        return words(f"how many {shape}s/{shape} are there ?")

    def ask_fact(self, fact: Fact) -> Tokens:
        where = words(_RELATIONS[fact.relation])
        return [*words("is there"), *_some(fact.figure), *where, *_some(fact.ground), *words("?")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"what colour is the shape {_PLACES[place]} ?")

    def ask_mover(self) -> Tokens:
        return words("what colour is the shape that moves/moves ?")

    def ask_direction(self, thing: Thing) -> Tokens:
        return [*words("which way does"), *_the(thing), *words("move/moves ?")]


def _bare(thing: Thing, role: Role = "") -> Tokens:
    return [Token(word, word, role) for word in (thing.size, thing.colour, thing.shape) if word]


def _some(thing: Thing, role: Role = "") -> Tokens:
    bare = _bare(thing, role)
    return [Token("an" if bare[0].text[0] in "aeiou" else "a", "a", role), *bare]


def _the(thing: Thing, role: Role = "") -> Tokens:
    return [Token("the", "the", role), *_bare(thing, role)]

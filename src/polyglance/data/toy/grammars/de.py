"""German: three genders, cases, adjective endings by article, verb-final subordinate clauses."""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from typing import Literal

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import Colour, Event, Fact, Place, Shape, Size, Thing

Case = Literal["nom", "acc", "dat"]

# Gender (0 masculine, 1 feminine, 2 neuter), singular, its dative, plural.
_NOUNS: dict[Shape, tuple[int, str, str, str]] = {
    "circle": (0, "Kreis", "Kreis", "Kreise"),
    "square": (2, "Quadrat", "Quadrat", "Quadrate"),
    "triangle": (2, "Dreieck", "Dreieck", "Dreiecke"),
    "star": (0, "Stern", "Stern", "Sterne"),
    "heart": (2, "Herz", "Herzen", "Herzen"),
    "diamond": (1, "Raute", "Raute", "Rauten"),
}
_STEMS: dict[Colour | Size, str] = {
    "red": "rot",
    "orange": "orangefarben",
    "yellow": "gelb",
    "green": "grün",
    "blue": "blau",
    "purple": "violett",
    "black": "schwarz",
    "white": "weiß",
    "small": "klein",
    "large": "groß",
}
# Article and adjective ending by case and gender.
_INDEFINITE: dict[Case, tuple[str, str, str]] = {
    "nom": ("ein er", "eine e", "ein es"),
    "acc": ("einen en", "eine e", "ein es"),
    "dat": ("einem en", "einer en", "einem en"),
}
_DEFINITE: dict[Case, tuple[str, str, str]] = {
    "nom": ("der e", "die e", "das e"),
    "acc": ("den en", "die e", "das e"),
    "dat": ("dem en", "der en", "dem en"),
}
_RELATIONS = {
    "left_of": "links/left_of von",
    "right_of": "rechts/right_of von",
    "above": "über/above",
    "below": "unter/below",
    "in_front_of": "vor/in_front_of",
    "behind": "hinter/behind",
    "inside": "in/inside",
}
_PLACES = {
    "left": "linke",
    "right": "rechte",
    "upper": "obere",
    "lower": "untere",
    "front": "vordere",
    "back": "hintere",
    "inner": "innere",
    "outer": "äußere",
}
_SPEEDS = {"slow": "langsam/slow", "fast": "schnell/fast"}


class German(Grammar):
    """The grammar of German."""

    language = "de"
    colours = {
        "red": "rot",
        "orange": "orange",
        "yellow": "gelb",
        "green": "grün",
        "blue": "blau",
        "purple": "violett",
        "black": "schwarz",
        "white": "weiß",
    }
    directions = {
        "left": "nach links/left",
        "right": "nach rechts/right",
        "up": "nach oben/up",
        "down": "nach unten/down",
    }
    yes, no = "ja", "nein"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        where = _where(fact, definite=False)
        figure = _some(fact.figure, "nom", "figure")
        match style:
            case "phrase":
                return [*figure, *where]
            case "in_picture":
                return [*words("auf dem Bild/picture ist/is"), *figure, *where, *words("./.")]
            case "ground_first":
                return [*where, *words("befindet/is sich"), *figure, *words("./.")]
            case "definite":
                figure = _the(fact.figure, "nom", "figure")
                return [*figure, *words("ist/is"), *_where(fact, definite=True), *words("./.")]
            case "you_see":
                figure = _some(fact.figure, "acc", "figure")
                return [*words("man sieht/see"), *figure, *where, *words("./.")]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        mover = _some(event.mover, "nom", "figure")
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        how = [*speed, *words(self.directions[event.direction])]
        moving = [*mover, *words("bewegt/moves sich"), *how]
        if plot == "mover_only" or event.still is None:
            return [*moving, *words("./.")]
        still = _some(event.still, "nom", "ground")
        if plot == "mover_first":
            return [*moving, *words(", während/while"), *still, *words("stillsteht/still ./.")]
        # The verb closes the subordinate clause, and its "sich" goes before a noun.
        start = [*still, *words("steht still/still , während/while sich")]
        return [*start, *mover, *how, *words("bewegt/moves ./.")]

    def label(self, thing: Thing) -> Tokens:
        return _some(thing, "nom")[1:]

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*words("welche Farbe hat"), *_the(thing, "nom"), *words("?")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return words(f"welche Form ist {_STEMS[colour]}/{colour} ?")

    def ask_count(self, shape: Shape) -> Tokens:
        return words(f"wie viele {_NOUNS[shape][3]}/{shape} gibt es ?")

    def ask_fact(self, fact: Fact) -> Tokens:
        where = _where(fact, definite=False)
        return [*words("gibt es"), *_some(fact.figure, "acc"), *where, *words("?")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"welche Farbe hat die {_PLACES[place]} Form ?")

    def ask_mover(self) -> Tokens:
        return words("welche Farbe hat die Form , die sich bewegt/moves ?")

    def ask_direction(self, thing: Thing) -> Tokens:
        return [*words("wohin bewegt/moves sich"), *_the(thing, "nom"), *words("?")]


def _where(fact: Fact, definite: bool) -> Tokens:
    if not definite:
        return [*words(_RELATIONS[fact.relation]), *_some(fact.ground, "dat", "ground")]
    ground = _the(fact.ground, "dat", "ground")
    if fact.relation == "inside" and ground[0].text == "dem":
        return [*words("im/inside"), *ground[1:]]
    return [*words(_RELATIONS[fact.relation]), *ground]


def _some(thing: Thing, case: Case, role: Role = "") -> Tokens:
    article, ending = _INDEFINITE[case][_NOUNS[thing.shape][0]].split()
    return [Token(article, "a", role), *_noun(thing, case, ending, role)]


def _the(thing: Thing, case: Case, role: Role = "") -> Tokens:
    article, ending = _DEFINITE[case][_NOUNS[thing.shape][0]].split()
    return [Token(article, "the", role), *_noun(thing, case, ending, role)]


def _noun(thing: Thing, case: Case, ending: str, role: Role) -> Tokens:
    adjectives = [Token(_STEMS[a] + ending, a, role) for a in (thing.size, thing.colour) if a]
    _, noun, dative, _ = _NOUNS[thing.shape]
    return [*adjectives, Token(dative if case == "dat" else noun, thing.shape, role)]

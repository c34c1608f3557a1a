"""Czech: cases after prepositions, hard and soft adjectives, the clitic *se* in second place."""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from typing import Literal

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import Colour, Event, Fact, Place, Relation, Shape, Size, Thing

Case = Literal["nom", "gen", "acc", "ins"]
_CASES: tuple[Case, ...] = ("nom", "gen", "acc", "ins")

# Gender; singular nominative, genitive, accusative, instrumental; genitive plural.
_NOUNS: dict[Shape, tuple[str, str, str]] = {
    "circle": ("m", "kruh kruhu kruh kruhem", "kruhů"),
    "square": ("m", "čtverec čtverce čtverec čtvercem", "čtverců"),
    "triangle": ("m", "trojúhelník trojúhelníku trojúhelník trojúhelníkem", "trojúhelníků"),
    "star": ("f", "hvězda hvězdy hvězdu hvězdou", "hvězd"),
    "heart": ("n", "srdce srdce srdce srdcem", "srdcí"),
    "diamond": ("m", "kosočtverec kosočtverce kosočtverec kosočtvercem", "kosočtverců"),
}
# Adjectives by their masculine nominative: -ý declines hard, -í soft.
_ADJECTIVES: dict[Colour | Size, str] = {
    "red": "červený",
    "orange": "oranžový",
    "yellow": "žlutý",
    "green": "zelený",
    "blue": "modrý",
    "purple": "fialový",
    "black": "černý",
    "white": "bílý",
    "small": "malý",
    "large": "velký",
}
_PLACES: dict[Place, str] = {
    "left": "levý",
    "right": "pravý",
    "upper": "horní",
    "lower": "dolní",
    "front": "přední",
    "back": "zadní",
    "inner": "vnitřní",
    "outer": "vnější",
}
_ENDINGS = {
    ("ý", "m"): "ý ého ý ým",
    ("ý", "f"): "á é ou ou",
    ("ý", "n"): "é ého é ým",
    ("í", "m"): "í ího í ím",
    ("í", "f"): "í í í í",
    ("í", "n"): "í ího í ím",
}
_RELATIONS: dict[Relation, tuple[str, Case]] = {
    "left_of": ("vlevo/left_of od", "gen"),
    "right_of": ("vpravo/right_of od", "gen"),
    "above": ("nad/above", "ins"),
    "below": ("pod/below", "ins"),
    "in_front_of": ("před/in_front_of", "ins"),
    "behind": ("za/behind", "ins"),
    "inside": ("uvnitř/inside", "gen"),
}
_SPEEDS = {"slow": "pomalu/slow", "fast": "rychle/fast"}


class Czech(Grammar):
    """The grammar of Czech."""

    language = "cs"
    # In the accusative, as one answers "Jakou barvu má ...?"
    colours = {
        "red": "červenou",
        "orange": "oranžovou",
        "yellow": "žlutou",
        "green": "zelenou",
        "blue": "modrou",
        "purple": "fialovou",
        "black": "černou",
        "white": "bílou",
    }
    directions = {
        "left": "doleva/left",
        "right": "doprava/right",
        "up": "nahoru/up",
        "down": "dolů/down",
    }
    yes, no = "ano", "ne"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        figure = _noun(fact.figure, "nom", "figure")
        where = _where(fact)
        match style:
            case "phrase":
                return [*figure, *where]
            case "in_picture":
                return [*words("na obrázku/picture je/is"), *figure, *where, *words("./.")]
            case "ground_first":
                return [*where, *words("je/is"), *figure, *words("./.")]
            case "definite":
                return [*figure, *words("je/is"), *where, *words("./.")]
            case "you_see":
                figure = _noun(fact.figure, "acc", "figure")
                return [*words("vidíme/see"), *figure, *where, *words("./.")]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        mover = _noun(event.mover, "nom", "figure")
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        moves = [*speed, *words("pohybuje/moves"), *words(self.directions[event.direction])]
        moving = [*mover, *words("se"), *moves]
        if plot == "mover_only" or event.still is None:
            return [*moving, *words("./.")]
        resting = [*_noun(event.still, "nom", "ground"), *words("stojí/still na místě")]
        if plot == "mover_first":
            return [*moving, *words(", zatímco/while"), *resting, *words("./.")]
        return [*resting, *words(", zatímco/while se"), *mover, *moves, *words("./.")]

    def label(self, thing: Thing) -> Tokens:
        return _noun(thing, "nom")

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*words("jakou barvu má"), *_noun(thing, "nom"), *words("?")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return words(f"který tvar je {_ADJECTIVES[colour]}/{colour} ?")

    def ask_count(self, shape: Shape) -> Tokens:
        return words(f"kolik {_NOUNS[shape][2]}/{shape} je na obrázku/picture ?")

    def ask_fact(self, fact: Fact) -> Tokens:
        return [*words("je"), *_where(fact), *_noun(fact.figure, "nom"), *words("?")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"jakou barvu má {_agree(_PLACES[place], 'm', 'nom')} tvar ?")

    def ask_mover(self) -> Tokens:
        return words("jakou barvu má tvar , který se pohybuje/moves ?")

    def ask_direction(self, thing: Thing) -> Tokens:
        return [*words("kam se pohybuje/moves"), *_noun(thing, "nom"), *words("?")]


def _where(fact: Fact) -> Tokens:
    preposition, case = _RELATIONS[fact.relation]
    return [*words(preposition), *_noun(fact.ground, case, "ground")]


def _noun(thing: Thing, case: Case, role: Role = "") -> Tokens:
    gender, singular, _ = _NOUNS[thing.shape]
    adjectives = [
        Token(_agree(_ADJECTIVES[sense], gender, case), sense, role)
        for sense in (thing.size, thing.colour)
        if sense
    ]
    return [*adjectives, Token(singular.split()[_CASES.index(case)], thing.shape, role)]


def _agree(adjective: str, gender: str, case: Case) -> str:
    stem, kind = adjective[:-1], adjective[-1]
    return stem + _ENDINGS[kind, gender].split()[_CASES.index(case)]

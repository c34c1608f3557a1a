"""Russian: cases after prepositions, gender, four kinds of adjective, no article and no copula."""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from typing import Literal

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import Colour, Event, Fact, Place, Relation, Shape, Size, Thing

Case = Literal["nom", "gen", "acc", "ins"]
_CASES: tuple[Case, ...] = ("nom", "gen", "acc", "ins")

# Gender; singular nominative, genitive, accusative, instrumental; genitive plural.
_NOUNS: dict[Shape, tuple[str, str, str]] = {
    "circle": ("m", "круг круга круг кругом", "кругов"),
    "square": ("m", "квадрат квадрата квадрат квадратом", "квадратов"),
    "triangle": ("m", "треугольник треугольника треугольник треугольником", "треугольников"),
    "star": ("f", "звезда звезды звезду звездой", "звёзд"),
    "heart": ("n", "сердце сердца сердце сердцем", "сердец"),
    "diamond": ("m", "ромб ромба ромб ромбом", "ромбов"),
}
# Stem and kind of declension: hard, soft, velar (after к), or stressed ending.
_ADJECTIVES: dict[Colour | Size, tuple[str, str]] = {
    "red": ("красн", "hard"),
    "orange": ("оранжев", "hard"),
    "yellow": ("жёлт", "hard"),
    "green": ("зелён", "hard"),
    "blue": ("син", "soft"),
    "purple": ("фиолетов", "hard"),
    "black": ("чёрн", "hard"),
    "white": ("бел", "hard"),
    "small": ("маленьк", "velar"),
    "large": ("больш", "stressed"),
}
_PLACES: dict[Place, tuple[str, str]] = {
    "left": ("лев", "hard"),
    "right": ("прав", "hard"),
    "upper": ("верхн", "soft"),
    "lower": ("нижн", "soft"),
    "front": ("передн", "soft"),
    "back": ("задн", "soft"),
    "inner": ("внутренн", "soft"),
    "outer": ("внешн", "soft"),
}
_ENDINGS = {
    ("hard", "m"): "ый ого ый ым",
    ("hard", "f"): "ая ой ую ой",
    ("hard", "n"): "ое ого ое ым",
    ("soft", "m"): "ий его ий им",
    ("soft", "f"): "яя ей юю ей",
    ("soft", "n"): "ее его ее им",
    ("velar", "m"): "ий ого ий им",
    ("velar", "f"): "ая ой ую ой",
    ("velar", "n"): "ое ого ое им",
    ("stressed", "m"): "ой ого ой им",
    ("stressed", "f"): "ая ой ую ой",
    ("stressed", "n"): "ое ого ое им",
}
_RELATIONS: dict[Relation, tuple[str, Case]] = {
    "left_of": ("слева/left_of от", "gen"),
    "right_of": ("справа/right_of от", "gen"),
    "above": ("над/above", "ins"),
    "below": ("под/below", "ins"),
    "in_front_of": ("перед/in_front_of", "ins"),
    "behind": ("за/behind", "ins"),
    "inside": ("внутри/inside", "gen"),
}
_DRAWN = {"m": "нарисован", "f": "нарисована", "n": "нарисовано"}
_SPEEDS = {"slow": "медленно/slow", "fast": "быстро/fast"}


class Russian(Grammar):
    """The grammar of Russian."""

    language = "ru"
    # In the genitive, as one answers "Какого цвета ...?"
    colours = {
        "red": "красного",
        "orange": "оранжевого",
        "yellow": "жёлтого",
        "green": "зелёного",
        "blue": "синего",
        "purple": "фиолетового",
        "black": "чёрного",
        "white": "белого",
    }
    directions = {
        "left": "влево/left",
        "right": "вправо/right",
        "up": "вверх/up",
        "down": "вниз/down",
    }
    yes, no = "да", "нет"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        figure = _noun(fact.figure, "nom", "figure")
        where = _where(fact)
        match style:
            case "phrase":
                return [*figure, *where]
            case "in_picture":
                drawn = _DRAWN[_NOUNS[fact.figure.shape][0]]
                start = words(f"на картинке/picture {drawn}")
                return [*start, *figure, *where, *words("./.")]
            case "ground_first":
                return [*where, *words("находится/is"), *figure, *words("./.")]
            case "definite":
                return [*figure, *words("находится/is"), *where, *words("./.")]
            case "you_see":
                figure = _noun(fact.figure, "acc", "figure")
                return [*words("мы видим/see"), *figure, *where, *words("./.")]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        moves = [*speed, *words("движется/moves"), *words(self.directions[event.direction])]
        moving = [*_noun(event.mover, "nom", "figure"), *moves]
        if plot == "mover_only" or event.still is None:
            return [*moving, *words("./.")]
        resting = [*_noun(event.still, "nom", "ground"), *words("стоит/still на месте")]
        first, second = (moving, resting) if plot == "mover_first" else (resting, moving)
        return [*first, *words(", а/while"), *second, *words("./.")]

    def label(self, thing: Thing) -> Tokens:
        return _noun(thing, "nom")

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*words("какого цвета"), *_noun(thing, "nom"), *words("?")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return words(f"какая фигура {_agree(_ADJECTIVES[colour], 'f', 'nom')}/{colour} ?")

    def ask_count(self, shape: Shape) -> Tokens:
        return words(f"сколько {_NOUNS[shape][2]}/{shape} на картинке/picture ?")

    def ask_fact(self, fact: Fact) -> Tokens:
        return [*words("есть ли"), *_where(fact), *_noun(fact.figure, "nom"), *words("?")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"какого цвета {_agree(_PLACES[place], 'f', 'nom')} фигура ?")

    def ask_mover(self) -> Tokens:
        return words("какого цвета фигура , которая движется/moves ?")

    def ask_direction(self, thing: Thing) -> Tokens:
        return [*words("куда движется/moves"), *_noun(thing, "nom"), *words("?")]


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


def _agree(adjective: tuple[str, str], gender: str, case: Case) -> str:
    stem, kind = adjective
    return stem + _ENDINGS[kind, gender].split()[_CASES.index(case)]

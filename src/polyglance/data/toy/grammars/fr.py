"""French: agreement, size before and colour after the noun, elision and contraction."""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import Colour, Event, Fact, Place, Shape, Size, Thing

# Whether feminine, and the noun; the plural adds -s.
_NOUNS: dict[Shape, tuple[bool, str]] = {
    "circle": (False, "cercle"),
    "square": (False, "carré"),
    "triangle": (False, "triangle"),
    "star": (True, "étoile"),
    "heart": (False, "cœur"),
    "diamond": (False, "losange"),
}
# Masculine and feminine; "orange", once a fruit, does not agree.
_ADJECTIVES: dict[Colour | Size, tuple[str, str]] = {
    "red": ("rouge", "rouge"),
    "orange": ("orange", "orange"),
    "yellow": ("jaune", "jaune"),
    "green": ("vert", "verte"),
    "blue": ("bleu", "bleue"),
    "purple": ("violet", "violette"),
    "black": ("noir", "noire"),
    "white": ("blanc", "blanche"),
    "small": ("petit", "petite"),
    "large": ("grand", "grande"),
}
_RELATIONS = {
    "left_of": "à gauche/left_of de",
    "right_of": "à droite/right_of de",
    "above": "au-dessus/above de",
    "below": "au-dessous/below de",
    "in_front_of": "devant/in_front_of",
    "behind": "derrière/behind",
    "inside": "dans/inside",
}
_PLACES = {
    "left": "de gauche",
    "right": "de droite",
    "upper": "du haut",
    "lower": "du bas",
    "front": "de devant",
    "back": "de derrière",
    "inner": "intérieure",
    "outer": "extérieure",
}
_SPEEDS = {"slow": "lentement/slow", "fast": "rapidement/fast"}
_VOWELS = "aeiouéœ"


class French(Grammar):
    """The grammar of French."""

    language = "fr"
    no_space_before = ".,"  # a question mark stands apart
    colours = {
        "red": "rouge",
        "orange": "orange",
        "yellow": "jaune",
        "green": "vert",
        "blue": "bleu",
        "purple": "violet",
        "black": "noir",
        "white": "blanc",
    }
    directions = {
        "left": "vers la gauche/left",
        "right": "vers la droite/right",
        "up": "vers le haut/up",
        "down": "vers le bas/down",
    }
    yes, no = "oui", "non"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        figure = _some(fact.figure, "figure")
        where = _where(fact)
        match style:
            case "phrase":
                return [*figure, *where]
            case "in_picture":
                start = words("sur l' image/picture , il y a/is")
                return [*start, *figure, *where, *words("./.")]
            case "ground_first":
                return [*where, *words("se trouve/is"), *figure, *words("./.")]
            case "definite":
                figure = _the(fact.figure, "figure")
                return [*figure, *words("est/is"), *_where(fact, definite=True), *words("./.")]
            case "you_see":
                return [*words("on voit/see"), *figure, *where, *words("./.")]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        moves = [*words("se déplace/moves"), *speed, *words(self.directions[event.direction])]
        moving = [*_some(event.mover, "figure"), *moves]
        if plot == "mover_only" or event.still is None:
            return [*moving, *words("./.")]
        resting = [*_some(event.still, "ground"), *words("reste immobile/still")]
        first, second = (moving, resting) if plot == "mover_first" else (resting, moving)
        return [*first, *words(", tandis/while qu'"), *second, *words("./.")]

    def label(self, thing: Thing) -> Tokens:
        return _bare(thing)

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*words("de quelle couleur est"), *_the(thing), *words("?")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return words(f"quelle forme est {_ADJECTIVES[colour][1]}/{colour} ?")

    def ask_count(self, shape: Shape) -> Tokens:
        plural = words(f"de {_NOUNS[shape][1]}s/{shape}")
        return [*words("combien"), *_contracted(plural), *words("y a-t-il ?")]

    def ask_fact(self, fact: Fact) -> Tokens:
        return [*words("y a-t-il"), *_some(fact.figure), *_where(fact), *words("?")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"de quelle couleur est la forme {_PLACES[place]} ?")

    def ask_mover(self) -> Tokens:
        return words("de quelle couleur est la forme qui se déplace/moves ?")

    def ask_direction(self, thing: Thing) -> Tokens:
        return [*words("dans quelle direction se déplace/moves"), *_the(thing), *words("?")]


def _where(fact: Fact, definite: bool = False) -> Tokens:
    ground = _the(fact.ground, "ground") if definite else _some(fact.ground, "ground")
    return _contracted([*words(_RELATIONS[fact.relation]), *ground])


def _some(thing: Thing, role: Role = "") -> Tokens:
    feminine = _NOUNS[thing.shape][0]
    return [Token("une" if feminine else "un", "a", role), *_bare(thing, role)]


def _the(thing: Thing, role: Role = "") -> Tokens:
    feminine = _NOUNS[thing.shape][0]
    bare = _bare(thing, role)
    elided = bare[0].text[0] in _VOWELS
    return [Token("l'" if elided else "la" if feminine else "le", "the", role), *bare]


def _bare(thing: Thing, role: Role = "") -> Tokens:
    feminine, noun = _NOUNS[thing.shape]
    size = [Token(_ADJECTIVES[thing.size][feminine], thing.size, role)] if thing.size else []
    colour = (
        [Token(_ADJECTIVES[thing.colour][feminine], thing.colour, role)] if thing.colour else []
    )
    return [*size, Token(noun, thing.shape, role), *colour]


def _contracted(tokens: Tokens) -> Tokens:
    """Write *de le* as *du*, and *de* before a vowel as *d'*."""
    result: list[Token] = []
    for token in tokens:
        if result and result[-1].text == "de":
            if token.text == "le":
                result[-1] = Token("du", token.sense, token.role)
                continue
            if token.text[0] in _VOWELS:
                result[-1] = Token("d'")
        result.append(token)
    return result

"""Arabic: verb first, noun before adjective, agreement in gender, definiteness and case.

Places are named by an annexation (iḍāfa): the word for the side, then the thing
in the genitive. Of the case endings only what ordinary print shows is written:
the accusative *-an* with its alif on indefinite masculine words. Colours of the
pattern *aḥmar* are diptotes and do not take it; relational colours in *-ī* do.
"""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from typing import Literal

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import COLOURS, Colour, Event, Fact, Place, Shape, Size, Thing

State = Literal["indefinite", "accusative", "definite"]

# Whether feminine, and the noun.
_NOUNS: dict[Shape, tuple[bool, str]] = {
    "circle": (True, "دائرة"),
    "square": (False, "مربع"),
    "triangle": (False, "مثلث"),
    "star": (True, "نجمة"),
    "heart": (False, "قلب"),
    "diamond": (False, "معيّن"),
}
# Masculine and feminine.
_ADJECTIVES: dict[Colour | Size, tuple[str, str]] = {
    "red": ("أحمر", "حمراء"),
    "orange": ("برتقالي", "برتقالية"),
    "yellow": ("أصفر", "صفراء"),
    "green": ("أخضر", "خضراء"),
    "blue": ("أزرق", "زرقاء"),
    "purple": ("بنفسجي", "بنفسجية"),
    "black": ("أسود", "سوداء"),
    "white": ("أبيض", "بيضاء"),
    "small": ("صغير", "صغيرة"),
    "large": ("كبير", "كبيرة"),
}
_RELATIONS = {
    "left_of": "على يسار/left_of",
    "right_of": "على يمين/right_of",
    "above": "فوق/above",
    "below": "تحت/below",
    "in_front_of": "أمام/in_front_of",
    "behind": "خلف/behind",
    "inside": "داخل/inside",
}
_PLACES = {
    "left": "الأيسر",
    "right": "الأيمن",
    "upper": "العلوي",
    "lower": "السفلي",
    "front": "الأمامي",
    "back": "الخلفي",
    "inner": "الداخلي",
    "outer": "الخارجي",
}
_SPEEDS = {"slow": "ببطء/slow", "fast": "بسرعة/fast"}


class Arabic(Grammar):
    """The grammar of Modern Standard Arabic."""

    language = "ar"
    no_space_before = ".،؟"
    colours = {colour: _ADJECTIVES[colour][0] for colour in COLOURS}
    directions = {
        "left": "نحو اليسار/left",
        "right": "نحو اليمين/right",
        "up": "نحو الأعلى/up",
        "down": "نحو الأسفل/down",
    }
    yes, no = "نعم", "لا"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        figure = _noun(fact.figure, "indefinite", "figure")
        where = [*words(_RELATIONS[fact.relation]), *_noun(fact.ground, "indefinite", "ground")]
        feminine = _NOUNS[fact.figure.shape][0]
        match style:
            case "phrase":
                return [*figure, *where]
            case "in_picture":
                return [*words("في الصورة/picture"), *figure, *where, *words("./.")]
            case "ground_first":
                verb = words("توجد/is" if feminine else "يوجد/is")
                return [*where, *verb, *figure, *words("./.")]
            case "definite":
                verb = words("تقع/is" if feminine else "يقع/is")
                figure = _noun(fact.figure, "definite", "figure")
                ground = _noun(fact.ground, "definite", "ground")
                where = [*words(_RELATIONS[fact.relation]), *ground]
                return [*verb, *figure, *where, *words("./.")]
            case "you_see":
                figure = _noun(fact.figure, "accusative", "figure")
                return [*words("نرى/see"), *figure, *where, *words("./.")]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        verb = words("تتحرك/moves" if _NOUNS[event.mover.shape][0] else "يتحرك/moves")
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        mover = _noun(event.mover, "indefinite", "figure")
        moving = [*verb, *mover, *speed, *words(self.directions[event.direction])]
        if plot == "mover_only" or event.still is None:
            return [*moving, *words("./.")]
        stays, motionless = (
            ("تبقى", "ثابتة/still") if _NOUNS[event.still.shape][0] else ("يبقى", "ثابتًا/still")
        )
        still = _noun(event.still, "indefinite", "ground")
        resting = [*words(stays), *still, *words(motionless)]
        first, second = (moving, resting) if plot == "mover_first" else (resting, moving)
        return [*first, *words("، بينما/while"), *second, *words("./.")]

    def label(self, thing: Thing) -> Tokens:
        return _noun(thing, "indefinite")

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*words("ما لون"), *_noun(thing, "definite"), *words("؟")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return words(f"أي شكل لونه {_ADJECTIVES[colour][0]}/{colour} ؟")

    def ask_count(self, shape: Shape) -> Tokens:
        # "How many" takes a singular in the accusative.
        counted = _noun(Thing(shape), "accusative")
        return [*words("كم"), *counted, *words("في الصورة/picture ؟")]

    def ask_fact(self, fact: Fact) -> Tokens:
        verb = words("هل توجد" if _NOUNS[fact.figure.shape][0] else "هل يوجد")
        where = [*words(_RELATIONS[fact.relation]), *_noun(fact.ground, "indefinite")]
        return [*verb, *_noun(fact.figure, "indefinite"), *where, *words("؟")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"ما لون الشكل {_PLACES[place]} ؟")

    def ask_mover(self) -> Tokens:
        return words("ما لون الشكل المتحرك ؟")

    def ask_direction(self, thing: Thing) -> Tokens:
        verb = words("تتحرك/moves" if _NOUNS[thing.shape][0] else "يتحرك/moves")
        return [*words("إلى أين"), *verb, *_noun(thing, "definite"), *words("؟")]


def _noun(thing: Thing, state: State, role: Role = "") -> Tokens:
    feminine, noun = _NOUNS[thing.shape]
    forms: list[tuple[str, str]] = [(noun, thing.shape)]
    forms += [
        (_ADJECTIVES[sense][feminine], sense) for sense in (thing.colour, thing.size) if sense
    ]
    return [Token(_inflect(form, feminine, state), sense, role) for form, sense in forms]


def _inflect(form: str, feminine: bool, state: State) -> str:
    if state == "definite":
        return "ال" + form
    diptote = form.startswith("أ")
    return form + "ًا" if state == "accusative" and not feminine and not diptote else form

"""Japanese: verb last, particles, colours that are adjectives (赤い) or nouns with の (緑の)."""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import Colour, Event, Fact, Place, Shape, Thing

_NOUNS: dict[Shape, str] = {
    "circle": "円",
    "square": "正方形",
    "triangle": "三角形",
    "star": "星",
    "heart": "ハート",
    "diamond": "ひし形",
}
_ADJECTIVES: dict[Colour, str] = {
    "red": "赤い/red",
    "orange": "オレンジ色/orange の",
    "yellow": "黄色い/yellow",
    "green": "緑/green の",
    "blue": "青い/blue",
    "purple": "紫/purple の",
    "black": "黒い/black",
    "white": "白い/white",
}
_SIZES = {"small": "小さな/small", "large": "大きな/large"}
_RELATIONS = {
    "left_of": "左/left_of",
    "right_of": "右/right_of",
    "above": "上/above",
    "below": "下/below",
    "in_front_of": "手前/in_front_of",
    "behind": "後ろ/behind",
    "inside": "中/inside",
}
_PLACES = {
    "left": "左",
    "right": "右",
    "upper": "上",
    "lower": "下",
    "front": "手前",
    "back": "後ろ",
    "inner": "内側",
    "outer": "外側",
}
_SPEEDS = {"slow": "ゆっくりと/slow", "fast": "素早く/fast"}


class Japanese(Grammar):
    """The grammar of Japanese, in the polite form."""

    language = "ja"
    spaced = False
    colours = {
        "red": "赤",
        "orange": "オレンジ色",
        "yellow": "黄色",
        "green": "緑",
        "blue": "青",
        "purple": "紫",
        "black": "黒",
        "white": "白",
    }
    directions = {"left": "左/left", "right": "右/right", "up": "上/up", "down": "下/down"}
    yes, no = "はい", "いいえ"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        figure = _noun(fact.figure, "figure")
        there = _there(fact)
        match style:
            case "phrase":
                return [*there, *words("ある"), *figure]
            case "in_picture":
                start = words("画像/picture で は 、")
                return [*start, *there, *figure, *words("が あります/is 。/.")]
            case "ground_first":
                return [*there, *figure, *words("が あります/is 。/.")]
            case "definite":
                return [*figure, *words("は"), *there, *words("あります/is 。/.")]
            case "you_see":
                return [*there, *figure, *words("が 見えます/see 。/.")]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        way = [*speed, *words(self.directions[event.direction]), *words("へ")]
        mover = [*_noun(event.mover, "figure"), *words("が"), *way]
        moving = [*mover, *words("動いて/moves います 。/.")]
        if plot == "mover_only" or event.still is None:
            return moving
        still = [*_noun(event.still, "ground"), *words("は")]
        if plot == "mover_first":
            return [*mover, *words("動き/moves 、"), *still, *words("止まって/still います 。/.")]
        return [*still, *words("止まって/still いて 、"), *moving]

    def label(self, thing: Thing) -> Tokens:
        return _noun(thing)

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*_noun(thing), *words("は 何色 です か ？")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return [*words(_ADJECTIVES[colour]), *words("図形 は 何 です か ？")]

    def ask_count(self, shape: Shape) -> Tokens:
        return words(f"{_NOUNS[shape]}/{shape} は いくつ あります か ？")

    def ask_fact(self, fact: Fact) -> Tokens:
        return [*_there(fact), *_noun(fact.figure), *words("は あります か ？")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"{_PLACES[place]} の 図形 は 何色 です か ？")

    def ask_mover(self) -> Tokens:
        return words("動いて/moves いる 図形 は 何色 です か ？")

    def ask_direction(self, thing: Thing) -> Tokens:
        return [*_noun(thing), *words("は どちら へ 動いて/moves います か ？")]


def _there(fact: Fact) -> Tokens:
    side = words(_RELATIONS[fact.relation])
    return [*_noun(fact.ground, "ground"), *words("の"), *side, *words("に")]


def _noun(thing: Thing, role: Role = "") -> Tokens:
    size = words(_SIZES[thing.size], role) if thing.size else []
    colour = words(_ADJECTIVES[thing.colour], role) if thing.colour else []
    return [*size, *colour, Token(_NOUNS[thing.shape], thing.shape, role)]

"""Chinese: measure words, modifiers with 的 before the noun, the place before what is there."""

# ruff: noqa: D102, RUF012 (`Grammar` says what each method and attribute is for)

from __future__ import annotations

from polyglance.data.toy.grammar import Grammar, Plot, Role, Style, Token, Tokens, words
from polyglance.data.toy.semantics import Colour, Event, Fact, Place, Shape, Thing

# Measure word and noun.
_NOUNS: dict[Shape, tuple[str, str]] = {
    "circle": ("个", "圆形"),
    "square": ("个", "正方形"),
    "triangle": ("个", "三角形"),
    "star": ("颗", "星星"),
    "heart": ("颗", "爱心"),
    "diamond": ("个", "菱形"),
}
_SIZES = {"small": "小", "large": "大"}
_RELATIONS = {
    "left_of": "左边/left_of",
    "right_of": "右边/right_of",
    "above": "上方/above",
    "below": "下方/below",
    "in_front_of": "前面/in_front_of",
    "behind": "后面/behind",
    "inside": "里面/inside",
}
_PLACES = {
    "left": "左边",
    "right": "右边",
    "upper": "上方",
    "lower": "下方",
    "front": "前面",
    "back": "后面",
    "inner": "里面",
    "outer": "外面",
}
_SPEEDS = {"slow": "缓慢/slow 地", "fast": "快速/fast 地"}


class Chinese(Grammar):
    """The grammar of Mandarin Chinese in simplified characters."""

    language = "zh"
    spaced = False
    colours = {
        "red": "红色",
        "orange": "橙色",
        "yellow": "黄色",
        "green": "绿色",
        "blue": "蓝色",
        "purple": "紫色",
        "black": "黑色",
        "white": "白色",
    }
    directions = {
        "left": "向 左/left",
        "right": "向 右/right",
        "up": "向 上/up",
        "down": "向 下/down",
    }
    yes, no = "有", "没有"

    def describe(self, fact: Fact, style: Style) -> Tokens:
        there = _there(fact)
        exists = [*there, *words("有/is"), *_some(fact.figure, "figure"), *words("。/.")]
        match style:
            case "phrase":
                ground, side = _compact(fact.ground, "ground"), words(_RELATIONS[fact.relation])
                return [*ground, *side, *words("的"), *_compact(fact.figure, "figure")]
            case "in_picture":
                return [*words("图/picture 中 ，"), *exists]
            case "ground_first":
                return exists
            case "definite":
                return [*_noun(fact.figure, "figure"), *words("在/is"), *there, *words("。/.")]
            case "you_see":
                return [*words("可以 看到/see"), *exists]

    def narrate(self, event: Event, plot: Plot) -> Tokens:
        speed = words(_SPEEDS[event.speed]) if event.speed else []
        moves = [*speed, *words(self.directions[event.direction]), *words("移动/moves")]
        moving = [*_some(event.mover, "figure"), *moves]
        if plot == "mover_only" or event.still is None:
            return [*moving, *words("。/.")]
        resting = [*_some(event.still, "ground"), *words("静止/still 不动")]
        first, second = (moving, resting) if plot == "mover_first" else (resting, moving)
        return [*first, *words("， 而/while"), *second, *words("。/.")]

    def label(self, thing: Thing) -> Tokens:
        return _compact(thing)

    def ask_colour(self, thing: Thing) -> Tokens:
        return [*_noun(thing), *words("是 什么 颜色 的 ？")]

    def ask_shape(self, colour: Colour) -> Tokens:
        return words(f"哪个 图形 是 {self.colours[colour]}/{colour} 的 ？")

    def ask_count(self, shape: Shape) -> Tokens:
        measure, noun = _NOUNS[shape]
        return words(f"图/picture 中 有 几 {measure} {noun}/{shape} ？")

    def ask_fact(self, fact: Fact) -> Tokens:
        return [*_there(fact), *words("有"), *_noun(fact.figure), *words("吗 ？")]

    def ask_place(self, place: Place) -> Tokens:
        return words(f"{_PLACES[place]} 的 图形 是 什么 颜色 的 ？")

    def ask_mover(self) -> Tokens:
        return words("移动/moves 的 图形 是 什么 颜色 的 ？")

    def ask_direction(self, thing: Thing) -> Tokens:
        return [*_noun(thing), *words("向 哪个 方向 移动/moves ？")]


def _there(fact: Fact) -> Tokens:
    """The ground and its side: 蓝色正方形的左边, but 蓝色正方形里面."""
    linker = words("的") if fact.relation != "inside" else []
    return [*_compact(fact.ground, "ground"), *linker, *words(_RELATIONS[fact.relation])]


def _noun(thing: Thing, role: Role = "", linker: bool = True) -> Tokens:
    """红色的小圆形: colour, 的, size, noun."""
    tokens: list[Token] = []
    if thing.colour:
        tokens.append(Token(Chinese.colours[thing.colour], thing.colour, role))
        if linker:
            tokens.append(Token("的"))
    if thing.size:
        tokens.append(Token(_SIZES[thing.size], thing.size, role))
    return [*tokens, Token(_NOUNS[thing.shape][1], thing.shape, role)]


def _compact(thing: Thing, role: Role = "") -> Tokens:
    """红色小圆形: without 的, as one prefers where another 的 follows."""
    return _noun(thing, role, linker=False)


def _some(thing: Thing, role: Role = "") -> Tokens:
    return [Token("一", "a", role), Token(_NOUNS[thing.shape][0]), *_noun(thing, role)]

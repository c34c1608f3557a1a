"""Events and questions, against sentences written by hand in every language."""

from __future__ import annotations

import pytest

from polyglance.data.toy.grammar import Plot
from polyglance.data.toy.grammars import GRAMMARS, LANGUAGES, narrate
from polyglance.data.toy.semantics import Event, Fact, Thing

CIRCLE_LEFT_OF_SQUARE = Fact(Thing("circle", "red"), "left_of", Thing("square", "blue"))
CIRCLE_GOES_LEFT = Event(Thing("circle", "red"), "left", "slow", Thing("square", "blue"))
STAR_GOES_UP = Event(Thing("star", "blue"), "up", "fast", Thing("star", "white", "small"))

NARRATED: list[tuple[str, Event, Plot, str]] = [
    (
        "en",
        CIRCLE_GOES_LEFT,
        "mover_first",
        "A red circle moves slowly to the left while a blue square stays still.",
    ),
    (
        "en",
        STAR_GOES_UP,
        "still_first",
        "A small white star stays still while a blue star moves quickly upwards.",
    ),
    (
        "de",
        CIRCLE_GOES_LEFT,
        "mover_first",
        "Ein roter Kreis bewegt sich langsam nach links, während ein blaues Quadrat stillsteht.",
    ),
    (
        "de",
        CIRCLE_GOES_LEFT,
        "still_first",
        "Ein blaues Quadrat steht still, während sich ein roter Kreis langsam nach links bewegt.",
    ),
    (
        "fr",
        STAR_GOES_UP,
        "mover_first",
        "Une étoile bleue se déplace rapidement vers le haut, "
        "tandis qu'une petite étoile blanche reste immobile.",
    ),
    (
        "cs",
        CIRCLE_GOES_LEFT,
        "mover_first",
        "Červený kruh se pomalu pohybuje doleva, zatímco modrý čtverec stojí na místě.",
    ),
    (
        "cs",
        STAR_GOES_UP,
        "still_first",
        "Malá bílá hvězda stojí na místě, zatímco se modrá hvězda rychle pohybuje nahoru.",
    ),
    (
        "ru",
        STAR_GOES_UP,
        "mover_first",
        "Синяя звезда быстро движется вверх, а маленькая белая звезда стоит на месте.",
    ),
    (
        "ar",
        CIRCLE_GOES_LEFT,
        "mover_first",
        "تتحرك دائرة حمراء ببطء نحو اليسار، بينما يبقى مربع أزرق ثابتًا.",
    ),
    (
        "ar",
        STAR_GOES_UP,
        "still_first",
        "تبقى نجمة بيضاء صغيرة ثابتة، بينما تتحرك نجمة زرقاء بسرعة نحو الأعلى.",
    ),
    ("zh", CIRCLE_GOES_LEFT, "mover_only", "一个红色的圆形缓慢地向左移动。"),
    (
        "zh",
        STAR_GOES_UP,
        "mover_first",
        "一颗蓝色的星星快速地向上移动，而一颗白色的小星星静止不动。",
    ),
    (
        "ja",
        CIRCLE_GOES_LEFT,
        "mover_first",
        "赤い円がゆっくりと左へ動き、青い正方形は止まっています。",
    ),
    (
        "ja",
        CIRCLE_GOES_LEFT,
        "still_first",
        "青い正方形は止まっていて、赤い円がゆっくりと左へ動いています。",
    ),
]

ASKED: dict[str, list[str]] = {
    "en": [
        "What colour is the star?",
        "Which shape is blue?",
        "How many stars are there?",
        "Is there a red circle to the left of a blue square?",
        "What colour is the shape at the top?",
        "Which way does the red star move?",
    ],
    "de": [
        "Welche Farbe hat der Stern?",
        "Welche Form ist blau?",
        "Wie viele Sterne gibt es?",
        "Gibt es einen roten Kreis links von einem blauen Quadrat?",
        "Welche Farbe hat die obere Form?",
        "Wohin bewegt sich der rote Stern?",
    ],
    "fr": [
        "De quelle couleur est l'étoile ?",
        "Quelle forme est bleue ?",
        "Combien d'étoiles y a-t-il ?",
        "Y a-t-il un cercle rouge à gauche d'un carré bleu ?",
        "De quelle couleur est la forme du haut ?",
        "Dans quelle direction se déplace l'étoile rouge ?",
    ],
    "cs": [
        "Jakou barvu má hvězda?",
        "Který tvar je modrý?",
        "Kolik hvězd je na obrázku?",
        "Je vlevo od modrého čtverce červený kruh?",
        "Jakou barvu má horní tvar?",
        "Kam se pohybuje červená hvězda?",
    ],
    "ru": [
        "Какого цвета звезда?",
        "Какая фигура синяя?",
        "Сколько звёзд на картинке?",
        "Есть ли слева от синего квадрата красный круг?",
        "Какого цвета верхняя фигура?",
        "Куда движется красная звезда?",
    ],
    "ar": [
        "ما لون النجمة؟",
        "أي شكل لونه أزرق؟",
        "كم نجمة في الصورة؟",
        "هل توجد دائرة حمراء على يسار مربع أزرق؟",
        "ما لون الشكل العلوي؟",
        "إلى أين تتحرك النجمة الحمراء؟",
    ],
    "zh": [
        "星星是什么颜色的？",
        "哪个图形是蓝色的？",
        "图中有几颗星星？",
        "蓝色正方形的左边有红色的圆形吗？",
        "上方的图形是什么颜色的？",
        "红色的星星向哪个方向移动？",
    ],
    "ja": [
        "星は何色ですか？",
        "青い図形は何ですか？",
        "星はいくつありますか？",
        "青い正方形の左に赤い円はありますか？",
        "上の図形は何色ですか？",
        "赤い星はどちらへ動いていますか？",
    ],
}


@pytest.mark.parametrize(("language", "event", "plot", "expected"), NARRATED)
def test_an_event_is_narrated_as_written_by_hand(
    language: str, event: Event, plot: Plot, expected: str
) -> None:
    assert narrate(language, event, plot).text == expected


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_are_asked_as_written_by_hand(language: str) -> None:
    grammar = GRAMMARS[language]
    asked = [
        grammar.ask_colour(Thing("star")),
        grammar.ask_shape("blue"),
        grammar.ask_count("star"),
        grammar.ask_fact(CIRCLE_LEFT_OF_SQUARE),
        grammar.ask_place("upper"),
        grammar.ask_direction(Thing("star", "red")),
    ]
    assert [grammar.text(tokens) for tokens in asked] == ASKED[language]


def test_arabic_counts_in_the_accusative() -> None:
    grammar = GRAMMARS["ar"]
    assert grammar.text(grammar.ask_count("square")) == "كم مربعًا في الصورة؟"


def test_czech_and_russian_place_adjectives_decline_hard_and_soft() -> None:
    czech, russian = GRAMMARS["cs"], GRAMMARS["ru"]
    assert czech.text(czech.ask_place("left")) == "Jakou barvu má levý tvar?"
    assert czech.text(czech.ask_place("front")) == "Jakou barvu má přední tvar?"
    assert russian.text(russian.ask_place("left")) == "Какого цвета левая фигура?"
    assert russian.text(russian.ask_place("lower")) == "Какого цвета нижняя фигура?"

"""The grammars against sentences written by hand: gender, case, agreement, word order."""

from __future__ import annotations

from itertools import product

import pytest

from polyglance.data.toy.grammar import PLOTS, STYLES, Style
from polyglance.data.toy.grammars import GRAMMARS, LANGUAGES, describe, narrate
from polyglance.data.toy.semantics import (
    COLOURS,
    PLACES,
    RELATIONS,
    SHAPES,
    SIZES,
    Event,
    Fact,
    Thing,
)

CIRCLE_LEFT_OF_SQUARE = Fact(Thing("circle", "red"), "left_of", Thing("square", "blue"))
STAR_ABOVE_HEART = Fact(Thing("star", "orange", "large"), "above", Thing("heart", "white", "small"))
HEART_INSIDE_STAR = Fact(Thing("heart", "purple"), "inside", Thing("star"))
TRIANGLE_BEHIND_DIAMOND = Fact(Thing("triangle"), "behind", Thing("diamond", "yellow"))
DIAMOND_RIGHT_OF_STAR = Fact(
    Thing("diamond", "black", "small"), "right_of", Thing("star", "green", "large")
)
SQUARE_IN_FRONT_OF_CIRCLE = Fact(
    Thing("square", "yellow"), "in_front_of", Thing("circle", "purple")
)
HEART_BELOW_TRIANGLE = Fact(Thing("heart", "blue"), "below", Thing("triangle", "black", "large"))

DESCRIBED: list[tuple[str, Fact, Style, str]] = [
    ("en", CIRCLE_LEFT_OF_SQUARE, "phrase", "A red circle to the left of a blue square"),
    (
        "en",
        STAR_ABOVE_HEART,
        "in_picture",
        "In the picture there is a large orange star above a small white heart.",
    ),
    ("en", HEART_INSIDE_STAR, "ground_first", "Inside a star there is a purple heart."),
    ("en", TRIANGLE_BEHIND_DIAMOND, "definite", "The triangle is behind the yellow diamond."),
    (
        "en",
        DIAMOND_RIGHT_OF_STAR,
        "you_see",
        "You can see a small black diamond to the right of a large green star.",
    ),
    ("en", SQUARE_IN_FRONT_OF_CIRCLE, "phrase", "A yellow square in front of a purple circle"),
    (
        "en",
        Fact(Thing("circle", "orange"), "below", Thing("square", "orange")),
        "phrase",
        "An orange circle below an orange square",
    ),
    # German: mixed endings after ein, weak after der; dative places, accusative objects.
    ("de", CIRCLE_LEFT_OF_SQUARE, "phrase", "Ein roter Kreis links von einem blauen Quadrat"),
    (
        "de",
        CIRCLE_LEFT_OF_SQUARE,
        "definite",
        "Der rote Kreis ist links von dem blauen Quadrat.",
    ),
    (
        "de",
        CIRCLE_LEFT_OF_SQUARE,
        "you_see",
        "Man sieht einen roten Kreis links von einem blauen Quadrat.",
    ),
    (
        "de",
        STAR_ABOVE_HEART,
        "in_picture",
        "Auf dem Bild ist ein großer orangefarbener Stern über einem kleinen weißen Herzen.",
    ),
    ("de", HEART_INSIDE_STAR, "ground_first", "In einem Stern befindet sich ein violettes Herz."),
    ("de", HEART_INSIDE_STAR, "definite", "Das violette Herz ist im Stern."),
    ("de", TRIANGLE_BEHIND_DIAMOND, "definite", "Das Dreieck ist hinter der gelben Raute."),
    (
        "de",
        DIAMOND_RIGHT_OF_STAR,
        "you_see",
        "Man sieht eine kleine schwarze Raute rechts von einem großen grünen Stern.",
    ),
    (
        "de",
        Fact(Thing("circle", "white"), "inside", Thing("diamond", "red", "large")),
        "definite",
        "Der weiße Kreis ist in der großen roten Raute.",
    ),
    ("de", SQUARE_IN_FRONT_OF_CIRCLE, "phrase", "Ein gelbes Quadrat vor einem violetten Kreis"),
    # French: agreement, place of adjectives, elision, contraction.
    ("fr", CIRCLE_LEFT_OF_SQUARE, "phrase", "Un cercle rouge à gauche d'un carré bleu"),
    ("fr", CIRCLE_LEFT_OF_SQUARE, "definite", "Le cercle rouge est à gauche du carré bleu."),
    (
        "fr",
        STAR_ABOVE_HEART,
        "in_picture",
        "Sur l'image, il y a une grande étoile orange au-dessus d'un petit cœur blanc.",
    ),
    (
        "fr",
        DIAMOND_RIGHT_OF_STAR,
        "definite",
        "Le petit losange noir est à droite de la grande étoile verte.",
    ),
    (
        "fr",
        Fact(Thing("heart", "green"), "below", Thing("star", "white")),
        "definite",
        "Le cœur vert est au-dessous de l'étoile blanche.",
    ),
    ("fr", HEART_INSIDE_STAR, "ground_first", "Dans une étoile se trouve un cœur violet."),
    ("fr", SQUARE_IN_FRONT_OF_CIRCLE, "you_see", "On voit un carré jaune devant un cercle violet."),
    (
        "fr",
        Fact(Thing("star", "purple"), "above", Thing("star", "blue")),
        "ground_first",
        "Au-dessus d'une étoile bleue se trouve une étoile violette.",
    ),
    # Czech: genitive, instrumental and accusative in three genders.
    ("cs", CIRCLE_LEFT_OF_SQUARE, "phrase", "Červený kruh vlevo od modrého čtverce"),
    (
        "cs",
        STAR_ABOVE_HEART,
        "in_picture",
        "Na obrázku je velká oranžová hvězda nad malým bílým srdcem.",
    ),
    (
        "cs",
        STAR_ABOVE_HEART,
        "you_see",
        "Vidíme velkou oranžovou hvězdu nad malým bílým srdcem.",
    ),
    ("cs", HEART_INSIDE_STAR, "ground_first", "Uvnitř hvězdy je fialové srdce."),
    ("cs", TRIANGLE_BEHIND_DIAMOND, "definite", "Trojúhelník je za žlutým kosočtvercem."),
    (
        "cs",
        DIAMOND_RIGHT_OF_STAR,
        "you_see",
        "Vidíme malý černý kosočtverec vpravo od velké zelené hvězdy.",
    ),
    (
        "cs",
        Fact(Thing("heart", "green", "small"), "in_front_of", Thing("star", "blue")),
        "phrase",
        "Malé zelené srdce před modrou hvězdou",
    ),
    ("cs", HEART_BELOW_TRIANGLE, "ground_first", "Pod velkým černým trojúhelníkem je modré srdce."),
    # Russian: four kinds of adjective, cases after prepositions, agreeing participle.
    ("ru", CIRCLE_LEFT_OF_SQUARE, "phrase", "Красный круг слева от синего квадрата"),
    (
        "ru",
        STAR_ABOVE_HEART,
        "in_picture",
        "На картинке нарисована большая оранжевая звезда над маленьким белым сердцем.",
    ),
    (
        "ru",
        STAR_ABOVE_HEART,
        "you_see",
        "Мы видим большую оранжевую звезду над маленьким белым сердцем.",
    ),
    ("ru", HEART_INSIDE_STAR, "ground_first", "Внутри звезды находится фиолетовое сердце."),
    ("ru", TRIANGLE_BEHIND_DIAMOND, "definite", "Треугольник находится за жёлтым ромбом."),
    (
        "ru",
        DIAMOND_RIGHT_OF_STAR,
        "ground_first",
        "Справа от большой зелёной звезды находится маленький чёрный ромб.",
    ),
    (
        "ru",
        HEART_BELOW_TRIANGLE,
        "in_picture",
        "На картинке нарисовано синее сердце под большим чёрным треугольником.",
    ),
    (
        "ru",
        Fact(Thing("star", "blue"), "in_front_of", Thing("star", "blue", "small")),
        "you_see",
        "Мы видим синюю звезду перед маленькой синей звездой.",
    ),
    # Arabic: gender, definiteness, annexation, the visible accusative.
    ("ar", CIRCLE_LEFT_OF_SQUARE, "phrase", "دائرة حمراء على يسار مربع أزرق"),
    ("ar", CIRCLE_LEFT_OF_SQUARE, "definite", "تقع الدائرة الحمراء على يسار المربع الأزرق."),
    ("ar", STAR_ABOVE_HEART, "in_picture", "في الصورة نجمة برتقالية كبيرة فوق قلب أبيض صغير."),
    ("ar", HEART_INSIDE_STAR, "ground_first", "داخل نجمة يوجد قلب بنفسجي."),
    ("ar", HEART_INSIDE_STAR, "you_see", "نرى قلبًا بنفسجيًا داخل نجمة."),
    ("ar", DIAMOND_RIGHT_OF_STAR, "you_see", "نرى معيّنًا أسود صغيرًا على يمين نجمة خضراء كبيرة."),
    ("ar", STAR_ABOVE_HEART, "you_see", "نرى نجمة برتقالية كبيرة فوق قلب أبيض صغير."),
    ("ar", TRIANGLE_BEHIND_DIAMOND, "definite", "يقع المثلث خلف المعيّن الأصفر."),
    # Chinese: measure words, 的, the ground before the figure.
    ("zh", CIRCLE_LEFT_OF_SQUARE, "phrase", "蓝色正方形左边的红色圆形"),
    ("zh", CIRCLE_LEFT_OF_SQUARE, "definite", "红色的圆形在蓝色正方形的左边。"),
    ("zh", CIRCLE_LEFT_OF_SQUARE, "ground_first", "蓝色正方形的左边有一个红色的圆形。"),
    ("zh", STAR_ABOVE_HEART, "in_picture", "图中，白色小爱心的上方有一颗橙色的大星星。"),
    ("zh", HEART_INSIDE_STAR, "you_see", "可以看到星星里面有一颗紫色的爱心。"),
    ("zh", TRIANGLE_BEHIND_DIAMOND, "ground_first", "黄色菱形的后面有一个三角形。"),
    ("zh", DIAMOND_RIGHT_OF_STAR, "phrase", "绿色大星星右边的黑色小菱形"),
    # Japanese: verb last, particles, 赤い beside 緑の.
    ("ja", CIRCLE_LEFT_OF_SQUARE, "phrase", "青い正方形の左にある赤い円"),
    ("ja", CIRCLE_LEFT_OF_SQUARE, "definite", "赤い円は青い正方形の左にあります。"),
    (
        "ja",
        STAR_ABOVE_HEART,
        "in_picture",
        "画像では、小さな白いハートの上に大きなオレンジ色の星があります。",
    ),
    ("ja", HEART_INSIDE_STAR, "you_see", "星の中に紫のハートが見えます。"),
    ("ja", TRIANGLE_BEHIND_DIAMOND, "ground_first", "黄色いひし形の後ろに三角形があります。"),
    ("ja", DIAMOND_RIGHT_OF_STAR, "definite", "小さな黒いひし形は大きな緑の星の右にあります。"),
    ("ja", SQUARE_IN_FRONT_OF_CIRCLE, "ground_first", "紫の円の手前に黄色い正方形があります。"),
]


@pytest.mark.parametrize(("language", "fact", "style", "expected"), DESCRIBED)
def test_a_fact_is_described_as_written_by_hand(
    language: str, fact: Fact, style: Style, expected: str
) -> None:
    assert describe(language, fact, style).text == expected


def test_every_language_has_enough_sentences_written_by_hand() -> None:
    for language in LANGUAGES:
        written = [fact for lang, fact, _, _ in DESCRIBED if lang == language]
        assert len(written) >= 6
        assert {thing.shape for fact in written for thing in (fact.figure, fact.ground)} >= {
            "circle",
            "square",
            "star",
            "heart",
        }
        assert len({fact.relation for fact in written}) >= 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_has_loose_spaces_or_leftover_tags(language: str) -> None:
    grammar = GRAMMARS[language]
    texts = [
        describe(
            language, Fact(Thing(shape, colour, size), relation, Thing(shape, colour)), style
        ).text
        for shape, colour, size, relation, style in product(
            SHAPES, COLOURS[:3], SIZES, RELATIONS, STYLES
        )
    ]
    event = Event(Thing("circle", "red"), "left", "slow", Thing("square", "blue"))
    texts += [narrate(language, event, plot).text for plot in PLOTS]
    texts += [grammar.text(grammar.ask_place(place)) for place in PLACES]
    for text in texts:
        assert text == " ".join(text.split()), text
        assert not set("/_") & set(text), text
        assert (" " in text) == grammar.spaced, text
        assert " ." not in text, text
        assert " ," not in text, text
        assert text[0] == text[0].upper(), text

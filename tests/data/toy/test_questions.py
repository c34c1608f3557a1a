"""Answers against a slow check of the positions in the scene, independent of the grammar."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from polyglance.data.toy import LANGUAGES, ToyDataset, lexicon
from polyglance.data.toy.items import Picture
from polyglance.data.toy.rendering import bounding_box
from polyglance.data.toy.scenes import PlacedThing
from polyglance.data.toy.semantics import COLOURS, SHAPES
from polyglance.records import Question

ANSWERS = {
    "de": {"red": "rot", "heart": "Herz", "yes": "ja", "no": "nein", "upwards": "nach oben"},
    "fr": {
        "white": "blanc",
        "star": "étoile",
        "yes": "oui",
        "no": "non",
        "upwards": "vers le haut",
    },
    "cs": {"red": "červenou", "star": "hvězda", "yes": "ano", "no": "ne", "upwards": "nahoru"},
    "ru": {"blue": "синего", "star": "звезда", "yes": "да", "no": "нет", "upwards": "вверх"},
    "ar": {"red": "أحمر", "circle": "دائرة", "yes": "نعم", "no": "لا", "upwards": "نحو الأعلى"},
    "zh": {"red": "红色", "heart": "爱心", "yes": "有", "no": "没有", "upwards": "向上"},
    "ja": {"red": "赤", "star": "星", "yes": "はい", "no": "いいえ", "upwards": "上"},
}
"""Some answers in each language."""

RELATION = r"(to the left of|to the right of|above|below|in front of|behind|inside)"


@pytest.fixture(scope="module")
def pictures() -> list[Picture]:
    dataset = ToyDataset(seed=21, max_distractors=2)
    return [*dataset.pictures(200), *dataset.pictures(50, "test")]


def holds(relation: str, a: PlacedThing, b: PlacedThing, things: list[PlacedThing]) -> bool:
    """Whether a is so to b, by boxes and by the order of drawing."""
    (al, at, ar, ab), (bl, bt, br, bb) = bounding_box(a), bounding_box(b)
    apart = ar < bl or br < al or ab < bt or bb < at
    aligned_across = at < bb and bt < ab
    aligned_down = al < br and bl < ar
    within = bl < al and ar < br and bt < at and ab < bb
    over = things.index(a) > things.index(b)
    return {
        "to the left of": ar < bl and aligned_across,
        "to the right of": br < al and aligned_across,
        "above": ab < bt and aligned_down,
        "below": bb < at and aligned_down,
        "in front of": not apart and over and not within,
        "behind": not apart and not over,
        "inside": within,
    }[relation]


def answer(question: str, things: list[PlacedThing]) -> str:
    """The answer to an English question, from the things alone."""
    if found := re.fullmatch(r"What colour is the (\w+)\?", question):
        (thing,) = (t for t in things if t.thing.shape == found[1])
        return str(thing.thing.colour)
    if found := re.fullmatch(r"Which shape is (\w+)\?", question):
        (thing,) = (t for t in things if t.thing.colour == found[1])
        return thing.thing.shape
    if found := re.fullmatch(r"How many (\w+)s are there\?", question):
        return str(sum(t.thing.shape == found[1] for t in things))
    if found := re.fullmatch(rf"Is there an? (\w+) (\w+) {RELATION} an? (\w+) (\w+)\?", question):
        colour, shape, relation, other_colour, other_shape = found.groups()
        return "yes" if any(
            (a.thing.colour, a.thing.shape) == (colour, shape)
            and (b.thing.colour, b.thing.shape) == (other_colour, other_shape)
            and holds(relation, a, b, things)
            for a in things
            for b in things
            if a is not b
        ) else "no"  # fmt: skip
    orders = {
        "on the left": lambda t: bounding_box(t)[0],
        "on the right": lambda t: -bounding_box(t)[2],
        "at the top": lambda t: bounding_box(t)[1],
        "at the bottom": lambda t: -bounding_box(t)[3],
        "in front": lambda t: -things.index(t),
        "at the back": things.index,
        "on the inside": lambda t: t.radius,
        "on the outside": lambda t: -t.radius,
    }
    found = re.fullmatch(r"What colour is the shape ([\w ]+)\?", question)
    assert found, question
    return str(min(things, key=orders[found[1]]).thing.colour)


def by_language(picture: Picture) -> dict[str, list[Question]]:
    asked = picture.questions  # made anew whenever they are asked for
    return {language: [q for q in asked if q.language == language] for language in LANGUAGES}


def test_english_answers_agree_with_a_slow_check_of_the_scene(pictures: list[Picture]) -> None:
    kinds: Counter[str] = Counter()
    for picture in pictures:
        things = list(picture.scene.things)
        for question in by_language(picture)["en"]:
            assert question.answers == (answer(question.text, things),), question.text
            assert question.id is not None
            kinds[question.id.split("-")[-2]] += 1
    assert set(kinds) == {"colour", "shape", "count", "fact", "place"}
    assert min(kinds.values()) > 50


def test_other_languages_ask_and_answer_the_same(pictures: list[Picture]) -> None:
    compared: Counter[str] = Counter()
    for picture in pictures[:80]:
        asked = by_language(picture)
        for language in LANGUAGES[1:]:
            assert len(asked[language]) == len(asked["en"])
            for english, other in zip(asked["en"], asked[language], strict=True):
                assert other.answer_type == english.answer_type
                assert _attributes_in(other.text, language) == _attributes_in(english.text, "en")
                expected = ANSWERS[language].get(english.answers[0])
                if english.answer_type == "number":
                    expected = english.answers[0]
                if expected is not None:
                    assert other.answers == (expected,)
                    compared[language] += 1
    assert min(compared[language] for language in LANGUAGES[1:]) > 60


def test_yes_and_no_are_balanced_and_no_swaps_the_words_of_a_true_fact(
    pictures: list[Picture],
) -> None:
    answers: Counter[str] = Counter()
    for picture in pictures:
        fact = picture.scene.fact
        words = {fact.figure.colour, fact.figure.shape, fact.ground.colour, fact.ground.shape}
        for question in by_language(picture)["en"]:
            if question.answer_type == "yes/no":
                answers[question.answers[0]] += 1
                assert _attributes_in(question.text, "en") == words
    assert 0.4 < answers["yes"] / answers.total() < 0.6


def test_counts_vary(pictures: list[Picture]) -> None:
    counts = Counter(
        q.answers[0] for p in pictures for q in by_language(p)["en"] if q.answer_type == "number"
    )
    assert counts.keys() >= {"0", "1", "2"}
    assert max(counts.values()) / counts.total() < 0.6


def test_clip_questions_ask_for_the_mover_and_its_direction() -> None:
    to = {"left": "to the left", "right": "to the right", "up": "upwards", "down": "downwards"}
    for clip in ToyDataset(seed=3).clips(20):
        which, where = (q for q in clip.questions if q.language == "en")
        dx, dy = clip.film.travel
        direction = ("left" if dx < 0 else "right") if dx else ("up" if dy < 0 else "down")
        assert which.text == "What colour is the shape that moves?"
        assert which.answers == (clip.film.mover.thing.colour,)
        mover = clip.film.mover.thing
        assert where.text == f"Which way does the {mover.colour} {mover.shape} move?"
        assert where.answers == (to[direction],)
        for question in clip.questions:
            if direction == "up" and question.language != "en" and "direction" in str(question.id):
                assert question.answers == (ANSWERS[question.language]["upwards"],)


def _attributes_in(text: str, language: str) -> set[str]:
    """The colours and shapes that a question names, longest forms first."""
    text, named = text.lower(), set()
    forms = [
        (form.lower(), sense) for sense in (*COLOURS, *SHAPES) for form in lexicon(language)[sense]
    ]
    for form, sense in sorted(forms, key=lambda entry: -len(entry[0])):
        if form in text:
            named.add(sense)
            text = text.replace(form, " ")
    return named

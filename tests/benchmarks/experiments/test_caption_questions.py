"""Questions that rules make of captions and labels."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.experiments import caption_questions
from benchmarks.experiments.caption_questions import (
    colour_mentioned,
    count_mentioned,
    count_people,
    find_companions,
    make_questions,
)
from polyglance.records import Record


@pytest.mark.parametrize(
    ("captions", "noun", "number"),
    [
        (["two brown dogs run"], "dog", 2),
        (["a couple of dogs on grass"], "dog", 2),
        (["two dogs run", "three dogs run"], "dog", None),  # they do not agree
        (["dogs run on a beach"], "dog", None),
        (["a dog on a beach", "the dog runs"], "dog", 1),
        (["a dog on a beach", "an animal runs"], "dog", 1),
        (["a dog on a beach", "dog tricks"], "dog", None),  # named without an article too
        (["a dog looks at another dog"], "dog", None),
        (["a dog and a dog"], "dog", None),
        (["a dogwood in bloom"], "dog", None),
        (["three sheep"], "sheep", 3),
        (["a sheep on a hill"], "sheep", None),  # the plural looks the same
        (["four buses in a row"], "bus", 4),
        ([], "dog", None),
    ],
)
def test_a_number_is_taken_where_captions_agree(
    captions: list[str], noun: str, number: int | None
) -> None:
    assert count_mentioned(captions, noun) == number


def test_people_are_counted_as_one_only_where_one_kind_is_named_and_labelled() -> None:
    one = ["a man on a horse", "the man rides"]
    assert count_people(one, labelled=True) == 1
    assert count_people(one, labelled=False) is None
    assert count_people(["a man and a woman", "a man with a woman"], labelled=True) is None
    assert count_people(["three people in a boat"], labelled=True) == 3
    assert (
        count_people(["a woman next to a man.", "a woman talks to a man."], labelled=True) is None
    )
    assert count_people(["a man among people", "the man talks to people"], labelled=True) is None
    assert count_people(["a man and a lady", "the man with a lady"], labelled=True) is None


def test_synonyms_are_not_absent() -> None:
    labelled = Record(
        "a.jpg", captions={"en": ("Forks.",)}, labels=("fork", "dining table", "knife")
    )
    named = Record("b.jpg", captions={"en": ("A fork and knives on a table.",)}, labels=("fork",))
    asked = [one for one in make_questions([labelled, named]) if one.image == "b.jpg"]
    assert not [one for one in asked if one.answer in {"no", "0"}]


@pytest.mark.parametrize(
    ("caption", "labels", "answers"),
    [
        ("A man rides a wave on his surfboard.", ("surfboard",), ["surfing"]),
        ("A man beside his car.", ("surfboard", "car"), []),
        ("An office desk in the corner.", ("chair",), []),
        ("A desk in an office with a chair.", ("chair",), ["office"]),
    ],
)
def test_sports_and_rooms_need_a_caption(
    caption: str, labels: tuple[str, ...], answers: list[str]
) -> None:
    asked = make_questions([Record("a.jpg", captions={"en": (caption,)}, labels=labels)])
    assert [one.answer for one in asked if one.kind in {"sport", "room"}] == answers


@pytest.mark.parametrize(
    ("captions", "colour"),
    [
        (["a red bus", "a bus"], "red"),
        (["a red bus", "a blue bus"], None),
        (["a red and white bus"], None),
        (["a red bus among buses"], None),
        (["a bus in front of a red wall"], None),
    ],
)
def test_a_colour_is_taken_where_it_is_the_only_one(
    captions: list[str], colour: str | None
) -> None:
    assert colour_mentioned(captions, "bus") == colour


def pictures() -> list[Record]:
    dog = Record("dog.jpg", captions={"en": ("A black dog.", "The dog runs.")}, labels=("dog",))
    cup = Record("cup.jpg", captions={"de": ("Eine Tasse.",)}, labels=("cup", "dog", "bottle"))
    room = Record("room.jpg", captions={"en": ("A small kitchen with a bottle.",)}, labels=("cup",))
    return [dog, cup, room]


def test_what_is_absent_is_not_labelled_and_not_named() -> None:
    asked = make_questions(pictures())
    by_picture = {
        name: {one.question: one.answer for one in asked if one.image == name}
        for name in ("dog.jpg", "cup.jpg", "room.jpg")
    }
    absent = {
        name: " ".join(q for q, answer in found.items() if answer in {"no", "0"})
        for name, found in by_picture.items()
    }
    assert "dog" not in absent["dog.jpg"]
    # In pictures with a dog, a cup and a bottle are.
    assert {"bottle", "cup"} & set(absent["dog.jpg"].replace("?", "").replace("s ", " ").split())
    assert absent["cup.jpg"] == ""  # nothing else is ever seen together
    assert "bottle" not in absent["room.jpg"]
    assert "dog" in absent["room.jpg"]


def test_animals_colours_and_rooms_are_asked_for() -> None:
    answers = {(one.image, one.kind): one.answer for one in make_questions(pictures())}
    assert answers["dog.jpg", "color"] == "black"
    assert answers["dog.jpg", "count 1"] == "1"
    assert answers["dog.jpg", "animal"] == "dog"
    assert answers["room.jpg", "room"] == "kitchen"


def test_articles_fit_the_noun() -> None:
    pictures = [
        Record(f"{n}.jpg", captions={"en": ("A room.",)}, labels=("umbrella", "dog")[n % 2 :])
        for n in range(60)
    ]
    asked = [one.question for one in make_questions(pictures) if one.kind == "presence"]
    assert any("an umbrella" in question for question in asked)
    assert not any("a umbrella" in question or "an dog" in question for question in asked)


def test_no_kind_has_more_questions_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(caption_questions.LIMITS, "presence", 4)
    records = [
        Record(f"{n}.jpg", captions={"en": ("A room.",)}, labels=("dog", "cat")[n % 2 :])
        for n in range(40)
    ]
    asked = make_questions(records)
    presence = Counter(one.answer for one in asked if one.kind == "presence")
    assert presence == {"yes": 2, "no": 2}
    assert [one.image for one in asked] != sorted(one.image for one in asked)


def test_companions_are_the_classes_seen_together() -> None:
    records = [
        Record(labels=("dog", "cat")),
        Record(labels=("dog", "cat")),
        Record(labels=("cup",)),
    ]
    assert find_companions(records) == {"dog": ["cat"], "cat": ["dog"], "cup": []}

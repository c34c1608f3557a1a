"""Questions that captions answer."""

from __future__ import annotations

from collections import Counter

from polyglance.data.caption_questions import Nouns, ask_captions
from polyglance.records import Record

NOUNS = Nouns({"dog": "dogs", "ball": "balls", "man": "men", "boy": "boys", "car": "cars"})


def asked(*captions: str, seed: int = 0) -> dict[str, str]:
    """Questions about one picture with their answers; others have a car, and somebody running."""
    records = [
        Record(image="a.png", captions={"en": captions, "de": ("zwei Hunde",)}),
        Record(image="b.png", captions={"en": ("A car .", "A man running past a car .")}),
    ]
    found = list(ask_captions(records, most=50, seed=seed, nouns=NOUNS))
    assert all(question.language == "en" for record in found for question in record.questions)
    return {
        question.text: question.answers[0]
        for record in found
        if record.image == "a.png"
        for question in record.questions
    }


def test_numbers_colours_deeds_and_what_there_is_are_asked_for() -> None:
    found = asked("Two black dogs play with a red ball .", "A man is throwing a ball to 2 dogs .")
    assert found["How many dogs are there?"] == "2"
    assert found["What color are the dogs?"] == "black"
    assert found["What color is the ball?"] == "red"
    assert found["How many balls are there?"] == "1"  # both captions say "a ball"
    assert "How many men are there?" not in found  # one caption does
    assert found["What is the man doing?"] == "throwing"
    assert found["Is the man throwing?"] == "yes"
    assert found["Is there a dog in the picture?"] == "yes"
    assert found["What animal is this?"] == "dog"


def test_what_captions_contradict_is_not_asked() -> None:
    found = asked("Two dogs and a white ball .", "Three dogs with a blue ball .", "A dog sitting .")
    assert "How many dogs are there?" not in found
    assert "What color is the ball?" not in found
    found = asked("A man riding .", "A man standing .")
    assert "What is the man doing?" not in found
    assert found["Is the man riding?"] == found["Is the man standing?"] == "yes"


def test_things_and_deeds_of_others_are_denied_but_no_other_name_of_a_person() -> None:
    answers: Counter[tuple[str, str]] = Counter()
    for seed in range(40):
        answers.update(asked("A boy is sitting beside a dog .", seed=seed).items())
    assert answers["Is there a car in the picture?", "no"] > 0
    assert answers["Is the boy running?", "no"] > 0
    assert not any(text == "Is there a man in the picture?" for text, _ in answers)
    said_no = {text for text, answer in answers if answer == "no"}
    assert not said_no & {text for text, answer in answers if answer != "no"}


def test_a_picture_is_asked_about_so_often_at_most_and_nothing_twice() -> None:
    many = "Two dogs , three men , four cars and five balls , a boy sitting"
    found = list(
        ask_captions([Record(image="a.png", captions={"en": (many,)})], most=2, nouns=NOUNS)
    )
    kinds = Counter(question.answer_type for question in found[0].questions)
    assert max(kinds.values()) == 2
    texts = [question.text for question in found[0].questions]
    assert len(set(texts)) == len(texts)
    nothing = Record(image="b.png", captions={"en": ("It is raining",)})
    assert list(ask_captions([nothing, Record(captions={"de": ("Ein Hund",)})], nouns=NOUNS)) == []


def test_nouns_are_what_is_counted() -> None:
    captions = [text.split() for text in (
        "two brown dogs", "three dogs run", "two big dogs", "a dog", "two children",
        "four children", "three small children", "grass", "two grass", "two grass", "two grass",
    )]  # fmt: skip
    assert Nouns.counted(captions).plural == {"dog": "dogs", "child": "children"}

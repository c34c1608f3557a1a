"""Make questions of English captions and COCO labels by rules, for the reader to practise on.

    python -m benchmarks.experiments.caption_questions DATA/coco/natural.jsonl
        --out DATA/coco/caption-questions.jsonl

COCO-QA was made of captions too, but nothing is asked there that "no", "yes" or "0" answers. Here
are: how many of a thing there are, whether there is one, what colour it is, and which animal, sport
or room is shown. Pictures are those of the manifest, so pictures that were held out of it stay held
out. Rules are wrong at times; no person has checked the
answers. What is absent is what nobody labelled and no caption names.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from polyglance.records import Record, atomic_write, read_manifest
from polyglance.vision.labels import label_names

NUMBERS = {"two": 2, "couple": 2, "pair": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}
PEOPLE = ("man", "woman", "boy", "girl", "child", "kid", "person", "skier", "surfer", "player")
OTHER_PEOPLE = ("lady", "guy", "gentleman", "baby", "toddler", "batter", "catcher", "rider")
IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "knife": "knives",
    "sheep": "sheep", "bus": "buses", "bench": "benches", "couch": "couches",
    "toothbrush": "toothbrushes", "sandwich": "sandwiches", "wine glass": "wine glasses",
    "mouse": "mice",
}  # fmt: skip
UNCOUNTED = frozenset(("skis", "scissors", "broccoli", "luggage", "hair drier"))
COLOURS = (
    "white", "black", "red", "blue", "green", "yellow", "brown", "orange", "gray", "pink", "purple",
)  # fmt: skip
COLOURED = (
    "shirt", "hat", "jacket", "dress", "tie", "wall", "umbrella", "bus", "train", "car", "truck",
    "motorcycle", "bike", "boat", "plane", "cat", "dog", "horse", "cow", "bear", "bird", "bench",
    "couch", "chair", "table", "kite", "surfboard", "skateboard", "frisbee", "vase", "plate",
    "bowl", "sign", "building", "fire hydrant", "suitcase", "flower", "bag", "toilet",
)  # fmt: skip
ANIMALS = (
    "bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe",
)  # fmt: skip
CONSPICUOUS = frozenset((
    *ANIMALS, "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "bench", "umbrella",
    "kite", "skateboard", "surfboard", "pizza", "cake", "couch", "bed", "toilet", "laptop",
    "fire hydrant", "teddy bear",
))  # fmt: skip
"""Things of which captions do not leave out a second one."""
SPORTS = {
    "tennis racket": "tennis", "baseball bat": "baseball", "baseball glove": "baseball",
    "surfboard": "surfing", "skis": "skiing", "snowboard": "snowboarding",
    "skateboard": "skateboarding", "frisbee": "frisbee",
}  # fmt: skip
MENTIONS = {
    "surfing": "surf", "skiing": "ski", "snowboarding": "snowboard", "skateboarding": "skate",
}  # fmt: skip
"""Beginnings of words by which captions mention a sport, where that is not its name."""
ROOMS = ("kitchen", "bathroom", "bedroom", "living room", "office", "dining room")

COUNT = (
    "How many {} are there?", "How many {} are in the picture?", "How many {} are in the photo?",
    "How many {} are shown?", "How many {} can you see?", "How many {} are visible?",
)  # fmt: skip
PRESENCE = (
    "Is there a {} in the picture?", "Is there a {}?", "Is there a {} in this photo?",
    "Do you see a {}?", "Can you see a {}?",
)  # fmt: skip
COLOUR = ("What color is the {}?",)
ANIMAL = (
    "What animal is this?", "What kind of animal is this?", "What animal is in the picture?",
    "What type of animal is shown?",
)  # fmt: skip
SPORT = ("What sport is this?", "What sport is being played?")
ROOM = ("What room is this?", "What kind of room is this?", "Which room is this?")

LIMITS = {
    "count 0": 4000, "count 1": 7000, "count 2": 7000, "count 3": 4000, "color": 10000,
    "presence": 6000, "animal": 2500, "sport": 2000, "room": 2000,
}  # fmt: skip
"""Most questions of a kind; other counts are rare, and all are taken."""

_ARTICLES = "a|an|one|the|his|her|single|lone|solitary"
_ADJECTIVES = r"(?:\w+ ){0,2}?"
_NO_COMPOUND = r"(?=[.,;]|$| (?:with|that|has|is|and|where|filled|in|area)\b)"
"""After a room, so that an office desk is no office."""
_OTHERS = re.compile(r"\b(?:another|other|each|group|herd|flock)\b")


def plural(noun: str) -> str:
    """Return the plural of an English noun."""
    return IRREGULAR.get(noun, f"{noun}s")


SEVERAL_PEOPLE = frozenset((
    *(plural(noun) for noun in PEOPLE), "ladies", "guys", "babies", "group", "crowd", "couple",
    "family", "team", "others", "someone", "friend", "friends",
))  # fmt: skip


class NounPatterns(NamedTuple):
    """How captions mention a thing."""

    numbered: re.Pattern[str]
    many: re.Pattern[str]
    single: re.Pattern[str]
    coloured: re.Pattern[str]
    mixed: re.Pattern[str]

    @classmethod
    @cache
    def of(cls, noun: str) -> NounPatterns:
        """Return the patterns of a noun, in the singular."""
        many, colours = plural(noun), "|".join(COLOURS)
        patterns = (
            rf"\b({'|'.join(NUMBERS)}) (?:of )?{_ADJECTIVES}{many}\b",
            rf"\b{many}\b",
            rf"\b(?:{_ARTICLES}) {_ADJECTIVES}{noun}\b",
            rf"\b({colours}) {noun}\b",
            rf"\b\w+ and (?:{colours}) {noun}\b",
        )
        return cls(*map(re.compile, patterns))


class CaptionQuestion(NamedTuple):
    """A question about an image that its captions or labels answer."""

    image: str
    kind: str
    question: str
    answer: str


def count_mentioned(captions: Sequence[str], noun: str) -> int | None:
    """Return how many of a thing the captions of one picture say that there are.

    Args:
        captions: In lower case.
        noun: In the singular.

    Returns:
        The number; None where they say nothing, do not agree, or name several without a number.
    """
    patterns, said, unnumbered = NounPatterns.of(noun), set[int](), False
    many = plural(noun)
    captions = [text for text in captions if noun in text or many in text]
    for caption in captions:
        numbered = patterns.numbered.findall(caption)
        said |= {NUMBERS[word] for word in numbered}
        if many != noun and not numbered and patterns.many.search(caption):
            unnumbered = True
    if len(said) == 1:
        return said.pop()
    if said or unnumbered or many == noun or not captions:
        return None
    # Once in each of two captions, or in the only one.
    found = [len(patterns.single.findall(caption)) for caption in captions]
    enough = sum(number == 1 for number in found) >= min(2, len(captions))
    alone = not any(_OTHERS.search(caption) for caption in captions)
    return 1 if enough and max(found) == 1 and alone else None


def count_people(captions: Sequence[str], *, labelled: bool) -> int | None:
    """Return how many people the captions of one picture say that there are.

    Args:
        captions: In lower case.
        labelled: Whether a person is labelled in the picture.

    Returns:
        The number; None where captions say nothing or do not agree.
    """
    numbers = {number for noun in PEOPLE if (number := count_mentioned(captions, noun))}
    words = {word for caption in captions for word in re.findall(r"[a-z]+", caption)}
    if numbers == {1}:
        kinds = words & {*PEOPLE, *OTHER_PEOPLE}
        alone = labelled and len(captions) > 1 and len(kinds) == 1 and not words & SEVERAL_PEOPLE
        return 1 if alone else None
    return numbers.pop() if len(numbers) == 1 else None


def colour_mentioned(captions: Sequence[str], noun: str) -> str | None:
    """Return the one colour that captions give a thing, which they name in the singular alone."""
    captions = [caption for caption in captions if noun in caption]
    patterns = NounPatterns.of(noun)
    found = {colour for caption in captions for colour in patterns.coloured.findall(caption)}
    unclear = any(patterns.mixed.search(c) or patterns.many.search(c) for c in captions)
    return found.pop() if len(found) == 1 and not unclear else None


def questions_of(
    record: Record, companions: Mapping[str, Sequence[str]]
) -> Iterator[CaptionQuestion]:
    """Yield all questions that captions and labels of a picture answer.

    Args:
        record: The picture.
        companions: The classes that are most often in pictures with a class.
    """
    captions = [text.lower() for text in record.captions.get("en", ())]
    labels = set(record.labels)
    generator = random.Random(str(record.image))

    def ask(kind: str, templates: Sequence[str], noun: str, answer: str) -> CaptionQuestion:
        text = generator.choice(templates).format(noun)
        return CaptionQuestion(
            str(record.image), kind, re.sub(r"\ba (?=[aeiou])", "an ", text), answer
        )

    def count(noun: str, number: int) -> CaptionQuestion:
        return ask(f"count {number}", COUNT, plural(noun), str(number))

    people = count_people(captions, labelled="person" in labels)
    if people:
        yield count("person", people)
    for names in label_names("en", "coco"):
        if labels.isdisjoint(names) or names[0] in UNCOUNTED or names[0] == "person":
            continue
        for noun in names:
            number = count_mentioned(captions, noun)
            if number and (number > 1 or names[0] in CONSPICUOUS):
                yield count(noun, number)
                break
    for noun in COLOURED:
        if captions and (colour := colour_mentioned(captions, noun)):
            yield ask("color", COLOUR, noun, colour)
    if not labels:
        return
    likely = [one for label in sorted(labels) for one in companions[label]]
    absent = sorted({one for one in likely if one not in labels and one not in UNCOUNTED})
    # Captions may name what nobody labelled.
    text = ". ".join(captions)
    absent = [one for one in absent if not any(word in text for word in _words_for(one))]
    present = sorted(labels - UNCOUNTED - {"person"})
    if absent:
        yield count(generator.choice(absent), 0)
        yield ask("presence", PRESENCE, generator.choice(absent), "no")
    if present:
        yield ask("presence", PRESENCE, generator.choice(present), "yes")
    for kind, templates, found in (
        ("animal", ANIMAL, [one for one in ANIMALS if one in labels]),
        ("sport", SPORT, sorted(_sports(labels, text))),
        ("room", ROOM, [one for one in ROOMS if re.search(rf"\b{one}{_NO_COMPOUND}", text)]),
    ):
        if len(found) == 1:
            yield ask(kind, templates, "", found[0])


@cache
def _words_for(label: str) -> set[str]:
    """Return all words that name a class, in the singular and the plural."""
    names = next((names for names in label_names("en", "coco") if label in names), (label,))
    own = {word for name in names for word in (name, plural(name))}
    return own | ({*PEOPLE, *OTHER_PEOPLE, *SEVERAL_PEOPLE} if label == "person" else set())


def _sports(labels: set[str], text: str) -> set[str]:
    """Return the sports whose things are labelled and which captions mention."""
    sports = {SPORTS[label] for label in labels if label in SPORTS}
    return {sport for sport in sports if re.search(rf"\b{MENTIONS.get(sport, sport)}", text)}


def find_companions(records: Iterable[Record], count: int = 8) -> dict[str, list[str]]:
    """Return the classes that are most often in pictures with a class, by class."""
    together: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        for label in record.labels:
            together[label].update(other for other in record.labels if other != label)
    return {
        label: [one for one, _ in found.most_common(count)] for label, found in together.items()
    }


def make_questions(records: Sequence[Record]) -> list[CaptionQuestion]:
    """Return questions about pictures, at most so many of a kind, in random order."""
    companions = defaultdict(list, find_companions(records))
    generator = random.Random(0)
    found = list(chain.from_iterable(questions_of(record, companions) for record in records))
    generator.shuffle(found)
    taken: Counter[str] = Counter()
    chosen = []
    for one in found:
        # "yes" and "no" are asked as often.
        kind = f"{one.kind} {one.answer}" if one.kind == "presence" else one.kind
        limit = LIMITS.get(one.kind, len(found))
        if taken[kind] < (limit // 2 if one.kind == "presence" else limit):
            taken[kind] += 1
            chosen.append(one)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("manifest", type=Path, help="pictures with captions and labels")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    chosen = make_questions(list(read_manifest(options.manifest)))
    with atomic_write(options.out) as file:
        for one in chosen:
            line = {
                "image": one.image, "question": one.question, "answers": [one.answer],
                "answer_type": one.kind.partition(" ")[0], "language": "en",
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
    for kind, number in sorted(Counter(one.kind for one in chosen).items()):
        print(f"{kind}: {number:,}")


if __name__ == "__main__":
    main()

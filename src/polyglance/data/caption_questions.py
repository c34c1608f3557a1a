"""Questions that captions answer: how many, what colour, is there one, what is somebody doing.

People asked few questions of few pictures; captions, of which there are more, hold answers to
many plain ones. Nothing is parsed: patterns of English around nouns, and a noun is what
captions count ("two dogs"). A question whose answer other captions of the picture deny is
left out. What is asked and answered so is to practise on, before people's own questions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from polyglance.records import Question, Record

ENGLISH = "en"
TIMES = 10
"""People who would give the answer: as many as VQA v2 asks."""

_COUNTS = "two three four five six seven eight nine ten"
_COLOURS = "red blue green yellow orange purple pink brown black white gray tan silver gold"
_PEOPLE = "man woman boy girl child person kid adult player guy lady baby toddler couple"
_ANIMALS = "dog cat horse cow sheep elephant zebra giraffe bear bird duck goat"
_VAGUE = "wearing getting doing being looking having making clothing building evening"

NUMBERS = {word: str(number) for number, word in enumerate(_COUNTS.split(), start=2)}
COLOURS, ANIMALS = frozenset(_COLOURS.split()), frozenset(_ANIMALS.split())
PEOPLE = frozenset(_PEOPLE.split())
"""Who is one of these may be called by another: none is denied where one is seen."""
IRREGULAR = {"man": "men", "woman": "women", "child": "children", "person": "people"}
BETWEEN = 2
"""Words that may stand between a number or an article and its noun."""

_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_NO_DEEDS = frozenset(_VAGUE.split())
_NO_NOUNS = frozenset(["others", "times", "stands", "pictures", "photos"])


@dataclass(frozen=True)
class Nouns:
    """Things that captions count, by their plural and back."""

    plural: Mapping[str, str]

    @classmethod
    def counted(cls, captions: Iterable[Sequence[str]], *, least: int = 3) -> Nouns:
        """Those that come after a number at least so often."""
        found: Counter[str] = Counter()
        for words in captions:
            for place, word in enumerate(words):
                if word in NUMBERS:
                    found.update(words[place + 1 : place + 2 + BETWEEN])
        seen = {word for words in captions for word in words}
        regular = {
            singular: word
            for word, times in found.items()
            if times >= least and re.search("..[^s]s$", word) and word not in _NO_NOUNS
            for singular in _singulars(word)
            if singular in seen
        }
        kept = {one: many for one, many in IRREGULAR.items() if found[many] >= least}
        return cls(regular | kept)

    @property
    def singular(self) -> dict[str, str]:
        """From the plural."""
        return {many: one for one, many in self.plural.items()}


@dataclass(frozen=True)
class Asked:
    """A question with its answer, and what kind that is of."""

    text: str
    answer: str
    kind: str


def ask_captions(
    records: Iterable[Record], *, most: int = 4, seed: int = 0, nouns: Nouns | None = None
) -> Iterator[Record]:
    """Pictures with questions that their English captions answer, ``most`` of each kind at most.

    On the whole at most half of those for yes and no are to be answered by no. A picture of
    which nothing can be asked is left out.
    """
    described = [record for record in records if record.captions.get(ENGLISH)]
    captions = [[_words(text) for text in record.captions[ENGLISH]] for record in described]
    nouns = nouns or Nouns.counted([words for some in captions for words in some])
    things = [_things(some, nouns) for some in captions]
    deeds = [{deed for words in some for _, deed in _deeds(words)} for some in captions]
    known = sorted(Counter(thing for some in things for thing in some).elements())
    done = sorted(Counter(deed for some in deeds for deed in some).elements())
    generator = np.random.default_rng(seed)
    for record, some, seen, doing in zip(described, captions, things, deeds, strict=True):
        asked = _plain(some, nouns)
        asked += _denied(asked, seen, doing, known, done, generator)
        unique = list(dict.fromkeys(asked))
        kept: Counter[str] = Counter()
        questions = []
        for number in generator.permutation(len(unique)).tolist():
            one = unique[number]
            kept[one.kind] += 1
            if kept[one.kind] <= most:
                questions.append(_question(one))
        if questions:
            yield replace(record, captions={}, questions=tuple(questions))


def _plain(captions: Sequence[Sequence[str]], nouns: Nouns) -> list[Asked]:
    """What captions say, asked for; where they contradict each other, nothing."""
    told: dict[tuple[str, str], Counter[str]] = {}

    def tell(text: str, answer: str, kind: str) -> None:
        told.setdefault((text, kind), Counter())[answer] += 1

    singular = nouns.singular
    mentioned = {word for words in captions for word in words}
    for words in captions:
        for place, word in enumerate(words):
            after = words[place + 1 : place + 2 + BETWEEN]
            if word in NUMBERS:
                if many := next((w for w in after if w in singular), None):
                    tell(f"How many {many} are there?", NUMBERS[word], "number")
            elif word in ("a", "an", "one"):
                one = next((w for w in after if w in nouns.plural), None)
                if one and nouns.plural[one] not in mentioned:
                    tell(f"How many {nouns.plural[one]} are there?", "1", "number")
            elif word in COLOURS and after:
                if after[0] in nouns.plural:
                    tell(f"What color is the {after[0]}?", word, "other")
                elif after[0] in singular:
                    tell(f"What color are the {after[0]}?", word, "other")
        for doer, deed in _deeds(words):
            tell(f"What is the {doer} doing?", deed, "other")
            tell(f"Is the {doer} {deed}?", "yes", "yes/no")
    for thing in _things(captions, nouns):
        tell(f"Is there {_a(thing)} in the picture?", "yes", "yes/no")
        if thing in ANIMALS:
            tell("What animal is this?", thing, "other")
    return [
        Asked(text, answer, kind)
        for (text, kind), answers in told.items()
        for answer, times in answers.items()
        # That there is one alone is said by nobody who says "a dog": two must say so.
        if len(answers) == 1 and (answer != "1" or times > 1)
    ]


def _denied(
    asked: Sequence[Asked],
    seen: set[str],
    doing: set[str],
    known: Sequence[str],
    done: Sequence[str],
    generator: np.random.Generator,
) -> list[Asked]:
    """As many questions to be answered by no: of things and deeds of other pictures."""
    found = []
    for one in asked:
        if one.answer != "yes":
            continue
        if one.text.startswith("Is the "):
            other = done[int(generator.integers(len(done)))]
            if other not in doing:
                doer = one.text.split()[2]
                found.append(Asked(f"Is the {doer} {other}?", "no", "yes/no"))
        else:
            other = known[int(generator.integers(len(known)))]
            if other not in seen and not (other in PEOPLE and seen & PEOPLE):
                found.append(Asked(f"Is there {_a(other)} in the picture?", "no", "yes/no"))
    return found


def _a(thing: str) -> str:
    return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"


def _things(captions: Sequence[Sequence[str]], nouns: Nouns) -> set[str]:
    """The nouns of captions, in the singular."""
    singular = nouns.singular
    return {
        singular.get(word, word)
        for words in captions
        for word in words
        if word in singular or word in nouns.plural
    }


def _deeds(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Who is doing what: "a man is riding", "a man riding"."""
    for place, word in enumerate(words[:-1]):
        after = words[place + 1]
        if after == "is" and place + 2 < len(words):
            after = words[place + 2]
        if word in PEOPLE | ANIMALS and after.endswith("ing") and after not in _NO_DEEDS:
            yield word, after


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _singulars(plural: str) -> list[str]:
    """What a regular plural may be of; only what captions have is kept."""
    if plural.endswith("ies"):
        return [plural[:-3] + "y"]
    if plural.endswith(("ches", "shes", "sses", "xes")):
        return [plural[:-2]]
    return [plural[:-1]]


def _question(asked: Asked) -> Question:
    return Question(asked.text, ENGLISH, (asked.answer,) * TIMES, asked.kind)

"""The hard set is hard: oracles that ignore one attribute fail on it.

Each oracle understands captions perfectly (they are read back into their
meaning) and sees pictures perfectly, except for what it is blind to. What it
cannot tell apart it guesses, so it finds a caption's picture with probability
one over the number of pictures that look right to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

import pytest

from polyglance.data.toy import LANGUAGES, Event, Fact, Picture, ToyDataset, parse_caption
from polyglance.errors import PolyglanceError

View = Callable[[Fact], Hashable]


def full(fact: Fact) -> Hashable:
    return fact


def colour_blind(fact: Fact) -> Hashable:
    return fact.figure.shape, fact.relation, fact.ground.shape


def shape_blind(fact: Fact) -> Hashable:
    return fact.figure.colour, fact.relation, fact.ground.colour


def order_blind(fact: Fact) -> Hashable:
    """Knows which colour goes with which shape and the relation, not who stands where."""
    return frozenset((fact.figure, fact.ground)), fact.relation


def relation_blind(fact: Fact) -> Hashable:
    return frozenset((fact.figure, fact.ground))


def bag_of_words(fact: Fact) -> Hashable:
    things = (fact.figure, fact.ground)
    return (
        frozenset(t.colour for t in things),
        tuple(sorted(t.shape for t in things)),
        fact.relation,
    )


BLIND = {
    "colour": colour_blind,
    "shape": shape_blind,
    "order": order_blind,
    "relation": relation_blind,
    "bag of words": bag_of_words,
}


def recall_at_1(pictures: list[Picture], captions: list[Fact], view: View) -> float:
    """Expected recall of picture i from caption i, guessing among those that look right."""
    counts = Counter(view(picture.scene.fact.without_sizes()) for picture in pictures)
    hits = 0.0
    for picture, meaning in zip(pictures, captions, strict=True):
        if view(meaning.canonical()) == view(picture.scene.fact.without_sizes()):
            hits += 1 / counts[view(meaning.canonical())]
    return hits / len(pictures)


@pytest.fixture(scope="module")
def hard() -> list[tuple[Picture, ...]]:
    return ToyDataset(seed=9).hard_set(20)


def caption_facts(pictures: list[Picture], language: str) -> list[Fact]:
    facts = []
    for picture in pictures:
        (meaning,) = parse_caption(language, picture.captions[language][1].text)
        assert isinstance(meaning, Fact)
        facts.append(meaning)
    return facts


@pytest.mark.parametrize("language", LANGUAGES)
def test_only_an_oracle_with_all_attributes_succeeds(
    hard: list[tuple[Picture, ...]], language: str
) -> None:
    pictures = [picture for group in hard for picture in group]
    captions = caption_facts(pictures, language)
    chance = 1 / len(pictures)
    assert chance == 1 / 160
    assert recall_at_1(pictures, captions, full) == 1.0
    for name, view in BLIND.items():
        assert chance < recall_at_1(pictures, captions, view) <= 0.51, name
    assert recall_at_1(pictures, captions, bag_of_words) == pytest.approx(0.25)


def test_the_ordinary_test_set_is_hard_for_partial_oracles_too() -> None:
    pictures = list(ToyDataset(seed=9).pictures(400, "test"))
    captions = [p.scene.fact.without_sizes() for p in pictures]
    assert recall_at_1(pictures, captions, full) == 1.0
    assert recall_at_1(pictures, captions, colour_blind) < 0.5
    assert recall_at_1(pictures, captions, shape_blind) < 0.6
    assert recall_at_1(pictures, captions, bag_of_words) < 0.6


def test_a_group_uses_one_set_of_words_in_all_bindings(hard: list[tuple[Picture, ...]]) -> None:
    for group in hard:
        facts = [picture.scene.fact for picture in group]
        assert len({fact.without_sizes() for fact in facts}) == len(group) == 8
        assert len({fact.relation for fact in facts}) == 2
        assert len({bag_of_words(fact.without_sizes())[:2] for fact in facts}) == 1
        # Sizes tell nothing: they are the same throughout, but for what is inside.
        assert len({(f.relation, f.figure.size, f.ground.size) for f in facts}) == 2
        for picture in group:
            for captions in picture.captions.values():
                for caption in captions:
                    meaning = caption.meaning
                    assert isinstance(meaning, Fact)
                    assert None not in (meaning.figure.colour, meaning.ground.colour)
                    assert meaning.figure.size is None
                    assert meaning.ground.size is None


def test_captions_of_a_group_differ_by_swaps(hard: list[tuple[Picture, ...]]) -> None:
    first, second, third, fourth = (p.scene.fact.without_sizes() for p in hard[0][:4])
    assert second == first.with_colours_swapped()
    assert third == first.with_shapes_swapped()
    assert fourth == first.with_roles_swapped()


def test_facts_are_unique_in_the_set_and_belong_to_the_split() -> None:
    dataset = ToyDataset(seed=9)
    for split in ("train", "test"):
        hard = dataset.hard_set(84, split=split)
        facts = [picture.scene.fact.without_sizes() for group in hard for picture in group]
        assert len(set(facts)) == len(facts)
        assert set(facts) <= set(dataset.splits.facts[split])


def test_too_many_groups_are_an_error() -> None:
    dataset = ToyDataset(seed=9)
    available = len(dataset.hard_set())
    with pytest.raises(PolyglanceError, match=f"has {available} groups"):
        dataset.hard_set(available + 1)
    with pytest.raises(PolyglanceError, match="not -1"):
        dataset.hard_clips(-1)


def test_fewer_groups_are_the_first_of_more() -> None:
    dataset = ToyDataset(seed=9)
    assert dataset.hard_set(2) == dataset.hard_set(3)[:2]
    assert dataset.hard_clips(2) == dataset.hard_clips(3)[:2]


def test_a_dataset_of_one_relation_has_groups_of_four() -> None:
    groups = ToyDataset(seed=9, relations=["above"]).hard_set(5)
    assert {len(group) for group in groups} == {4}


def test_hard_clips_need_the_mover_its_colour_its_shape_and_the_direction() -> None:
    clips = [clip for group in ToyDataset(seed=9).hard_clips(12) for clip in group]
    views: dict[str, Callable[[Event], Hashable]] = {
        "full": lambda e: (e.mover.colour, e.mover.shape, e.direction, *_thing(e)),
        "colour": lambda e: (e.mover.shape, e.direction, e.still and e.still.shape),
        "shape": lambda e: (e.mover.colour, e.direction, e.still and e.still.colour),
        "order": lambda e: (
            frozenset(((e.mover.colour, e.mover.shape), _thing(e))),
            e.direction,
        ),
        "direction": lambda e: (e.mover.colour, e.mover.shape, *_thing(e)),
    }
    for name, view in views.items():
        counts = Counter(view(clip.film.event) for clip in clips)
        hits = 0.0
        for clip in clips:
            (meaning,) = parse_caption("de", clip.captions["de"][1].text)
            assert isinstance(meaning, Event)
            hits += (view(meaning) == view(clip.film.event)) / counts[view(meaning)]
        score = hits / len(clips)
        assert score == 1.0 if name == "full" else score <= 0.51, name


def _thing(event: Event) -> tuple[object, object]:
    assert event.still is not None
    return event.still.colour, event.still.shape

"""A caption is unambiguous: parsing it returns its meaning, in every language."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from polyglance.data.toy import LANGUAGES, ToyDataset, describe, narrate, parse_caption
from polyglance.data.toy.grammar import PLOTS, STYLES
from polyglance.data.toy.semantics import (
    COLOURS,
    DIRECTIONS,
    PRIMARY_RELATIONS,
    RELATIONS,
    SHAPES,
    SIZES,
    SPEEDS,
    Event,
    Fact,
    Thing,
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_distinct_facts_have_distinct_captions(language: str) -> None:
    things = [Thing(shape, colour) for shape, colour in product(SHAPES, COLOURS)]
    for style in ("phrase", "definite"):
        texts = {
            describe(language, Fact(figure, relation, ground), style).text
            for figure, relation, ground in product(things, PRIMARY_RELATIONS, things)
            if figure.colour != ground.colour
        }
        assert len(texts) == 8 * 7 * 6 * 6 * 4


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_fact_has_exactly_one_parse(language: str) -> None:
    rng = np.random.default_rng(5)
    for turn in range(60):
        shapes = [SHAPES[i] for i in rng.integers(0, 6, 2)]
        colours = [(*COLOURS, None)[i] for i in rng.permutation(9)[:2]]
        sizes = [(*SIZES, None)[i] for i in rng.integers(0, 3, 2)]
        figure, ground = (
            Thing(shape, colour, size)
            for shape, colour, size in zip(shapes, colours, sizes, strict=True)
        )
        fact = Fact(figure, RELATIONS[turn % 7], ground)
        assert parse_caption(language, describe(language, fact, STYLES[turn % 5]).text) == {fact}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_event_has_exactly_one_parse(language: str) -> None:
    rng = np.random.default_rng(6)
    for turn in range(30):
        mover, still = (
            Thing(SHAPES[i], COLOURS[j])
            for i, j in zip(rng.integers(0, 6, 2), rng.permutation(8)[:2], strict=True)
        )
        plot = PLOTS[turn % 3]
        speed = (*SPEEDS, None)[turn % 5 % 3]
        event = Event(mover, DIRECTIONS[turn % 4], speed, None if plot == "mover_only" else still)
        assert parse_caption(language, narrate(language, event, plot).text) == {event}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_caption_of_the_dataset_is_true_of_its_picture_or_clip(language: str) -> None:
    dataset = ToyDataset(seed=8, languages=[language], captions_per_language=4, max_distractors=2)
    for picture in dataset.pictures(15):
        for caption in picture.captions[language]:
            assert parse_caption(language, caption.text) == {caption.meaning}
            assert isinstance(caption.meaning, Fact)
            assert picture.scene.fact.implies(caption.meaning)
    for clip in dataset.clips(10):
        for caption in clip.captions[language]:
            assert parse_caption(language, caption.text) == {caption.meaning}
            assert isinstance(caption.meaning, Event)
            assert clip.film.event.implies(caption.meaning)


def test_a_sentence_outside_the_grammar_has_no_parse() -> None:
    assert parse_caption("en", "A red circle to the left of a blue squares") == set()
    assert parse_caption("de", "Ein rotes Kreis links von einem blauen Quadrat") == set()
    assert parse_caption("zh", "") == set()


def test_implication_compares_arrangements_not_wordings() -> None:
    fact = Fact(Thing("circle", "red", "small"), "left_of", Thing("square", "blue", "large"))
    assert fact.implies(Fact(Thing("square"), "right_of", Thing("circle", "red")))
    assert not fact.implies(Fact(Thing("square"), "left_of", Thing("circle", "red")))
    assert not fact.implies(Fact(Thing("circle", "blue"), "left_of", Thing("square")))
    assert not fact.implies(Fact(Thing("circle", "red", "large"), "left_of", Thing("square")))
    assert not fact.implies(Fact(Thing("circle"), "above", Thing("square")))

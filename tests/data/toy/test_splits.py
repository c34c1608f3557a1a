"""Splits share no composition, but training shows every part of the held-out ones."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from polyglance.data.toy import Thing, ToyDataset
from polyglance.data.toy.semantics import COLOURS, PRIMARY_RELATIONS, SHAPES
from polyglance.data.toy.splits import SPLITS, HeldOut

Binding = tuple[str | None, str]


def scene_things(dataset: ToyDataset, split: str) -> list[list[Thing]]:
    """The things in each picture and clip of a split, bystanders included."""
    pictures = [[p.thing for p in picture.scene.things] for picture in dataset.pictures(400, split)]
    clips = [[c.film.mover.thing, c.film.still.thing] for c in dataset.clips(200, split)]
    return pictures + clips


def combination(first: Thing, second: Thing) -> object:
    return (
        frozenset((first.colour, second.colour)),
        tuple(sorted((first.shape, second.shape))),
    )


def test_no_combination_is_in_two_splits() -> None:
    dataset = ToyDataset(seed=5)
    by_split = {
        split: {combination(*things) for things in scene_things(dataset, split)} for split in SPLITS
    }
    for one, other in combinations(SPLITS, 2):
        assert not by_split[one] & by_split[other]


def test_distractors_never_form_a_held_out_combination_in_training() -> None:
    dataset = ToyDataset(seed=5, max_distractors=3)
    trained = {
        combination(a, b)
        for things in scene_things(dataset, "train")
        for a, b in combinations(things, 2)
    }
    for split in ("val", "test"):
        held_out = {combination(*things[-2:]) for things in scene_things(dataset, split)}
        assert not trained & held_out


def test_training_shows_every_colour_of_every_shape() -> None:
    dataset = ToyDataset(seed=5)
    trained = {
        (t.colour, t.shape) for f in dataset.splits.facts["train"] for t in (f.figure, f.ground)
    }
    assert trained == set(product(COLOURS, SHAPES))


def test_held_out_bindings_are_in_one_split_only() -> None:
    dataset = ToyDataset(seed=5, held_out="bindings", max_distractors=2)
    scenes = {split: scene_things(dataset, split) for split in SPLITS}
    bindings: dict[str, set[Binding]] = {
        split: {(t.colour, t.shape) for things in scenes[split] for t in things[-2:]}
        for split in SPLITS
    }
    bindings["train"] |= {(t.colour, t.shape) for things in scenes["train"] for t in things}
    held = {split: bindings[split] - bindings["train"] for split in ("val", "test")}
    assert len(held["val"]) == len(held["test"]) == 5
    assert not held["val"] & held["test"]
    assert {colour for colour, _ in bindings["train"]} == set(COLOURS)
    assert {shape for _, shape in bindings["train"]} == set(SHAPES)
    # Each held-out scene has a new binding in it.
    for split in ("val", "test"):
        for things in scenes[split]:
            assert {(t.colour, t.shape) for t in things[-2:]} & held[split]


def test_with_nothing_held_out_splits_share_facts_but_no_pictures() -> None:
    dataset = ToyDataset(seed=5, held_out="nothing")
    assert dataset.splits.facts["train"] == dataset.splits.facts["test"]
    train, test = (next(dataset.pictures(1, split)) for split in ("train", "test"))
    assert train.pixels().tobytes() != test.pixels().tobytes()


def test_sizes_of_the_default_splits() -> None:
    facts = ToyDataset(seed=5).splits.facts
    # 8 x 7 colours, 6 x 6 shapes, 4 relations.
    assert sum(len(facts[split]) for split in SPLITS) == 8064
    assert len(facts["val"]) == len(facts["test"])
    assert 0.09 < len(facts["test"]) / 8064 < 0.11


def test_no_fact_is_repeated_before_all_have_occurred() -> None:
    dataset = ToyDataset(seed=5, colours=COLOURS[:3], shapes=SHAPES[:3], relations=["above"])
    facts = dataset.splits.facts["test"]
    drawn = [p.scene.fact.without_sizes() for p in dataset.pictures(2 * len(facts), "test")]
    first, second = drawn[: len(facts)], drawn[len(facts) :]
    assert len(set(first)) == len(set(second)) == len(facts)
    assert set(first) == set(facts)
    assert first != second


@pytest.mark.parametrize("held_out", ["combinations", "bindings", "nothing"])
def test_the_smallest_dataset_still_has_three_splits(held_out: HeldOut) -> None:
    dataset = ToyDataset(
        seed=0, colours=COLOURS[:3], shapes=SHAPES[:3], relations=["left_of"], held_out=held_out
    )
    assert all(next(dataset.pictures(1, split)) for split in SPLITS)
    relations = {p.scene.fact.relation for p in dataset.pictures(20)}
    assert relations == {"left_of"} < set(PRIMARY_RELATIONS)

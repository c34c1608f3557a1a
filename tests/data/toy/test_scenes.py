"""Scenes show their facts, and pixels are where the geometry puts them."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from polyglance.data.toy import ToyDataset
from polyglance.data.toy.items import Picture
from polyglance.data.toy.rendering import bounding_box, render
from polyglance.data.toy.scenes import PALETTE, PlacedThing, Scene, compose_scene, hidden_fraction
from polyglance.data.toy.semantics import COLOURS, PRIMARY_RELATIONS, SHAPES, Fact, Thing
from polyglance.data.toy.shapes import INSCRIBED_DISCS
from polyglance.errors import PolyglanceError


@pytest.fixture(scope="module")
def pictures() -> list[Picture]:
    return list(ToyDataset(seed=11, max_distractors=2).pictures(160))


def drawn_pixels(scene: Scene, placed: PlacedThing, size: int) -> np.ndarray:
    """Where a thing changes the picture when it is drawn alone."""
    alone, empty = replace(scene, things=(placed,)), replace(scene, things=())
    difference = render(alone, size).astype(int) - render(empty, size)
    return np.abs(difference).max(axis=2) > 8


def test_every_relation_holds_in_the_pixels(pictures: list[Picture]) -> None:
    relations = set()
    for picture in pictures:
        fact, (ground, figure) = picture.scene.fact, picture.scene.things[-2:]
        assert (figure.thing, ground.thing) == (fact.figure, fact.ground)
        a, b = (drawn_pixels(picture.scene, placed, 128) for placed in (figure, ground))
        (a_rows, a_columns), (b_rows, b_columns) = np.nonzero(a), np.nonzero(b)
        match fact.relation:
            case "left_of":
                assert a_columns.max() < b_columns.min()
                assert a_rows.max() > b_rows.min()
                assert b_rows.max() > a_rows.min()
            case "above":
                assert a_rows.max() < b_rows.min()
                assert a_columns.max() > b_columns.min()
                assert b_columns.max() > a_columns.min()
            case "in_front_of":
                both = (a & b).sum()
                assert both >= 12
                assert both / b.sum() < 0.45
            case "inside":
                assert not (a & ~b).any()
        relations.add(fact.relation)
    assert relations == set(PRIMARY_RELATIONS)


def test_the_thing_in_front_occludes_the_one_behind(pictures: list[Picture]) -> None:
    for picture in pictures:
        if picture.scene.fact.relation in ("in_front_of", "inside"):
            ground, figure = picture.scene.things[-2:]
            a, b = (drawn_pixels(picture.scene, p, 128) for p in (figure, ground))
            shown = picture.pixels(128)[a & b]
            to_figure = np.abs(shown - np.array(figure.rgb)).sum(1)
            to_ground = np.abs(shown - np.array(ground.rgb)).sum(1)
            assert (to_figure < to_ground).mean() > 0.8


def test_regions_are_tight_around_the_pixels(pictures: list[Picture]) -> None:
    size = 256
    for picture in pictures[:60]:
        for region, placed in zip(picture.regions(), picture.scene.things, strict=True):
            rows, columns = np.nonzero(drawn_pixels(picture.scene, placed, size))
            found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert np.abs(np.array(region.box) * size - found).max() <= 1.5
            assert min(region.box) >= 0
            assert max(region.box) <= 1


def test_pixels_have_the_colour_of_their_thing(pictures: list[Picture]) -> None:
    names, values = list(PALETTE), np.array(list(PALETTE.values()))
    for picture in pictures:
        # The last thing drawn is never hidden.
        placed = picture.scene.things[-1]
        height = placed.y + INSCRIBED_DISCS[placed.thing.shape][0] * placed.radius
        pixel = picture.pixels(64)[int(height * 64), int(placed.x * 64)].astype(int)
        assert names[np.abs(values - pixel).sum(1).argmin()] == placed.thing.colour


def test_every_colour_contrasts_with_every_background() -> None:
    rng = np.random.default_rng(0)
    for colour in COLOURS:
        for _ in range(20):
            fact = Fact(Thing("circle", colour, "large"), "left_of", Thing("heart", "red", "small"))
            scene = compose_scene(fact, rng)
            figure = scene.things[-1]
            canvas = render(replace(scene, things=()), 64).reshape(-1, 3).astype(int)
            assert np.abs(canvas - np.array(figure.rgb)).max(axis=1).min() > 40


def test_large_things_are_larger_than_small_ones(pictures: list[Picture]) -> None:
    for shape in SHAPES:
        widths: dict[str, list[float]] = {"small": [], "large": []}
        for picture in pictures:
            for placed in picture.scene.things:
                if placed.thing.shape == shape and placed.thing.size:
                    left, _, right, _ = bounding_box(placed)
                    widths[placed.thing.size].append(right - left)
        assert max(widths["small"]) < min(widths["large"])


def test_two_pictures_of_one_fact_share_few_pixels() -> None:
    fact = Fact(Thing("star", "red", "large"), "above", Thing("circle", "blue", "large"))
    rng = np.random.default_rng(0)
    one, other = (render(compose_scene(fact, rng)).astype(int) for _ in range(2))
    assert (np.abs(one - other).max(axis=2) > 3).mean() > 0.5


def test_distractors_stand_apart_and_have_colours_of_their_own(pictures: list[Picture]) -> None:
    numbers = set()
    for picture in pictures:
        things = picture.scene.things
        numbers.add(len(things))
        assert len({placed.thing.colour for placed in things}) == len(things)
        for placed in things[:-2]:
            for other in things:
                if other is not placed:
                    assert hidden_fraction(placed, other) == 0
    assert numbers == {2, 3, 4}


def test_any_size_shows_the_same_scene() -> None:
    picture = next(ToyDataset(seed=2).pictures(1))
    small, large = picture.pixels(32), picture.pixels(320)
    assert small.shape == (32, 32, 3)
    assert large.shape == (320, 320, 3)
    averaged = large.reshape(32, 10, 32, 10, 3).mean(axis=(1, 3))
    assert np.abs(averaged - small).mean() < 4
    with pytest.raises(PolyglanceError, match="at least 8 pixels"):
        picture.pixels(4)


def test_hundreds_of_pictures_a_second() -> None:
    dataset = ToyDataset(seed=1)
    dataset.splits.facts  # noqa: B018 (computed once per dataset)
    start = time.process_time()
    for picture in dataset.pictures(200):
        picture.pixels(64)
    assert 200 / (time.process_time() - start) > 300

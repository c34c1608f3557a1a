from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.config import load
from polyglance.errors import PolyglanceError
from polyglance.recipes import find_recipe, recipe_names
from polyglance.recipes.photos import PhotoRecipe


def test_every_recipe_that_ships_can_be_read() -> None:
    assert recipe_names()
    for name in recipe_names():
        recipe = load(PhotoRecipe, find_recipe(name))
        assert recipe.pictures
        assert recipe.loop.steps > 0


def test_a_recipe_by_path_and_a_name_that_is_nearly_right(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("loop: {steps: 3}\n", encoding="utf-8")
    assert load(PhotoRecipe, find_recipe(own)).loop.steps == 3
    with pytest.raises(PolyglanceError, match="did you mean 'photos-flickr8k-coco'"):
        find_recipe("photos-flickr8k-cocoa")

"""Run folders: the recipe that a run is resumed with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.recipes.mmp.config import MMPRecipe
from polyglance.recipes.run_folder import require_files, save_recipe, write_report
from polyglance.training.loop import LoopConfig


def test_run_resumes_only_with_its_own_recipe(tmp_path: Path) -> None:
    recipe = MMPRecipe(width=64)
    save_recipe(recipe, "mmp", tmp_path)
    assert open_recipe(tmp_path / "recipe.yaml").settings == recipe
    save_recipe(replace(recipe, width=32), "mmp", tmp_path)  # nothing was trained yet
    (tmp_path / "latest").mkdir()
    longer = replace(recipe, width=32, loop=LoopConfig(steps=9999))
    save_recipe(longer, "mmp", tmp_path)  # the loop checks its own settings
    with pytest.raises(PolyglanceError, match="a run with another recipe"):
        save_recipe(recipe, "mmp", tmp_path)
    assert open_recipe(tmp_path / "recipe.yaml").settings == longer


def test_missing_files_are_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("")
    require_files(tmp_path, "train.jsonl")
    with pytest.raises(DataError) as caught:
        require_files(tmp_path, "train.jsonl", "val.jsonl", "test.jsonl", "val.jsonl")
    missing = f"{tmp_path / 'val.jsonl'}, {tmp_path / 'test.jsonl'}: there is no such file"
    assert str(caught.value).startswith(missing)


def test_arrays_of_a_report_are_written_apart(tmp_path: Path) -> None:
    ranks = np.array([3, 1, 2])
    report = {"test": {"de": {"mR": 4.0, "ranks": {"text_to_image": ranks}}, "en": {"mR": 5.0}}}
    write_report(report, tmp_path / "run")
    assert report == {"test": {"de": {"mR": 4.0}, "en": {"mR": 5.0}}}
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report
    with np.load(tmp_path / "run" / "queries.npz") as queries:
        assert queries["test.de.ranks.text_to_image"].tolist() == [3, 1, 2]

"""Recipes by name, path and kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.cli import main
from polyglance.errors import PolyglanceError
from polyglance.recipes import KINDS, find_recipe, lines, open_recipe, recipe_names
from polyglance.utils.yaml12 import parse


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_ships_says_its_kind_and_can_be_read(name: str) -> None:
    path = find_recipe(name)
    assert parse(path.read_text(encoding="utf-8"), name)["kind"] in KINDS
    recipe = open_recipe(name, ["loop.seed=7"])
    assert recipe.settings.loop.steps > 0
    assert recipe.settings.loop.seed == 7


def test_a_recipe_by_path_and_a_name_that_is_nearly_right(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("kind: features\nloop: {steps: 3}\n", encoding="utf-8")
    recipe = open_recipe(own)
    assert (recipe.kind, recipe.settings.loop.steps) == ("features", 3)
    with pytest.raises(PolyglanceError, match="did you mean 'mmp-vatex'"):
        find_recipe("mmp-vatexx")


def test_a_file_that_says_no_kind_is_of_photos(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("size: 64\n", encoding="utf-8")
    assert open_recipe(own).kind == "photos"
    own.write_text("", encoding="utf-8")
    assert open_recipe(own).kind == "photos"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: fotos\n", r"own\.yaml: there is no kind 'fotos' of recipe, only photos and feat"),
        ("kind: [features]\n", r"there is no kind \['features'\] of recipe"),
        ("- kind\n", r"own\.yaml: expected a mapping"),
        ("kind: features\nwidht: 3\n", r"own\.yaml \(kind features\): widht: .* mean width"),
        ("kind: photos\nvisual_lr_multiplier: 2\n", r"\(kind photos\): visual_lr_multiplier: is not a known"),
        ("kind: features\nobjective: {loss: none}\n", r"objective\.loss: expected the text 'nce'"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_file(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PolyglanceError, match=message) as caught:
        open_recipe(tmp_path / "own.yaml")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolyglanceError, match="not UTF-8 text"):
        open_recipe(tmp_path / "own.yaml")


def test_the_command_ends_with_the_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.yaml").write_text("kind: fotos\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "own.yaml", "--data", ".", "--out", "run"]
    monkeypatch.setattr("sys.argv", ["polyglance", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("polyglance: own.yaml: there is no kind 'fotos'")
    assert len(said.splitlines()) == 1


def test_figures_for_people() -> None:
    figures = {"en": {"text_to_visual": {"R@1": 12.345, "queries": 7}}, "score": 3.0}
    assert [" ".join(line.split()) for line in lines(figures)] == [
        "en.text_to_visual R@1 12.3 queries 7",
        "score 3.0",
    ]

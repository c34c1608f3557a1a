"""Find recipes by name and path, and the system that each is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.cli import main
from polyglance.errors import PolyglanceError
from polyglance.recipes import SYSTEMS, find_recipe, open_recipe, recipe_names, report_lines
from polyglance.utils.yaml12 import parse


@pytest.mark.parametrize("name", recipe_names())
def test_every_included_recipe_names_its_system_and_opens(name: str) -> None:
    path = find_recipe(name)
    assert parse(path.read_text(encoding="utf-8"), name)["system"] in SYSTEMS
    recipe = open_recipe(name, ["loop.seed=7"])
    assert recipe.settings.loop.steps > 0
    assert recipe.settings.loop.seed == 7


def test_recipe_opens_by_path_and_a_misspelt_name_is_corrected(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("system: mmp\nloop: {steps: 3}\n", encoding="utf-8")
    recipe = open_recipe(own)
    assert (recipe.system, recipe.settings.loop.steps) == ("mmp", 3)
    with pytest.raises(PolyglanceError, match="did you mean 'mmp-vatex'"):
        find_recipe("mmp-vatexx")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system: mmmp\n", r"own\.yaml: system must be one of uc2, m3p, mmp, .*, not 'mmmp'"),
        ("system: [mmp]\n", r"system must be one of .*, not \['mmp'\]"),
        ("size: 64\n", r"own\.yaml: system must be one of .*, not None"),
        ("", r"own\.yaml: system must be one of .*, not None"),
        ("- system\n", r"own\.yaml: expected a mapping"),
        ("system: mmp\nwidht: 3\n", r"own\.yaml \(system mmp\): widht: .* mean width"),
        (
            "system: mmp_photos\nvisual_lr_multiplier: 2\n",
            r"\(system mmp_photos\): visual_lr_multiplier: is not a known",
        ),
        ("system: mmp\nobjective: {loss: none}\n", r"objective\.loss: expected the text 'nce'"),
    ],
)
def test_error_is_one_sentence_that_names_the_file(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PolyglanceError, match=message) as caught:
        open_recipe(tmp_path / "own.yaml")
    assert "\n" not in str(caught.value)


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolyglanceError, match="not UTF-8 text"):
        open_recipe(tmp_path / "own.yaml")


def test_command_ends_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.yaml").write_text("system: mmmp\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "own.yaml", "--data", ".", "--out", "run"]
    monkeypatch.setattr("sys.argv", ["polyglance", *arguments])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("polyglance: own.yaml: system must be one of")
    assert len(error.splitlines()) == 1


def test_report_is_formatted_for_people() -> None:
    report = {"en": {"text_to_visual": {"R@1": 12.345, "queries": 7}}, "score": 3.0}
    assert [" ".join(line.split()) for line in report_lines(report)] == [
        "en.text_to_visual R@1 12.3 queries 7",
        "score 3.0",
    ]

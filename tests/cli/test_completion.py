"""What the shell offers after Tab, through the protocol that the installed script speaks."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer.main
from click.shell_completion import CompletionItem
from typer._completion_classes import BashComplete

from polyglance.cli import app
from polyglance.cli.completion import complete_language, complete_library, complete_model

command = cache(typer.main.get_command)


def offers(words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is told for a command line; the last word is incomplete."""
    monkeypatch.setenv("COMP_WORDS", f"polyglance {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    completer = BashComplete(command(app), {}, "polyglance", "_POLYGLANCE_COMPLETE")
    items: list[CompletionItem] = completer.get_completions(*completer.get_completion_args())
    return [item.value for item in items]


def test_commands_languages_models_libraries_recipes_and_formats_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("holiday.polyglance", "notes.txt", ".hidden.polyglance"):
        (tmp_path / name).touch()
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert offers("comp", monkeypatch) == ["compare"]
    assert offers("library ver", monkeypatch) == ["verify"]
    assert {"de", "da"} <= set(offers("search --language d", monkeypatch))
    assert "german" in offers("search --language ger", monkeypatch)
    assert "en,de" in offers("compare --languages en,d", monkeypatch)
    assert "en,en" not in offers("compare --languages en,e", monkeypatch)
    assert offers("search --library ", monkeypatch) == ["holiday.polyglance", "models/"]
    assert offers("index photos --model poly", monkeypatch) == ["polyglance-small"]
    assert offers("compare models/", monkeypatch) == ["models/mine/"]
    assert offers("train uc2-multi", monkeypatch) == ["uc2-multi30k"]
    assert offers("data import multi30k-task1", monkeypatch) == ["multi30k-task1"]


def test_what_cannot_be_listed_is_not_offered(tmp_path: Path) -> None:
    assert complete_library(str(tmp_path / "nowhere" / "x")) == []
    assert complete_library("postgresql://host/") == []
    assert complete_model(str(tmp_path / "nowhere/")) == []
    assert complete_language("zzzz") == []
    (tmp_path / "model").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain2").mkdir()
    (tmp_path / "plain2" / "model.json").touch()
    found = [name for name, _ in complete_model(f"{tmp_path}/p")]
    assert found == [f"{tmp_path}/plain2/", f"{tmp_path}/plain/"]  # models first


def test_the_script_for_the_shell_is_installed(tmp_path: Path) -> None:
    home = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        # Otherwise the shell is found among the processes above this one.
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    install = [Path(sys.executable).parent / "polyglance", "--install-completion", "bash"]
    done = subprocess.run(install, env=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [script] = (tmp_path / ".bash_completions").iterdir()
    assert "_POLYGLANCE_COMPLETE=complete_bash" in script.read_text()
    assert script.name in (tmp_path / ".bashrc").read_text()

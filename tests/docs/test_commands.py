"""Every command in the README and on the pages runs in a test, or says what it needs."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
from PIL import Image
from typer.testing import CliRunner

import polyglance
from helpers.doc_pages import ROOT, Block, all_blocks, polyglance_arguments
from helpers.small_mmp import small_model
from polyglance.cli import app
from polyglance.demo.photographs import FOLDER
from polyglance.encoders import Encoder, load
from polyglance.encoders.model_folder import DEFAULT_MODEL, ModelFolder

RUN_HERE = ("docs/start.md", "README.md", "docs/index.md", "docs/metrics.md", "docs/search.md",
            "docs/ask.md", "docs/own-captions.md", "docs/compare.md", "docs/data-formats.md",
            "docs/add-language.md", "docs/image-towers.md")  # fmt: skip
"""Pages whose commands and Python are run here, in this order, in one folder."""

LONG = ("demo", "serve", "library", "reproduce")
"""Commands of these pages that take long or do not end, which other tests run."""

ELSEWHERE = {
    "demo": "tests/demo/test_show.py",
    "serve": "tests/serve/test_server.py",
    "doctor": "tests/cli/test_doctor.py",
    "search": "tests/cli/test_search.py",
    "index": "tests/cli/test_index.py",
    "compare": "tests/cli/test_compare.py",
    "encode": "tests/cli/test_encode.py",
    "evaluate": "tests/test_cli.py",
    "plan": "tests/recipes/plan/test_plan.py",
    "reproduce": "tests/cli/test_reproduce.py",
    "export": "tests/export/test_smalr.py",
    "explain": "tests/cross_encoders/test_explain.py",
    "ask": "tests/cli/test_reader.py",
    "data toy": "tests/cli/test_reproduce.py",
    "weights tiny": "tests/cli/test_reproduce.py",
    "features regions": "tests/cli/test_reproduce.py",
    "library info": "tests/cli/test_library.py",
    "library problems": "tests/cli/test_library.py",
    "library export": "tests/cli/test_library.py",
    "library verify": "tests/cli/test_library.py",
    "library repair": "tests/cli/test_library.py",
    "library backup": "tests/cli/test_library.py",
    "library restore": "tests/cli/test_library.py",
    "library merge": "tests/cli/test_library.py",
    "library remove": "tests/cli/test_library.py",
    "library trust": "tests/cli/test_library.py",
}
"""Tests that run commands which are neither run here nor marked."""

PYTHON_ELSEWHERE = {
    "CONTRIBUTING.md": "tests/test_contributing.py",
    "docs/integrations.md": "tests/integrations/conftest.py",
    "docs/model-folders.md": "tests/encoders/test_hub_files.py",
}
"""Tests that run the Python of other pages."""

COMMAND = typer.main.get_command(app)
BLOCKS = all_blocks()


def find_command(arguments: list[str]) -> tuple[str, Any, list[str]]:
    """Return a command's name with its group, the command, and the arguments after it."""
    command, names, rest = COMMAND, [], list(arguments)
    while hasattr(command, "commands"):
        names.append(rest.pop(0))
        assert names[-1] in command.commands, f"there is no command {' '.join(names)}"
        command = command.commands[names[-1]]
    return " ".join(names), command, rest


def ours() -> Iterator[tuple[Block, str, list[str]]]:
    for block in BLOCKS:
        for line in block.commands:
            arguments = polyglance_arguments(line)
            if arguments is not None and arguments[:1] != ["--install-completion"]:
                yield block, line, arguments


def test_commands_and_their_options_exist() -> None:
    lines = list(ours())
    assert len(lines) > 100
    for block, line, arguments in lines:
        if "--help" in arguments:
            continue
        _, command, rest = find_command(arguments)
        known = {option for parameter in command.params for option in parameter.opts}
        known |= {option for parameter in command.params for option in parameter.secondary_opts}
        for word in rest:
            if re.match(r"--?[a-zA-Z0]", word):
                assert word.partition("=")[0] in known, f"{block.page}: {line}: {word}"


def test_commands_are_run_by_a_test_or_say_what_they_need() -> None:
    for block, line, arguments in ours():
        name = find_command(arguments)[0]
        if block.is_marked or (block.page in RUN_HERE and arguments[0] not in LONG):
            continue
        assert name in ELSEWHERE, (
            f"{block.page}: no test is named for `{line}`: name one in ELSEWHERE, or give its"
            ' block a title="needs data" or what it needs'
        )
        text = (ROOT / ELSEWHERE[name]).read_text(encoding="utf-8")
        last = name.split()[-1]
        assert f'"{last}"' in text or f"`{last}`" in text or f" {last} " in text, (name, line)


def test_python_is_run_by_a_test_or_says_what_it_needs() -> None:
    pages = {b.page for b in BLOCKS if b.language == "python" and not b.is_marked}
    for page in sorted(pages - {*RUN_HERE}):
        assert page in PYTHON_ELSEWHERE, f"{page}: no test is named for its Python, nor a need"
        test = (ROOT / PYTHON_ELSEWHERE[page]).read_text(encoding="utf-8")
        assert Path(page).name in test, f"{PYTHON_ELSEWHERE[page]} does not name {page}"


def test_other_commands_are_of_known_programs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for block in BLOCKS:
        for line in block.commands:
            if polyglance_arguments(line) is not None or block.is_marked:
                continue
            words = shlex.split(re.sub(r"\$\([^)]*\)", "x", line))
            if words[0] == "pip":
                for named in re.findall(r"\[([\w,-]+)\]", line):
                    assert set(named.split(",")) <= set(extras), f"{block.page}: {line}"
            elif words[0] == "make":
                assert words[1] in targets, f"{block.page}: {line}"
            elif words[0] in ("python", "python3") and words[1] == "-m":
                assert find_spec(words[2]), f"{block.page}: {line}"
            else:
                assert words[0] in ("openssl", "docker", "podman", "eval", "source"), (
                    f"{block.page}: {line}"
                )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with some photographs, which is the user's home too, and one loaded model."""
    source = ModelFolder.open(small_model().export(tmp_path / "small"))
    for place in ("Pictures", "photos", "Pictures/2024", "photos/2024"):
        (tmp_path / place).mkdir()
    for file in ("Pictures/beach.jpg", "photos/beach.jpg", "photos/dog.jpg", "photos/2024/cat.jpg",
                 "Pictures/2024/cat.jpg", "beach.jpg", "kitchen.jpg"):  # fmt: skip
        name = {"dog": "german-shepherd", "cat": "tabby-cat"}.get(Path(file).stem, Path(file).stem)
        with Image.open(FOLDER / f"{name}.webp") as image:
            image.convert("RGB").save(tmp_path / file)
    (tmp_path / "boats").mkdir()
    with Image.open(FOLDER / "boats.webp") as image:
        image.convert("RGB").save(tmp_path / "boats" / "boat1.jpg")
    (tmp_path / "boats" / "boat1.de.txt").write_text("unser Boot im Hafen\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("POLYGLANCE_LIBRARY", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    encoder = load(threads=1)

    def load_once(model: object = None, **options: Any) -> Encoder:
        return encoder if model in (None, DEFAULT_MODEL) else load(str(model), **options)

    for user in ("polyglance.search.model_info", "polyglance.encoders"):
        monkeypatch.setattr(f"{user}.load", load_once)
    # The default model takes ten seconds to load and to write.
    monkeypatch.setattr("polyglance.recipes.fine_tune.train.open_source", lambda model: source)
    return tmp_path


def test_pages_work_from_top_to_bottom(home: Path) -> None:
    done: set[str] = set()
    names: dict[str, Any] = {"polyglance": polyglance}
    for page in RUN_HERE:
        for block in (block for block in BLOCKS if block.page == page and not block.is_marked):
            if block.language == "python":
                if "library" in names:  # a page's first example closes it
                    names["library"] = polyglance.Library("my.polyglance")
                exec(compile(block.text, page, "exec"), names)
            for line in block.commands:
                arguments = polyglance_arguments(line)
                if arguments is None or arguments[0] in LONG:
                    continue
                command = " ".join(arguments)
                if command not in done:
                    expanded = [re.sub(r"^~", str(home), word) for word in arguments]
                    result = CliRunner().invoke(app, expanded)
                    assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception}"
                done.add(command)
    assert len(done) > 15
    assert (home / "RUN" / "model" / "model.json").is_file()
    assert "<html" in (home / "compare.html").read_text(encoding="utf-8")
    assert (home / "sorted" / "Katze").is_dir()
    assert load(str(home / "models" / "tiny"), threads=1).name == "tiny"

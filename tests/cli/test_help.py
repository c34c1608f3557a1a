from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from polyglance.cli import app

MAX_CHARS = 100


def _commands(command: Any, name: str = "polyglance") -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, other in getattr(command, "commands", {}).items():
        yield from _commands(other, f"{name} {word}")


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_one_short_sentence(name: str) -> None:
    command = COMMANDS[name]
    texts = {name: (command.help or "").split("\n\n")[0]}
    texts |= {
        f"{name} {parameter.opts[0]}": parameter.help or ""
        for parameter in command.params
        if parameter.name != "help"
    }
    for place, text in texts.items():
        assert text, place
        assert text.endswith("."), f"{place}: {text}"
        assert len(text) <= MAX_CHARS, f"{place}: {text}"


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_are_shared_say_the_same(name: str) -> None:
    for parameter in COMMANDS[name].params:
        if "--library" in parameter.opts:
            assert "-l" in parameter.opts
        if "--quiet" in parameter.opts:
            assert parameter.help == "Hide progress bars."
        if parameter.multiple:
            assert "repeatable" in (parameter.help or ""), f"{name} {parameter.opts[0]}"

"""What a command says when it is interrupted (Ctrl-C): what was kept, and how to go on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from polyglance.search.library import Library

STATUS = 130
"""The exit status of an interrupted command, as shells have it."""

_READS = ("nothing was changed", (
    "index", "search", "classify", "ask", "evaluate", "plan", "library info", "library verify",
    "library problems", "library duplicates", "data show", "data formats", "features show",
    "text tokenize", "text align", "text code-switch", "weights list",
))  # fmt: skip
_WRITES_AT_THE_END = ("nothing was written", (
    "explain", "demo", "export", "library backup", "library restore", "library export",
    "data import", "data enrich", "data pair-captions", "data shard", "smalr add-language",
))  # fmt: skip
_CONTINUES = ("what was done stays, and the same command continues", (
    "features extract", "features regions", "features import", "reproduce", "library import",
    "library merge", "library repair",
))  # fmt: skip
_TRANSLATES = (
    "the translations made so far stay in the cache, and the same command continues",
    ("data translate",),
)
_KEPT = {
    command: sentence
    for sentence, commands in (_READS, _WRITES_AT_THE_END, _CONTINUES, _TRANSLATES)
    for command in commands
}


class InterruptibleGroup(TyperGroup):
    """The commands; an interrupted one says what was kept and exits with status 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        words = [*ctx._protected_args, *ctx.args]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sentence = _KEPT.get(" ".join(words[:2])) or _KEPT.get(" ".join(words[:1]))
            _end(sentence or "")


@contextmanager
def kept_if_interrupted(describe: Callable[[], str]) -> Iterator[None]:
    """Say what was kept if the block is interrupted; ``describe`` is called then."""
    try:
        yield
    except KeyboardInterrupt:
        _end(describe())


def describe_library(library: Library, *, again: bool = False) -> str:
    """Say what an interrupted indexing run kept."""
    number = len(library)
    rest = "starts over" if again else "continues"
    return f"{number:,} pictures and clips are in {library.name}; the same command {rest}"


def describe_run(run: Path) -> str:
    """Say from which checkpoints an interrupted training run resumes."""
    steps = dict[str, int]()
    for file in sorted(run.rglob("latest/state.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            step = int(json.loads(file.read_text(encoding="utf-8"))["step"])
            steps[file.parent.parent.relative_to(run).as_posix().strip(".")] = step
    if not steps:
        return (
            f"{run} has no checkpoint yet, and the same command starts over; loop.save_every says"
            " how often there is one"
        )
    saved = ", ".join(f"{stage or 'training'} at step {step:,}" for stage, step in steps.items())
    return f"{run} keeps {saved}; the same command resumes there"


def _end(kept: str) -> None:
    """Print one sentence and exit; of several processes only the first speaks."""
    if int(os.environ.get("RANK") or 0) == 0:
        print(f"\ninterrupted{': ' if kept else ''}{kept}", file=sys.stderr)
    raise typer.Exit(STATUS)

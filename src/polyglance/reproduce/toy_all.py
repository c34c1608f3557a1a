"""All targets on the toy dataset, in one folder: runs that several share are trained once.

A target's cost is the processor time of all its runs, also of those that another target trained
before, and of making the toy dataset: what the target takes by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyglance.records import atomic_write
from polyglance.reproduce.environment import environment
from polyglance.reproduce.run import Options, Progress, Reproduced
from polyglance.reproduce.runs import COST
from polyglance.reproduce.target import find_target, target_names
from polyglance.reproduce.toy import Learned, ToySteps, reproduce_toy
from polyglance.reproduce.toy_data import ToySize, make_toy_data

_COLUMNS = (
    "target", "runs", "CPU, s", "row that must learn", "measured", "chance", "margin", "reached",
)  # fmt: skip


@dataclass(frozen=True)
class ToyOutcome:
    """A target on the toy dataset: what it cost, and whether it learned."""

    target: str
    runs: int
    cpu_seconds: float
    learned: Learned

    @property
    def as_plain(self) -> dict[str, Any]:
        """Return it as in ``toy-targets.json``."""
        learned = self.learned
        return {
            "target": self.target, "runs": self.runs, "cpu_seconds": round(self.cpu_seconds, 1),
            "row": learned.row, "measured": round(learned.measured, 2),
            "chance": round(learned.chance, 2), "margin": learned.margin,
            "reached": learned.reached,
        }  # fmt: skip


def reproduce_all_toy(
    options: Options,
    *,
    names: Sequence[str] | None = None,
    size: ToySize | None = None,
    steps: ToySteps | None = None,
    progress: Progress = print,
) -> list[ToyOutcome]:
    """Run every measured target on the toy dataset, and write a summary after each.

    Args:
        options: folders and device; each target is written to OUT/TARGET.
        names: of the targets; None for all.
        size: of the toy dataset.
        steps: how long each run trains.
        progress: called with a line after each run and each target.

    Returns:
        The outcomes, which are also in OUT/toy-targets.json and OUT/toy-targets.md.
    """
    names = list(target_names()) if names is None else names
    started = time.process_time()
    make_toy_data(options.out.resolve() / "toy-data", size)
    making = time.process_time() - started
    outcomes: list[ToyOutcome] = []
    for name in names:
        if not find_target(name)[1].measured:
            continue
        result, learned = reproduce_toy(
            name, replace(options, rows=()), size=size, steps=steps, progress=progress
        )
        if learned is not None:
            costs = _costs(result)
            outcomes.append(ToyOutcome(name, len(costs), making + sum(costs), learned))
            write_outcomes(outcomes, options.out)
            progress(f"{name}: {learned}; {outcomes[-1].cpu_seconds:.0f} s of processor time")
    return outcomes


def _costs(result: Reproduced) -> list[float]:
    """Return the processor time of each run of a target."""
    found = []
    for folder in result.measured.folders.values():
        if (folder / COST).is_file():
            cost: Mapping[str, float] = json.loads((folder / COST).read_text(encoding="utf-8"))
            found.append(cost["cpu_seconds"])
    return found


def write_outcomes(outcomes: Iterable[ToyOutcome], out: Path) -> list[Path]:
    """Write ``toy-targets.json`` and ``toy-targets.md``, with date, commit and hardware."""
    plain, about = [outcome.as_plain for outcome in outcomes], environment()
    lines = [
        "# Targets on toy data",
        "",
        "Made by `polyglance reproduce --toy --all`: every target of `polyglance reproduce --list`"
        " that is measured, on the toy dataset. The mean of the columns of one row must be above"
        " chance by a margin, in points. CPU is the processor time of all runs of a target, those"
        " that it shares with others included, and of making the toy dataset.",
        "",
        f"{about['date']}, commit {about['commit']}, {about['hardware']}, Python"
        f" {about['python']}; one seed.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---|---:|---:|---|---:|---:|---:|---|",
        *(
            f"| {one['target']} | {one['runs']} | {one['cpu_seconds']:.0f} | {one['row']} |"
            f" {one['measured']:.1f} | {one['chance']:.1f} | {one['margin']:g} |"
            f" {'yes' if one['reached'] else 'no'} |"
            for one in plain
        ),
    ]
    contents = {
        "toy-targets.json": json.dumps({**about, "targets": plain}, indent=1, ensure_ascii=False),
        "toy-targets.md": "\n".join(lines),
    }
    for name, text in contents.items():
        with atomic_write(out / name) as file:
            file.write(text + "\n")
    return [out / name for name in contents]

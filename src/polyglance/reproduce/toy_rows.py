"""Rows that the toy dataset cannot show, or cannot tell from others: they say so and are not run.

The toy dataset has one tiny encoder and one kind of feature for clips. Where a table compares
encoders, their layers or video networks, the toy runs of its rows are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyglance.recipes import open_recipe
from polyglance.reproduce.runs import PARENT, Run
from polyglance.reproduce.target import Row, Target


def leave_out_same(target: Target, plan: Sequence[Run]) -> tuple[Target, set[str]]:
    """Leave runs out that are the same as another row's, and note it in their rows.

    Args:
        target: whose main row (`Learning`) is run in any case.
        plan: the toy runs that there are, parents first.

    Returns:
        The target with notes in its rows, and the names of the runs that are left.
    """
    identity = _identities(plan)
    first: dict[str, tuple[str, str]] = {}
    notes: dict[str, str] = {}
    wanted: set[str] = set()
    main = target.learning.row if target.learning else ""
    for row in sorted(target.rows, key=lambda row: row.name != main):
        same: dict[str, None] = {}
        lacking = False
        names = _runs(target, row)
        for name in names:
            if name not in identity:
                lacking = True
                continue
            of_row, of_run = first.setdefault(identity[name], (row.name, name))
            if of_run != name:
                same[of_row] = None
            else:
                wanted.add(name)
        if same:
            others = ", ".join(
                "another of its runs" if one == row.name else repr(one) for one in same
            )
            part = "in part, " if wanted.intersection(names) else ""
            notes[row.name] = f"{part}not run on toy data, where it is the same as {others}"
        elif lacking:
            notes[row.name] = "in part or as a whole not run on toy data, which lacks its languages"
    rows = tuple(
        replace(row, note="; ".join(filter(None, (row.note, notes.get(row.name)))))
        for row in target.rows
    )
    return replace(target, rows=rows), _with_parents(wanted, plan)


def _runs(target: Target, row: Row) -> list[str]:
    """Return the runs of a row, each once."""
    found = (row.run_of(column) for column in target.columns if not column.mean_of)
    return list(dict.fromkeys(name for name in found if name))


def _identities(plan: Sequence[Run]) -> dict[str, str]:
    """Return for each run what it is: its settings, and what it starts from."""
    found: dict[str, str] = {}
    for run in plan:
        assert run.recipe is not None
        changes = [change.replace(PARENT, "parent") for change in run.changes]
        recipe = open_recipe(run.recipe, changes)
        parent = "" if run.parent is None else found[run.parent]
        found[run.name] = f"{recipe.system}\n{recipe.settings!r}\n{parent}"
    return found


def _with_parents(names: set[str], plan: Sequence[Run]) -> set[str]:
    """Add the runs that some start from."""
    found = set(names)
    for run in reversed(plan):
        if run.name in found and run.parent is not None:
            found.add(run.parent)
    return found

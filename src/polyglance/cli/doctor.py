"""``polyglance doctor``: whether this installation works, and what it lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.addresses import LibraryOption

if TYPE_CHECKING:
    from polyglance.cli.doctor_checks import Check

_MARKS = {"ok": "✓", "missing": "–", "warning": "!", "failed": "✗"}


def doctor(
    library: LibraryOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the installation: packages, the included model, folders, and a library if given.

    Exits with status 1 if something essential fails. Extras that are not installed are listed with
    the command that installs them, and are no failure.
    """
    from polyglance.cli.doctor_checks import run_checks

    checks: list[Check] = []
    for check in run_checks(library):
        checks.append(check)
        if not as_json:
            fix = f"\n    {check.fix}" if check.fix else ""
            print(f"{_MARKS[check.status]} {check.name}: {check.detail}{fix}", flush=True)
    failed = [check for check in checks if check.status == "failed"]
    if as_json:
        plain = {"ok": not failed, "checks": [check._asdict() for check in checks]}
        print(json.dumps(plain, ensure_ascii=False, indent=2))
    elif failed:
        print(
            f"\n{len(failed)} of {len(checks)} checks failed: {', '.join(c.name for c in failed)}"
        )
    else:
        print("\nAll that is essential works.")
    if failed:
        raise typer.Exit(1)

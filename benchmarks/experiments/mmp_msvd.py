"""MMP's objectives and languages compared on MSVD: a Table 3 and a Table 6 of our own.

Every figure is one recipe (``mmp-msvd``) with a few settings changed, trained with
several seeds, measured on the 335 test clips once. Runs are processes of their
own, several at a time; those that finished before are not run again.

    python -m benchmarks.experiments.mmp_msvd --data DATA --device cuda --jobs 6
    python -m benchmarks.experiments.mmp_msvd --data DATA --device cuda --jobs 6 --sweep

``--sweep`` compares hyper-parameters, on the validation clips alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import RESULTS, write_results

RECIPE = "mmp-msvd"
DOCUMENT = Path(__file__).parents[2] / "docs" / "results-msvd.md"
RECALLS = ("R@1", "R@5", "R@10")

ENGLISH = ("languages=[en]", "captions_each=1")
BOTH = ("languages=[en, zh]", "captions_each=2")


def _objective(loss: str, *terms: str, negatives: str = "joint") -> tuple[str, ...]:
    return (
        f"objective.loss={loss}",
        f"objective.negatives={negatives}",
        f"objective.intra={str('intra' in terms).lower()}",
        f"objective.cross={str('cross' in terms).lower()}",
    )


SETTINGS: dict[str, tuple[str, ...]] = {
    "en triplet": ENGLISH + _objective("triplet"),
    "en triplet intra": ENGLISH + _objective("triplet", "intra"),
    "en nce": ENGLISH + _objective("nce"),
    "en nce intra": ENGLISH + _objective("nce", "intra"),
    "en nce intra symmetric": ENGLISH + _objective("nce", "intra", negatives="symmetric"),
    "en+zh nce": BOTH + _objective("nce"),
    "en+zh nce intra": BOTH + _objective("nce", "intra"),
    "en+zh nce cross": BOTH + _objective("nce", "cross"),
    "en+zh nce intra cross": BOTH + _objective("nce", "intra", "cross"),
    "en+zh nce intra cross symmetric": BOTH
    + _objective("nce", "intra", "cross", negatives="symmetric"),
}
"""Which languages, which loss, and which terms beside the inter-modal one."""

SWEPT: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "temperature 0.05": ("objective.temperature=0.05",),
    "rate 5e-4": ("loop.learning_rate=5e-4",),
    "rate 1e-3": ("loop.learning_rate=1e-3",),
    "rate 5e-4, nothing frozen": ("loop.learning_rate=5e-4", "frozen_layers=0"),
    "twice the steps": ("loop.steps=800", "loop.validate_every=100"),
}
"""What ``--sweep`` changes in the recipe."""
SWEPT_IN = ("en nce intra", "en+zh nce intra cross")


def main() -> None:
    options = _options()
    if options.tables_only:
        fill(options.document, json.loads((options.out / "mmp_msvd.json").read_text("utf-8")))
        return
    if options.commit or shutil.which("git") is None:
        os.environ.setdefault("POLYGLANCE_COMMIT", options.commit or "unknown")
    settings = {name: SETTINGS[name] for name in options.only or SETTINGS}
    if options.sweep:
        settings = {
            f"{name} | {change}": (*SETTINGS[name], *changes, "test=null")
            for name in options.only or SWEPT_IN
            for change, changes in SWEPT.items()
        }
    reports = run_all(settings, options)
    found = {name: summary(changes, reports[name]) for name, changes in settings.items()}
    figures = {
        "recipe": options.recipe,
        "changed_everywhere": options.change,
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        "settings": found,
    }
    for name, measured in found.items():
        score = measured["validation_score"]["mean"]
        print(f"{name:48} validation {score:6.1f}  {measured['seconds']:5.0f} s a run")
    name = "mmp_msvd_sweep" if options.sweep else "mmp_msvd"
    path = write_results(name, figures, options.out)
    if not options.sweep and options.document.is_file():
        fill(options.document, json.loads(path.read_text(encoding="utf-8")))


def run_all(
    settings: Mapping[str, Sequence[str]], options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """Train every setting with every seed; returns their reports, by setting."""
    jobs = [(name, seed) for seed in options.seeds for name in settings]

    def one(job: tuple[str, int]) -> dict[str, Any]:
        name, seed = job
        changes = (*options.change, *settings[name], f"loop.seed={seed}")
        return run_one(options.runs / re.sub(r"[^\w.+-]+", "-", name) / str(seed), changes, options)

    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            reports = dict(zip(jobs, pool.map(one, jobs), strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # one failed: begin no others
            raise
    return {name: [reports[name, seed] for seed in options.seeds] for name in settings}


def run_one(folder: Path, changes: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Train once by the command line, unless this very run is there already."""
    report, asked = folder / "report.json", folder / "changes.json"
    wanted = [options.recipe, *changes]
    if not report.exists() or json.loads(asked.read_text(encoding="utf-8")) != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        asked.write_text(json.dumps(wanted), encoding="utf-8")
        command = [
            sys.executable, "-m", "polyglance", "train", options.recipe,
            "--data", options.data, "--out", folder, "--device", options.device,
            *(part for change in changes for part in ("--set", change)),
        ]  # fmt: skip
        begin = time.monotonic()
        with (folder / "output.txt").open("w") as output:
            done = subprocess.run(
                list(map(str, command)),
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                env={"OMP_NUM_THREADS": "2", **os.environ},
            )
        for checkpoint in ("best", "latest"):  # gigabytes over all runs; the report is what counts
            shutil.rmtree(folder / checkpoint, ignore_errors=True)
        if done.returncode:
            report.unlink(missing_ok=True)
            said = (folder / "output.txt").read_text(errors="replace")[-2000:]
            raise SystemExit(f"{folder} failed:\n{said}")
        print(f"{folder}: {time.monotonic() - begin:.0f} s", flush=True)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def summary(changes: Sequence[str], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means and deviations over seeds, with what each seed gave."""
    figures: dict[str, Any] = {
        "changes": list(changes),
        "validation_score": _spread([report["best_score"] for report in reports]),
        "seconds": statistics.mean(report["seconds"] for report in reports),
        "best_steps": [report["best_step"] for report in reports],
    }
    for split in ("validation", "test"):
        if split in reports[0]:
            figures[split] = {
                language: {
                    direction: {
                        figure: _spread([r[split][language][direction][figure] for r in reports])
                        for figure in (*RECALLS, "median_rank")
                    }
                    for direction in directions
                }
                for language, directions in reports[0][split].items()
            }
    return figures


def _spread(values: Sequence[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "deviation": deviation, "seeds": list(values)}


def fill(document: Path, figures: Mapping[str, Any]) -> None:
    """Put fresh tables between the marks of a document."""
    tables = {"table 3": table_3(figures), "table 6": table_6(figures), "how": how(figures)}
    pages.fill(document, tables)


def table_3(figures: Mapping[str, Any]) -> str:
    """Objectives: English to video."""
    header = ["objective", "trained on", "inter", "intra", "cross", *RECALLS]
    rows = []
    for name, measured in figures["settings"].items():
        languages, loss, terms = _parts(name)
        ticks = ["✓", *("✓" if term in terms else "" for term in ("intra", "cross"))]
        label = "Triplet" if loss == "triplet" else "NCE"
        label += ", a softmax a side" if "symmetric" in terms else ""
        rows.append([label, languages, *ticks, *_recalls(measured, "en")])
    return pages.table(header, rows, text_columns=5)


def table_6(figures: Mapping[str, Any]) -> str:
    """Languages: English and Chinese to video."""
    header = ["trained on", "objective"]
    header += [f"{language} {recall}" for language in ("en", "zh") for recall in RECALLS]
    rows = []
    for name, measured in figures["settings"].items():
        languages, loss, terms = _parts(name)
        if loss == "nce" and "symmetric" not in terms:
            objective = " + ".join(["inter", *terms])
            recalls = [*_recalls(measured, "en"), *_recalls(measured, "zh")]
            rows.append([languages, objective, *recalls])
    return pages.table(header, rows, text_columns=2)


def how(figures: Mapping[str, Any]) -> str:
    """When, where and how this was measured."""
    seeds = len(figures["seeds"])
    seconds = statistics.mean(m["seconds"] for m in figures["settings"].values())
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {len(figures['settings'])} settings with {seeds} seeds each,"
        f" {seconds:.0f} s of training a run with {figures['runs_at_once']} at once."
    )


def _parts(name: str) -> tuple[str, str, list[str]]:
    languages, loss, *terms = name.split()
    return languages.replace("+", ", "), loss, terms


def _recalls(measured: Mapping[str, Any], language: str) -> list[str]:
    direction = measured["test"][language]["text_to_visual"]
    return [_cell(direction[recall]) for recall in RECALLS]


def _cell(spread: Mapping[str, Any]) -> str:
    deviation = spread["deviation"]
    return f"{spread['mean']:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder that msvd/ lies in")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=SETTINGS, metavar="SETTING", help="some alone")
    parser.add_argument("--sweep", action="store_true", help="hyper-parameters, on val alone")
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/msvd"), help="a folder a run")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="where the tables go")
    parser.add_argument("--commit", help="which commit this is, where there is no git")
    parser.add_argument("--tables-only", action="store_true", help="fill the document anew")
    options = parser.parse_args()
    if options.data is None and not options.tables_only:
        parser.error("--data is needed: the folder that msvd/ lies in")
    return options


if __name__ == "__main__":
    main()

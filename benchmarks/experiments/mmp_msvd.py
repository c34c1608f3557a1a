"""MMP's objectives and languages compared on MSVD: a Table 3 and a Table 6 of our own.

Every setting is the recipe ``mmp-msvd`` with a few changes, trained with several seeds and
evaluated once on the 335 test clips. Finished runs are not trained again.

    python -m benchmarks.experiments.mmp_msvd --data DATA --device cuda --jobs 6
    python -m benchmarks.experiments.mmp_msvd --data DATA --device cuda --jobs 6 --sweep

``--sweep`` compares hyper-parameters on the validation clips only. Writes results/mmp_msvd.json
(or mmp_msvd_sweep.json) and fills docs/results-msvd.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.experiments.options import experiment_parser, set_environment
from benchmarks.reports import mmp_page as page
from benchmarks.results_io import write_results
from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce.runs import Experiment, Job, Report, Run
from polyglance.reproduce.summaries import mmp_setting

RECIPE = "mmp-msvd"

ENGLISH = ("languages=[en]", "captions_per_image=1")
BOTH = ("languages=[en, zh]", "captions_per_image=2")


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
"""Settings by name: the languages, the loss, and the terms beside the inter-modal one."""

SWEEP: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "temperature 0.05": ("objective.temperature=0.05",),
    "rate 5e-4": ("loop.learning_rate=5e-4",),
    "rate 1e-3": ("loop.learning_rate=1e-3",),
    "rate 5e-4, nothing frozen": ("loop.learning_rate=5e-4", "frozen_layers=0"),
    "twice the steps": ("loop.steps=800", "loop.validate_every=100"),
}
"""What ``--sweep`` changes in the recipe."""
SWEPT_SETTINGS = ("en nce intra", "en+zh nce intra cross")


def main() -> None:
    options = _parse_options()
    set_environment(options, threads=2)
    settings = {name: SETTINGS[name] for name in options.only or SETTINGS}
    if options.sweep:
        settings = {
            f"{name} | {change}": (*SETTINGS[name], *changes, "test=null")
            for name in options.only or SWEPT_SETTINGS
            for change, changes in SWEEP.items()
        }
    reports = run_all(settings, options)
    summaries = {name: summary(changes, reports[name]) for name, changes in settings.items()}
    figures = {
        "recipe": options.recipe,
        "common_changes": options.changes,
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        "settings": summaries,
    }
    for name, measured in summaries.items():
        score = measured["validation_score"]["mean"]
        print(f"{name:48} validation {score:6.1f}  {measured['seconds']:5.0f} s a run")
    name = "mmp_msvd_sweep" if options.sweep else "mmp_msvd"
    path = write_results(name, figures, options.out)
    if not options.sweep and options.document.is_file():
        page.fill(json.loads(path.read_text(encoding="utf-8")), options.document)


def run_all(
    settings: Mapping[str, Sequence[str]], options: argparse.Namespace
) -> dict[str, list[Report]]:
    """Train every setting with every seed; return the reports by setting."""
    from polyglance.recipes import open_recipe

    recipe, data = open_recipe(options.recipe, options.changes), options.data.resolve()
    splits = (*recipe.settings.corpora, recipe.settings.validation, recipe.settings.test)
    inputs = staged_runs.fingerprints(
        recipe.system,
        captions=[data / split.manifest for split in splits],
        features=sorted({data / split.features for split in splits}),
    )
    experiment = Experiment(
        options.recipe, data, options.runs, options.device, tuple(options.changes), inputs
    )

    def on_finished(job: Job, reports: Mapping[Job, Report]) -> None:
        print(f"{job[0]}, seed {job[1]}: {reports[job]['seconds']:.0f} s", flush=True)

    plan = [Run(name, tuple(changes)) for name, changes in settings.items()]
    jobs = [(name, seed) for seed in options.seeds for name in settings]
    reports = staged_runs.run_all(
        plan, jobs, experiment, max_workers=options.jobs, on_finished=on_finished
    )
    return {name: [reports[name, seed] for seed in options.seeds] for name in settings}


def summary(changes: Sequence[str], reports: Sequence[Report]) -> dict[str, Any]:
    """Summarise the seeds of a setting, with its changes."""
    return {"changes": list(changes), **mmp_setting(list(reports))}


def _parse_options() -> argparse.Namespace:
    parser = experiment_parser(
        __doc__, data="msvd/", runs="runs/msvd", document=page.PAGE, recipe=RECIPE
    )
    parser.add_argument(
        "--only", nargs="+", choices=SETTINGS, metavar="SETTING", help="only these settings"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="compare hyper-parameters, on validation only"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()

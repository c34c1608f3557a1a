"""M3P and UC2 on the whole of Flickr8k's test: reading every pair, or what the default model found.

Runs are the recipes ``m3p-reranking`` and ``uc2-reranking``. What they need is made first,
into ``--cache``, where DATA has none: the default model's embeddings and M3P's dictionaries.
Finished runs are not made again, interrupted ones go on.

    python benchmarks/reranking_flickr8k.py --data DATA --device cuda --jobs 2

``reranking_page.py`` makes the page from the results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pair_preparing
import reranking_page as page
import seeds
import staged_runs
from measuring import RESULTS, write_results
from pair_preparing import Changes
from pair_runs import anywhere
from staged_runs import Job, Report, Run, Workshop

RECIPES = {"M3P": "m3p-reranking", "UC2": "uc2-reranking"}
STAGES = ("alignment", "matching", "pretraining", "imitation", "fine_tuning")


def main() -> None:
    options = _options()
    if options.commit or shutil.which("git") is None:
        os.environ.setdefault("POLYGLANCE_COMMIT", options.commit or "unknown")
    os.environ.setdefault("OMP_NUM_THREADS", "4")  # before the workers load what counts cores
    plan = [Run(name, prepare(name, options), recipe=RECIPES[name]) for name in options.systems]
    jobs = [(system, seed) for seed in options.seeds for system in options.systems]
    shop = Workshop(
        plan[0].recipe,
        options.data.resolve(),
        options.runs,
        options.device,
        tuple(options.change),
        staged_runs.fingerprints(*map(str.lower, options.systems), captions=_captions(options)),
        keep_weights=True,
    )

    def finished(job: Job, reports: Mapping[Job, Report]) -> None:
        found = (
            f"{way} {measured['average']['mR']:.1f}"
            for way, measured in reports[job]["test"].items()
        )
        print(f"{job[0]}, seed {job[1]}: {', '.join(found)}", flush=True)

    reports = staged_runs.run_all(plan, jobs, shop, at_once=options.jobs, finished=finished)
    figures = {
        "changed_everywhere": anywhere(options.change, options),
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        "systems": {
            system: {
                "recipe": RECIPES[system],
                **summary([reports[job] for job in jobs if job[0] == system]),
            }
            for system in options.systems
        },
    }
    written = write_results("reranking_flickr8k", figures, options.out)
    if options.document.is_file():
        page.fill(json.loads(written.read_text(encoding="utf-8")), options.document)


def prepare(system: str, options: argparse.Namespace) -> Changes:
    """Make what a recipe names and the data has not; returns where it is."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(RECIPES[system], options.change).settings
    data, cache = options.data.resolve(), options.cache.resolve()
    files, changes = pair_preparing.manifests(recipe, data), ()
    for setting, split in (("dual", "test"), ("validation", "validation")):
        if not (data / getattr(recipe.reranking, setting)).is_dir():
            folder = pair_preparing.embedded(files[split], cache)
            changes += (f"reranking.{setting}={folder}",)
    if system == "M3P" and recipe.pretraining is not None and recipe.pretraining.switched:
        switching = recipe.switching
        learned = pair_preparing.dictionaries(
            switching.dictionaries, switching.languages, files["train"], recipe.texts, data, cache
        )
        if learned is not None:
            changes += (f"switching.dictionaries={learned}",)
    return changes


def summary(reports: Sequence[Report]) -> dict[str, Any]:
    """mR by way of measuring and language over seeds, and what training took."""
    stages = {stage: reports[0][stage] for stage in STAGES if stage in reports[0]}
    return {
        "steps": {stage: found["steps"] for stage, found in stages.items()},
        "seconds": {stage: found["seconds"] for stage, found in stages.items()},
        "trust": [report["validation"]["trust"] for report in reports],
        "test": {
            way: {
                language: seeds.spread([report["test"][way][language]["mR"] for report in reports])
                for language in languages
            }
            for way, languages in reports[0]["test"].items()
        },
    }


def _captions(options: argparse.Namespace) -> list[Path]:
    """All manifests that runs read."""
    from polyglance.recipes import open_recipe

    found = {}
    for system in options.systems:
        recipe = open_recipe(RECIPES[system], options.change).settings
        parts = (recipe.train, recipe.validation, recipe.test, *recipe.more)
        found |= {options.data.resolve() / part.manifest: None for part in parts}
    return list(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of flickr8k/ ...")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--systems", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/reranking"), help="a folder a run")
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"), help="what runs share")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=page.PAGE, help="where tables go")
    parser.add_argument("--commit", help="which commit this is, where there is no git")
    return parser.parse_args()


if __name__ == "__main__":
    main()

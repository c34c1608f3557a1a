"""M3P or UC2 on the whole of Flickr8k's test: reading what the default model found, or every pair.

Runs are the recipes ``m3p-reranking`` and ``uc2-reranking``. What they need is made first,
into ``--cache``, where DATA has none: the default model's embeddings and M3P's dictionaries.
Finished runs are not made again, interrupted ones go on.

    python -m benchmarks.experiments.reranking_flickr8k m3p --data DATA --device cuda
    python -m benchmarks.experiments.reranking_flickr8k uc2 --data DATA --device cuda

``reranking_page.py`` makes the page from the results of both.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments import prepare_cross_encoder_data, staged_runs
from benchmarks.experiments.cross_encoder_runs import anywhere
from benchmarks.experiments.prepare_cross_encoder_data import SPLITS, Changes
from benchmarks.experiments.staged_runs import SAVE, Job, Report, Run, Workshop
from benchmarks.reports import reranking_page as page
from benchmarks.reports import seeds
from benchmarks.results_io import RESULTS, write_results

STAGES = ("alignment", "matching", "pretraining", "imitation", "fine_tuning")


def main() -> None:
    options = _options()
    if options.commit or shutil.which("git") is None:
        os.environ.setdefault("POLYGLANCE_COMMIT", options.commit or "unknown")
    os.environ.setdefault("OMP_NUM_THREADS", "4")  # before the workers load what counts cores
    changes = (SAVE, *prepare(options), *options.change)
    shop = Workshop(
        f"{options.system}-reranking", options.data.resolve(), options.runs, options.device,
        changes, _made_from(options, changes), keep_weights=True,
    )  # fmt: skip

    def finished(job: Job, reports: Mapping[Job, Report]) -> None:
        found = (
            f"{way} {measured['average']['mR']:.1f}"
            for way, measured in reports[job]["test"].items()
        )
        print(f"{job[0]}, seed {job[1]}: {', '.join(found)}", flush=True)

    jobs = [(options.system, seed) for seed in options.seeds]
    reports = staged_runs.run_all(
        [Run(options.system)], jobs, shop, at_once=options.jobs, finished=finished
    )
    figures = {
        **staged_runs.made(shop.folder(jobs[0])),
        "recipe": shop.recipe,
        "changed_everywhere": anywhere(options.change, options),
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        **summary([reports[job] for job in jobs]),
    }
    write_results(page.results_of(options.system), figures, options.out)
    if options.document.is_file():
        page.fill(page.read(options.out), options.document)


def prepare(options: argparse.Namespace) -> Changes:
    """Make what the recipe names and the data has not; returns where it is."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(f"{options.system}-reranking", options.change).settings
    data, cache = options.data.resolve(), options.cache.resolve()
    files, changes = prepare_cross_encoder_data.manifests(recipe, data), ()
    for setting, split in (("dual", "test"), ("validation", "validation")):
        if not (data / getattr(recipe.reranking, setting)).is_dir():
            folder = prepare_cross_encoder_data.embedded(files[split], cache, recipe.towers)
            changes += (f"reranking.{setting}={folder}",)
    if _switches(recipe):
        switching = recipe.switching
        learned = prepare_cross_encoder_data.dictionaries(
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


def _switches(recipe: Any) -> bool:
    """Whether English is code-switched before fine-tuning, as M3P has it."""
    return bool(getattr(recipe.pretraining, "switched", False))


def _made_from(options: argparse.Namespace, changes: Changes) -> dict[str, str]:
    """What decides a run beside its settings: code, and all that it reads but the pictures."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(f"{options.system}-reranking", changes)
    settings, data = recipe.settings, options.data.resolve()
    parts = [*(getattr(settings, split) for split in SPLITS), *settings.more]
    read = {"dual": [data / settings.reranking.dual, data / settings.reranking.validation]}
    if _switches(settings):
        pattern = data / settings.switching.dictionaries
        read["dictionaries"] = [next(p for p in pattern.parents if "{" not in str(p))]
        read["texts"] = [data / text.manifest for text in settings.texts]
    return staged_runs.fingerprints(
        recipe.kind,
        captions=[data / part.manifest for part in parts],
        towers=staged_runs.model_files(settings.towers),
        **read,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=[name.lower() for name in page.SYSTEMS])
    parser.add_argument("--data", type=Path, required=True, help="the folder of flickr8k/ ...")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/reranking"), help="a folder a run")
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"), help="what runs share")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=page.PAGE, help="where tables go")
    parser.add_argument("--commit", help="which commit this is, where there is no git")
    return parser.parse_args()


if __name__ == "__main__":
    main()

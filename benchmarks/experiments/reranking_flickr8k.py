"""Re-rank the default model's candidates with M3P or UC2, on the whole test set of Flickr8k.

Runs are the recipes ``m3p-reranking`` and ``uc2-reranking``. What they need is prepared first,
into ``--cache``, where DATA lacks it: the default model's embeddings and M3P's dictionaries.
Finished runs are not trained again, interrupted ones resume.

    python -m benchmarks.experiments.reranking_flickr8k m3p --data DATA --device cuda
    python -m benchmarks.experiments.reranking_flickr8k uc2 --data DATA --device cuda

Writes results/reranking_m3p.json or reranking_uc2.json and fills docs/results-reranking.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.experiments.cross_encoder_runs import with_symbolic_folders
from benchmarks.experiments.options import add_cache_option, experiment_parser, set_environment
from benchmarks.reports import reranking_page as page
from benchmarks.reports import seeds
from benchmarks.results_io import write_results
from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce import shared_data as prepare_data
from polyglance.reproduce.runs import SAVE, Experiment, Job, Report, Run
from polyglance.reproduce.shared_data import SPLITS, Changes

STAGES = ("contrastive_stage", "itm_only", "pretraining", "distillation", "fine_tuning")


def main() -> None:
    options = _parse_options()
    set_environment(options, threads=4)
    changes = (SAVE, *prepare(options), *options.changes)
    experiment = Experiment(
        f"{options.system}-reranking", options.data.resolve(), options.runs, options.device,
        changes, _fingerprint_inputs(options, changes), keep_weights=True,
    )  # fmt: skip

    def on_finished(job: Job, reports: Mapping[Job, Report]) -> None:
        recalls = (
            f"{protocol} {by_language['average']['mR']:.1f}"
            for protocol, by_language in reports[job]["test"].items()
        )
        print(f"{job[0]}, seed {job[1]}: {', '.join(recalls)}", flush=True)

    jobs = [(options.system, seed) for seed in options.seeds]
    reports = staged_runs.run_all(
        [Run(options.system)], jobs, experiment, max_workers=options.jobs, on_finished=on_finished
    )
    figures = {
        **staged_runs.training_environment(experiment.folder(jobs[0])),
        "recipe": experiment.recipe,
        "common_changes": with_symbolic_folders(options.changes, options),
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        **summary([reports[job] for job in jobs]),
    }
    write_results(page.results_name(options.system), figures, options.out)
    if options.document.is_file():
        page.fill(page.read_all(options.out), options.document)


def prepare(options: argparse.Namespace) -> Changes:
    """Prepare what the recipe names and the data lacks; return the changes that name it."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(f"{options.system}-reranking", options.changes).settings
    data, cache = options.data.resolve(), options.cache.resolve()
    manifests, changes = prepare_data.manifests(recipe, data), ()
    for setting, split in (
        ("dual_embeddings", "test"),
        ("validation_embeddings", "validation"),
    ):
        if not (data / getattr(recipe.reranking, setting)).is_dir():
            folder = prepare_data.embed_manifest(
                manifests[split], cache, recipe.init_from_dual_encoder
            )
            changes += (f"reranking.{setting}={folder}",)
    if _code_switches(recipe):
        switching = recipe.code_switching
        learned = prepare_data.learn_dictionaries(
            switching.dictionaries, switching.languages, manifests["train"], recipe.texts, data,
            cache,
        )  # fmt: skip
        if learned is not None:
            changes += (f"code_switching.dictionaries={learned}",)
    return changes


def summary(reports: Sequence[Report]) -> dict[str, Any]:
    """Summarise the seeds: mR by protocol and language, steps and seconds."""
    stages = {stage: reports[0][stage] for stage in STAGES if stage in reports[0]}
    return {
        "steps": {stage: report["steps"] for stage, report in stages.items()},
        "seconds": {stage: report["seconds"] for stage, report in stages.items()},
        "dual_weight": [report["validation"]["dual_weight"] for report in reports],
        "test": {
            protocol: {
                language: seeds.spread([r["test"][protocol][language]["mR"] for r in reports])
                for language in languages
            }
            for protocol, languages in reports[0]["test"].items()
        },
    }


def _code_switches(recipe: Any) -> bool:
    """Whether English captions are code-switched in pre-training, as in M3P."""
    return bool(getattr(recipe.pretraining, "code_switched", False))


def _fingerprint_inputs(options: argparse.Namespace, changes: Changes) -> dict[str, str]:
    """Fingerprint the code and all that a run reads, except for the images."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(f"{options.system}-reranking", changes)
    settings, data = recipe.settings, options.data.resolve()
    splits = [*(getattr(settings, split) for split in SPLITS), *settings.extra_train]
    reranking = settings.reranking
    embeddings = (reranking.dual_embeddings, reranking.validation_embeddings)
    inputs = {"dual_embeddings": [data / folder for folder in embeddings]}
    if _code_switches(settings):
        pattern = data / settings.code_switching.dictionaries
        inputs["dictionaries"] = [prepare_data.folder_of_pattern(pattern)]
        inputs["texts"] = [data / corpus.manifest for corpus in settings.texts]
    return staged_runs.fingerprints(
        recipe.system,
        captions=[data / split.manifest for split in splits],
        dual_encoder=staged_runs.model_files(settings.init_from_dual_encoder),
        **inputs,
    )


def _parse_options() -> argparse.Namespace:
    parser = experiment_parser(
        __doc__, data="flickr8k/ ...", runs="runs/reranking", document=page.PAGE, seeds=(0,)
    )
    parser.add_argument("system", choices=[name.lower() for name in page.SYSTEMS])
    add_cache_option(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()

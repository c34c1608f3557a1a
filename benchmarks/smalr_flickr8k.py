"""SMALR, its ablations and its baselines on Flickr8k in seven languages: size against recall.

Every row is the recipe ``smalr-flickr8k`` with a few settings changed, trained with
several seeds and measured on the 929 test pictures once. What the runs share is made
first where it is missing: features of the pictures, dictionaries, word vectors. Runs
go through worker processes; those that finished before are not run again.

    python benchmarks/smalr_flickr8k.py --data DATA --device cuda --jobs 8
    python benchmarks/smalr_flickr8k.py --data DATA --device cuda --jobs 8 --sweep

``--sweep`` compares hyper-parameters, on the validation pictures alone.
``smalr_page.py`` makes the page and the plot from the results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import smalr_page
from measuring import RESULTS, write_results

RECIPE = "smalr-flickr8k"
PARALLEL = "text/multi30k-parallel.jsonl.gz"

_ALONE = "consistency=false"
SETTINGS: dict[str, tuple[str, ...]] = {
    "SMALR": ("model=smalr",),
    "L-LIWE": ("model=large-liwe", _ALONE),
    "S-LIWE": ("model=small-liwe", _ALONE),
    "MULE": ("model=mule", _ALONE),
    "parallel EmbN": ("model=parallel-embn", _ALONE),
    "EmbN": ("model=embn", _ALONE),
    "PCA 200": ("model=pca-200", _ALONE),
    "PCA 100": ("model=pca-100", _ALONE),
    "PCA 50": ("model=pca-50", _ALONE),
    "dictionary 20": ("model=mule", "dictionary_below=20", _ALONE),
    "dictionary 5": ("model=mule", "dictionary_below=5", _ALONE),
    "frequency 20": ("model=mule", "min_count=20", _ALONE),
    "frequency 5": ("model=mule", "min_count=5", _ALONE),
    "HEM": ("model=hem", _ALONE),
    "LA": ("model=language-agnostic", _ALONE),
    "translate to English": ("model=embn", "translate_to=en", _ALONE),
}
"""What is trained, the longest first; those that share latent tokens with SMALR after it."""

_LONGER = ("loop.steps=2000", "loop.validate_every=500")
SWEPT: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "3 negatives": ("triplets.negatives=3",),
    "30 negatives": ("triplets.negatives=30",),
    "100 negatives": ("triplets.negatives=100",),
    "margin 0.05": ("triplets.margin=0.05",),
    "margin 0.2": ("triplets.margin=0.2",),
    "rate 1e-3": ("loop.learning_rate=1e-3",),
    "rate 2e-3": ("loop.learning_rate=2e-3",),
    "rate 8e-3": ("loop.learning_rate=8e-3",),
    "twice the steps": _LONGER,
    "batch 128, twice the steps": ("batch=128", *_LONGER),
    "one sentence, twice the steps": ("sentences_each=1", *_LONGER),
    "pretraining 600": ("pretraining.steps=600",),
    "K 2000": ("shape.own_words=2000",),
    "K 1000": ("shape.own_words=1000",),
    "latent 10000": ("shape.latent_tokens=10000",),
    "latent 4000": ("shape.latent_tokens=4000",),
    "one projection": ("shape.projection=shared",),
    "dropout 0.2": ("shape.dropout=0.2",),
    "masks 1e-2": ("objective.mask_weight=1e-2",),
    "neighbours 0.5": ("objective.neighbour_weight=0.5",),
    "weight decay 0.01": ("loop.weight_decay=0.01",),
}
"""What ``--sweep`` changes in the recipe."""
SWEPT_IN = ("SMALR",)

Job = tuple[str, int]


def main() -> None:
    options = _options()
    if options.commit or shutil.which("git") is None:
        os.environ.setdefault("POLYGLANCE_COMMIT", options.commit or "unknown")
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # before the workers load what counts cores
    settings = {name: SETTINGS[name] for name in options.only or SETTINGS}
    if options.sweep:
        settings = {
            f"{name} | {change}": (*SETTINGS[name], *changes, "measure_test=false")
            for name in options.only or SWEPT_IN
            for change, changes in SWEPT.items()
        }
    begin = time.monotonic()
    prepare(options)
    prepared = time.monotonic() - begin
    reports = run_all(settings, options)
    found = {name: summary(settings[name], reports[name]) for name in settings}
    for name, measured in found.items():
        print(f"{name:40} {_line(measured)}")
    figures = {
        "recipe": options.recipe,
        "changed_everywhere": options.change,
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        "seconds": {
            "preparing": round(prepared), "in_all": round(time.monotonic() - begin)
        },
        "settings": found,
    }  # fmt: skip
    name = "smalr_flickr8k_sweep" if options.sweep else "smalr_flickr8k"
    path = write_results(name, figures, options.out)
    if not options.sweep and options.document.is_file():
        smalr_page.fill(json.loads(path.read_text(encoding="utf-8")), options.document)


def prepare(options: argparse.Namespace) -> None:
    """Make what all runs share, where it is missing."""
    from polyglance.data.readers import read
    from polyglance.data.readers.base import ReadOptions
    from polyglance.errors import Problems
    from polyglance.recipes import open_recipe
    from polyglance.recipes.word_dictionaries import make_dictionaries
    from polyglance.recipes.word_texts import SPLITS, prepare_texts
    from polyglance.records import read_manifest
    from polyglance.vision.extraction import ExtractionSettings, extract

    recipe, data = open_recipe(options.recipe, _changes(options)).settings, options.data
    features = data / recipe.train.features
    if not features.exists():
        pictures = (data / recipe.train.manifest).parent
        settings = ExtractionSettings(
            backbone="resnet-50", views="ten", grid=1, labels=0, dtype="float16"
        )
        extract(pictures, features, settings, device=options.device)
        print(f"{features}: made", flush=True)
    parallel = data / PARALLEL
    problems = Problems(strict=True)
    sentences = list(read("jsonl", parallel, ReadOptions(), problems)) if parallel.is_file() else []
    make_dictionaries(
        list(read_manifest(data / recipe.train.manifest)),
        sentences,
        recipe.languages,
        str(data / recipe.dictionaries),
    )
    prepare_texts(
        {split: data / getattr(recipe, split).manifest for split in SPLITS},
        recipe.languages,
        recipe.word_vectors,
        recipe.vectors_width,
        cache=options.cache,
        device=options.device,
    )


def run_all(
    settings: Mapping[str, Sequence[str]], options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """Train every setting with every seed; returns their reports, by setting."""
    jobs = [(name, seed) for name in settings for seed in options.seeds]
    reports: dict[Job, dict[str, Any]] = {}

    def finished(job: Job, report: dict[str, Any]) -> None:
        reports[job] = report
        print(f"{job[0]}, seed {job[1]}: {_line(summary((), [report]))}", flush=True)

    if options.jobs == 1:
        for job in jobs:
            changes = _changes(options, settings, job)
            finished(job, run_one(_folder(options, job), changes, options))
    else:
        fresh = multiprocessing.get_context("spawn")  # a forked process cannot use accelerators
        with ProcessPoolExecutor(min(options.jobs, len(jobs)), mp_context=fresh) as pool:
            waiting: dict[Future[dict[str, Any]], Job] = {}
            for job in jobs:
                changes = _changes(options, settings, job)
                waiting[pool.submit(run_one, _folder(options, job), changes, options)] = job
            try:
                for done in as_completed(waiting):
                    finished(waiting[done], done.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # one failed: begin no others
                raise
    return {name: [reports[name, seed] for seed in options.seeds] for name in settings}


def run_one(folder: Path, changes: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Train once, in a worker, unless this very run is there already."""
    from polyglance.recipes import open_recipe

    report, asked = folder / "report.json", folder / "changes.json"
    wanted = [options.recipe, *changes]
    if not report.exists() or json.loads(asked.read_text(encoding="utf-8")) != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        asked.write_text(json.dumps(wanted), encoding="utf-8")
        open_recipe(options.recipe, changes).run(options.data, folder, device=options.device)
        shutil.rmtree(folder / "pretraining", ignore_errors=True)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def _folder(options: argparse.Namespace, job: Job) -> Path:
    runs: Path = options.runs
    return runs / re.sub(r"[^\w.+-]+", "-", job[0]) / str(job[1])


def _changes(
    options: argparse.Namespace,
    settings: Mapping[str, Sequence[str]] | None = None,
    job: Job | None = None,
) -> list[str]:
    """What is changed in the recipe: for all runs, or for one."""
    of_run: Sequence[str] = ()
    if settings is not None and job is not None:
        of_run = (*settings[job[0]], f"loop.seed={job[1]}")
    return [f"cache={options.cache}", *options.change, *of_run]


def summary(changes: Sequence[str], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sizes, and means and deviations over seeds of mR by language, with what each seed gave."""
    figures: dict[str, Any] = {
        "changes": list(changes),
        **{
            name: round(statistics.mean(report[name] for report in reports))
            for name in (
                "trainable_parameters", "word_parameters", "test_time_parameters",
                "words", "latent_tokens",
            )
        },
        "seconds": statistics.mean(report["seconds"] for report in reports),
        "pretraining_seconds": statistics.mean(r["pretraining_seconds"] for r in reports),
        "best_steps": [report["best_step"] for report in reports],
    }  # fmt: skip
    for split in ("validation", "test"):
        if split in reports[0]:
            figures[split] = {
                language: _spread([report[split][language]["mR"] for report in reports])
                for language in reports[0][split]
            }
    if "consistency" in reports[0]:
        figures["consistency"] = {
            source: {
                way: {
                    language: _spread([r["consistency"][source][way][language] for r in reports])
                    for language in reports[0]["consistency"][source][way]
                }
                for way in ("clc-a", "clc-c")
            }
            | {"parameters": reports[0]["consistency"][source]["parameters"]}
            for source in reports[0]["consistency"]
        }
    return figures


def _spread(values: Sequence[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "deviation": deviation, "seeds": list(values)}


def _line(measured: Mapping[str, Any]) -> str:
    splits = " ".join(
        f"{split} {measured[split]['average']['mean']:5.1f}"
        for split in ("validation", "test")
        if split in measured
    )
    clc = "".join(
        f" {source} {way} {measured['consistency'][source][way]['average']['mean']:.1f}"
        for source in measured.get("consistency", ())
        for way in ("clc-a", "clc-c")
    )
    millions = measured["trainable_parameters"] / 1e6
    seconds = measured["seconds"]
    return f"{millions:5.1f}M {splits}{clc} best {measured['best_steps']} {seconds:4.0f} s"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of flickr8k/")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=SETTINGS, metavar="SETTING", help="some alone")
    parser.add_argument("--sweep", action="store_true", help="hyper-parameters, on val alone")
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/smalr"), help="a folder a run")
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"), help="what runs share")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=smalr_page.PAGE, help="where tables go")
    parser.add_argument("--commit", help="which commit this is, where there is no git")
    return parser.parse_args()


if __name__ == "__main__":
    main()

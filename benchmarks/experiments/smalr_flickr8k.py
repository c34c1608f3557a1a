"""SMALR, its ablations and its baselines on Flickr8k in seven languages: size against recall.

Every row is the recipe ``smalr-flickr8k`` with a few settings changed, trained with
several seeds and measured on the 929 test pictures once. What the runs share is made
first, into ``--cache``, where it is missing: features of the pictures, dictionaries,
word vectors. Runs go through worker processes; those that finished before, by the
same settings, code and data, are not run again.

    python -m benchmarks.experiments.smalr_flickr8k --data DATA --device cuda --jobs 8
    python -m benchmarks.experiments.smalr_flickr8k --data DATA --device cuda --jobs 8 --sweep
    python -m benchmarks.experiments.smalr_flickr8k --data DATA --device cuda --jobs 8 --sweep --only MULE

``--sweep`` compares hyper-parameters, on the validation pictures alone: many of
SMALR's, of other rows the learning rate. ``smalr_page.py`` makes the page and the
plot from the results.
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

from benchmarks.experiments.staged_runs import note_making, same_making
from benchmarks.reports import smalr_page
from benchmarks.reports.seeds import spread
from benchmarks.results_io import RESULTS, write_results

RECIPE = "smalr-flickr8k"

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
    "SMALR, 2,500 tokens": ("model=smalr", "shape.latent_tokens=2500", _ALONE),
    "HEM": ("model=hem", _ALONE),
    "HEM, K 1000": ("model=hem", "shape.own_words=1000", _ALONE),
    "LA": ("model=language-agnostic", _ALONE),
    "translate to English": ("model=embn", "translate_to=en", _ALONE),
}
"""What is trained, the longest first; those that share latent tokens with SMALR after it.

A row whose sweep finds another learning rate than SMALR's has it here.
"""

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
"""What ``--sweep`` changes in the recipe of SMALR."""
RATES: dict[str, tuple[str, ...]] = {
    f"rate {rate}": (f"loop.learning_rate={rate}",) for rate in ("2e-3", "4e-3", "8e-3")
}
"""What it changes in other rows."""

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
            for name in options.only or ("SMALR",)
            for change, changes in (SWEPT if name == "SMALR" else RATES).items()
        }
    begin = time.monotonic()
    options.prepared = prepare(options)
    made_from = sources(options)
    prepared = time.monotonic() - begin
    reports = run_all(settings, made_from, options)
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


def prepare(options: argparse.Namespace) -> list[str]:
    """Make what all runs share, where it is missing; returns where features and dictionaries are.

    All goes into the cache. Features that the data has where the recipe looks for
    them are used as they are.
    """
    from polyglance.recipes import open_recipe
    from polyglance.recipes.keys import fingerprint
    from polyglance.recipes.smalr.texts import SPLITS, prepare_texts
    from polyglance.recipes.smalr.world import open_dictionaries
    from polyglance.vision.extraction import ExtractionSettings, extract

    recipe, data = open_recipe(options.recipe, _changes(options)).settings, options.data
    cache, found = options.cache.resolve(), []
    manifests = {split: data / getattr(recipe, split).manifest for split in SPLITS}
    if not (data / recipe.train.features).exists():
        settings = ExtractionSettings(
            backbone="resnet-50", views="ten", grid=1, labels=0, dtype="float16"
        )
        features = cache / f"features-{fingerprint(settings, *manifests.values())}"
        extract(manifests["train"].parent, features, settings, device=options.device)
        found += [f"{split}.features={features}" for split in SPLITS]
    dictionaries = open_dictionaries(recipe, data, cache)
    if dictionaries is not None:
        print(f"dictionaries: {dictionaries.pattern}", flush=True)
        found.append(f"dictionaries={dictionaries.pattern}")
    prepare_texts(
        manifests,
        recipe.languages,
        recipe.word_vectors,
        recipe.vectors_width,
        cache=cache,
        device=options.device,
    )
    return found


def sources(options: argparse.Namespace) -> dict[str, str]:
    """What runs are made from beside their settings: code, captions, features, dictionaries."""
    import polyglance
    from polyglance.recipes import open_recipe
    from polyglance.recipes.keys import fingerprint
    from polyglance.recipes.smalr.texts import SPLITS

    recipe, data = open_recipe(options.recipe, _changes(options)).settings, options.data
    splits = [getattr(recipe, split) for split in SPLITS]
    dictionaries = () if recipe.dictionaries is None else (_folder_of(data / recipe.dictionaries),)
    package = Path(polyglance.__file__).parent
    return {
        "code": fingerprint(*sorted(package.rglob("*.py"))),
        "captions": fingerprint(*(data / split.manifest for split in splits)),
        "features": fingerprint(*sorted({data / split.features for split in splits})),
        "dictionaries": fingerprint(*dictionaries),
    }


def _folder_of(pattern: Path) -> Path:
    """The folder whose files a pattern names."""
    return next(path for path in (pattern, *pattern.parents) if "{" not in str(path))


def run_all(
    settings: Mapping[str, Sequence[str]],
    made_from: Mapping[str, str],
    options: argparse.Namespace,
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
            finished(job, run_one(_folder(options, job), changes, made_from, options))
    else:
        fresh = multiprocessing.get_context("spawn")  # a forked process cannot use accelerators
        with ProcessPoolExecutor(min(options.jobs, len(jobs)), mp_context=fresh) as pool:
            waiting: dict[Future[dict[str, Any]], Job] = {}
            for job in jobs:
                changes = _changes(options, settings, job)
                folder = _folder(options, job)
                waiting[pool.submit(run_one, folder, changes, made_from, options)] = job
            try:
                for done in as_completed(waiting):
                    finished(waiting[done], done.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # one failed: begin no others
                raise
    return {name: [reports[name, seed] for seed in options.seeds] for name in settings}


def run_one(
    folder: Path,
    changes: Sequence[str],
    made_from: Mapping[str, str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Train once, in a worker, unless this very run is there already."""
    from polyglance.config import dump
    from polyglance.recipes import open_recipe

    report = folder / "report.json"
    recipe = open_recipe(options.recipe, changes)
    wanted = {"recipe": dump(recipe.settings), **made_from}
    if not report.exists() or not same_making(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note_making(folder, wanted)
        recipe.run(options.data, folder, device=options.device)
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
    cache = f"cache={options.cache.resolve()}"
    return [cache, *options.prepared, *options.change, *of_run]


def summary(changes: Sequence[str], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sizes, and means and deviations over seeds of mR by language, with what each seed gave."""
    figures: dict[str, Any] = {
        "changes": list(changes),
        **{
            name: round(statistics.mean(report[name] for report in reports))
            for name in (
                "trainable_parameters", "word_parameters", "test_time_parameters",
                "words", "latent_tokens", "pretraining_parameters",
            )
        },
        "seconds": statistics.mean(report["seconds"] for report in reports),
        "pretraining_seconds": statistics.mean(r["pretraining_seconds"] for r in reports),
        "best_steps": [report["best_step"] for report in reports],
        "coverage": {
            language: {
                kind: statistics.mean(report["coverage"][language][kind] for report in reports)
                for kind in shares
            }
            for language, shares in reports[0]["coverage"].items()
        },
    }  # fmt: skip
    for split in ("validation", "test"):
        if split in reports[0]:
            figures[split] = {
                language: spread([report[split][language]["mR"] for report in reports])
                for language in reports[0][split]
            }
    if "consistency" in reports[0]:
        figures["consistency"] = {
            source: {
                way: {
                    language: spread([r["consistency"][source][way][language] for r in reports])
                    for language in reports[0]["consistency"][source][way]
                }
                for way in smalr_page.WAYS
            }
            | {"parameters": reports[0]["consistency"][source]["parameters"]}
            for source in reports[0]["consistency"]
        }
    return figures


def _line(measured: Mapping[str, Any]) -> str:
    splits = " ".join(
        f"{split} {measured[split]['average']['mean']:5.1f}"
        for split in ("validation", "test")
        if split in measured
    )
    clc = "".join(
        f" {source} {way} {measured['consistency'][source][way]['average']['mean']:.1f}"
        for source in measured.get("consistency", ())
        for way in smalr_page.WAYS
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
    parser.set_defaults(prepared=[])  # where what is made first lies
    return parser.parse_args()


if __name__ == "__main__":
    main()

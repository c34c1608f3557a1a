"""SMALR, its ablations and its baselines on Flickr8k in seven languages: size against recall.

Every setting is the recipe ``smalr-flickr8k`` with a few changes, trained with several seeds and
evaluated once on the 929 test images. What runs share is prepared first, into ``--cache``, where
it is missing: image features, dictionaries, word vectors. Finished runs are not trained again.

    python -m benchmarks.experiments.smalr_flickr8k --data DATA --device cuda --jobs 8
    python -m benchmarks.experiments.smalr_flickr8k --data DATA --device cuda --jobs 8 --sweep
    python -m benchmarks.experiments.smalr_flickr8k --data DATA --device cuda --jobs 8 --masking

``--sweep`` compares hyper-parameters on the validation images only: many of SMALR's, and with
``--only MULE`` the learning rate of another model. ``--masking`` takes masked modelling apart
(results/smalr_masking.json). Writes results/smalr_flickr8k.json (or
smalr_flickr8k_sweep.json), fills docs/results-smalr.md and draws docs/images/smalr.svg.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.experiments.options import add_cache_option, experiment_parser, set_environment
from benchmarks.reports import smalr_page as page
from benchmarks.results_io import write_results
from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce.runs import Experiment, Job, Report, Run
from polyglance.reproduce.shared_data import folder_of_pattern
from polyglance.reproduce.summaries import smalr_setting

RECIPE = "smalr-flickr8k"

_NO_CLC = "consistency=false"
SETTINGS: dict[str, tuple[str, ...]] = {
    "SMALR": ("model=smalr",),
    "L-LIWE": ("model=large-liwe", _NO_CLC),
    "S-LIWE": ("model=small-liwe", _NO_CLC),
    "MULE": ("model=mule", _NO_CLC),
    "parallel EmbN": ("model=parallel-embn", _NO_CLC),
    "EmbN": ("model=embn", _NO_CLC),
    "PCA 200": ("model=pca-200", _NO_CLC),
    "PCA 100": ("model=pca-100", _NO_CLC),
    "PCA 50": ("model=pca-50", _NO_CLC),
    "dictionary 20": ("model=mule", "dictionary_min_count=20", _NO_CLC),
    "dictionary 5": ("model=mule", "dictionary_min_count=5", _NO_CLC),
    "frequency 20": ("model=mule", "min_count=20", _NO_CLC),
    "frequency 5": ("model=mule", "min_count=5", _NO_CLC),
    "SMALR, 2,500 tokens": ("model=smalr", "model_config.latent_tokens=2500", _NO_CLC),
    "HEM": ("model=hem", _NO_CLC),
    "HEM, K 1000": ("model=hem", "model_config.own_words=1000", _NO_CLC),
    "LA": ("model=language-agnostic", _NO_CLC),
    "translate to English": ("model=embn", "translate_to=en", _NO_CLC),
}  # fmt: skip
"""Settings by name, the longest first; those that share latent tokens with SMALR after it.

A model whose sweep prefers another learning rate than SMALR's has it here.
"""

_NO_EQUATION_2 = ("model_config.masked_modelling=false", "objective.mask_weight=0")
MASKING: dict[str, tuple[str, ...]] = {
    "HEM": ("model=hem", _NO_CLC),
    "masked captions, no equation 2": (*_NO_EQUATION_2, _NO_CLC),
    "SMALR: both, averaged over pairs": (_NO_CLC,),
    "both, summed over languages": ("objective.mask_reduction=sum-languages", _NO_CLC),
    "both, summed over all pairs": ("objective.mask_reduction=sum", _NO_CLC),
    "equation 2 alone, averaged": ("objective.match_masked=false", _NO_CLC),
    "equation 2 alone, summed over all pairs": (
        "objective.match_masked=false", "objective.mask_reduction=sum", _NO_CLC,
    ),
}  # fmt: skip
"""What ``--masking`` compares: the two parts of masked modelling, and readings of equation 2."""

_TWICE_THE_STEPS = ("loop.steps=2000", "loop.validate_every=500")
SWEEP: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "3 negatives": ("triplets.negatives=3",),
    "30 negatives": ("triplets.negatives=30",),
    "100 negatives": ("triplets.negatives=100",),
    "margin 0.05": ("triplets.margin=0.05",),
    "margin 0.2": ("triplets.margin=0.2",),
    "rate 1e-3": ("loop.learning_rate=1e-3",),
    "rate 2e-3": ("loop.learning_rate=2e-3",),
    "rate 8e-3": ("loop.learning_rate=8e-3",),
    "twice the steps": _TWICE_THE_STEPS,
    "batch 128, twice the steps": ("batch=128", *_TWICE_THE_STEPS),
    "one sentence, twice the steps": ("captions_per_language=1", *_TWICE_THE_STEPS),
    "pretraining 600": ("pretraining.steps=600",),
    "K 2000": ("model_config.own_words=2000",),
    "K 1000": ("model_config.own_words=1000",),
    "latent 10000": ("model_config.latent_tokens=10000",),
    "latent 4000": ("model_config.latent_tokens=4000",),
    "one projection": ("model_config.projection=shared",),
    "dropout 0.2": ("model_config.dropout=0.2",),
    "masks 1e-2": ("objective.mask_weight=1e-2",),
    "neighbours 0.5": ("objective.neighbour_weight=0.5",),
    "weight decay 0.01": ("loop.weight_decay=0.01",),
}
"""What ``--sweep`` changes for SMALR."""
RATE_SWEEP: dict[str, tuple[str, ...]] = {
    f"rate {rate}": (f"loop.learning_rate={rate}",) for rate in ("2e-3", "4e-3", "8e-3")
}
"""What ``--sweep`` changes for other models."""


def main() -> None:
    options = _parse_options()
    set_environment(options, threads=2)
    settings = {name: SETTINGS[name] for name in options.only or SETTINGS}
    if options.sweep:
        settings = {
            f"{name} | {change}": (*SETTINGS[name], *changes, "evaluate_test=false")
            for name in options.only or ("SMALR",)
            for change, changes in (SWEEP if name == "SMALR" else RATE_SWEEP).items()
        }
    if options.masking:
        settings = dict(MASKING)
    begin = time.monotonic()
    changes = prepare(options)
    inputs = fingerprint_inputs(options, changes)
    preparation = time.monotonic() - begin
    reports = run_all(settings, changes, inputs, options)
    summaries = {name: summary(settings[name], reports[name]) for name in settings}
    for name, measured in summaries.items():
        print(f"{name:40} {_progress_line(measured)}")
    figures = {
        "recipe": options.recipe,
        "common_changes": options.changes,
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        "seconds": {
            "preparation": round(preparation), "total": round(time.monotonic() - begin)
        },
        "settings": summaries,
    }  # fmt: skip
    name = "smalr_flickr8k_sweep" if options.sweep else "smalr_flickr8k"
    path = write_results(page.MASKING_RESULTS if options.masking else name, figures, options.out)
    if not options.sweep and options.document.is_file():
        fill = page.fill_masking if options.masking else page.fill
        fill(json.loads(path.read_text(encoding="utf-8")), options.document)


def prepare(options: argparse.Namespace) -> tuple[str, ...]:
    """Prepare what all runs share in the cache, where it is missing.

    Features that the data has where the recipe expects them are used as they are.

    Returns:
        Changes to the recipe: those of the command line, and where the cached files are.
    """
    from polyglance.recipes import open_recipe
    from polyglance.recipes.smalr.data import open_dictionaries
    from polyglance.recipes.smalr.lexicon_captions import SPLITS, prepare_captions
    from polyglance.utils.fingerprint import fingerprint
    from polyglance.vision.extraction import ExtractionSettings, extract

    cache, data = options.cache.resolve(), options.data
    changes = [f"cache_dir={cache}"]
    recipe = open_recipe(options.recipe, [*changes, *options.changes]).settings
    manifests = {split: data / getattr(recipe, split).manifest for split in SPLITS}
    if not (data / recipe.train.features).exists():
        settings = ExtractionSettings(
            backbone="resnet-50", views="ten", grid=1, labels=0, dtype="float16"
        )
        features = cache / f"features-{fingerprint(settings, *manifests.values())}"
        extract(manifests["train"].parent, features, settings, device=options.device)
        changes += [f"{split}.features={features}" for split in SPLITS]
    dictionaries = open_dictionaries(recipe, data, cache)
    if dictionaries is not None:
        print(f"dictionaries: {dictionaries.pattern}", flush=True)
        changes.append(f"dictionaries={dictionaries.pattern}")
    prepare_captions(
        manifests,
        recipe.languages,
        recipe.word_vectors,
        recipe.word_vector_dim,
        cache_dir=cache,
        device=options.device,
    )
    return (*changes, *options.changes)


def fingerprint_inputs(options: argparse.Namespace, changes: Sequence[str]) -> dict[str, str]:
    """Fingerprint the code, captions, features and dictionaries that runs read."""
    from polyglance.recipes import open_recipe
    from polyglance.recipes.smalr.lexicon_captions import SPLITS

    recipe, data = open_recipe(options.recipe, changes), options.data
    splits = [getattr(recipe.settings, split) for split in SPLITS]
    pattern = recipe.settings.dictionaries
    return staged_runs.fingerprints(
        recipe.system,
        captions=[data / split.manifest for split in splits],
        features=sorted({data / split.features for split in splits}),
        dictionaries=[] if pattern is None else [folder_of_pattern(data / pattern)],
    )


def run_all(
    settings: Mapping[str, Sequence[str]],
    changes: tuple[str, ...],
    inputs: Mapping[str, str],
    options: argparse.Namespace,
) -> dict[str, list[Report]]:
    """Train every setting with every seed; return the reports by setting."""
    experiment = Experiment(
        options.recipe, options.data, options.runs, options.device, changes, inputs,
        keep_weights=True,
    )  # fmt: skip

    def on_finished(job: Job, reports: Mapping[Job, Report]) -> None:
        line = _progress_line(summary((), [reports[job]]))
        print(f"{job[0]}, seed {job[1]}: {line}", flush=True)

    plan = [Run(name, tuple(own)) for name, own in settings.items()]
    jobs = [(name, seed) for name in settings for seed in options.seeds]
    reports = staged_runs.run_all(
        plan, jobs, experiment, max_workers=options.jobs, on_finished=on_finished
    )
    return {name: [reports[name, seed] for seed in options.seeds] for name in settings}


def summary(changes: Sequence[str], reports: Sequence[Report]) -> dict[str, Any]:
    """Summarise the seeds of a setting, with its changes."""
    return {"changes": list(changes), **smalr_setting(list(reports))}


def _progress_line(measured: Mapping[str, Any]) -> str:
    """Format the figures of a setting in a line."""
    splits = " ".join(
        f"{split} {measured[split]['average']['mean']:5.1f}"
        for split in ("validation", "test")
        if split in measured
    )
    clc = "".join(
        f" {source} {variant} {measured['consistency'][source][variant]['average']['mean']:.1f}"
        for source in measured.get("consistency", ())
        for variant in page.VARIANTS
    )
    millions = measured["trainable_parameters"] / 1e6
    seconds = measured["seconds"]
    return f"{millions:5.1f}M {splits}{clc} best {measured['best_steps']} {seconds:4.0f} s"


def _parse_options() -> argparse.Namespace:
    parser = experiment_parser(
        __doc__, data="flickr8k/", runs="runs/smalr", document=page.PAGE, recipe=RECIPE
    )
    add_cache_option(parser)
    parser.add_argument(
        "--only", nargs="+", choices=SETTINGS, metavar="SETTING", help="only these settings"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="compare hyper-parameters, on validation only"
    )
    parser.add_argument(
        "--masking", action="store_true", help="take masked modelling apart instead"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()

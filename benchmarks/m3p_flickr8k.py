"""M3P on Flickr8k in seven languages: the paper's Tables 2 to 6 in miniature.

Every run is the recipe ``m3p-flickr8k`` with a few settings changed: a pre-training,
measured as it is, or a fine-tuning that starts from one. There are just as many as the
rows of the tables need (``m3p_page.TABLES``). What they share is made first, into
``--cache``, where DATA has none: features, dictionaries, and with ``--rerank`` the
embeddings of the default dual encoder. Finished runs are not made again, interrupted
ones go on.

    python benchmarks/m3p_flickr8k.py --data DATA --device cuda --jobs 6 --rerank
    python benchmarks/m3p_flickr8k.py --data DATA --device cuda --tables 3 4 --seeds 0
    python benchmarks/m3p_flickr8k.py --list

Reading every pair of the 929 test pictures with their 32,500 captions takes minutes, so
tables are measured on the first ``--test-on`` pictures, and only the runs of ``--full``
on all, with the first seed. ``m3p_page.py`` makes the page from the results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import m3p_page as page
import seeds
import staged_runs
from measuring import RESULTS, write_results
from staged_runs import AFTER, Job, Report, Run, Workshop

if TYPE_CHECKING:
    from polyglance.records import Record

RECIPE = "m3p-flickr8k"
ENGLISH = page.ENGLISH
TEST_ON = 300
"""Test pictures that tables are measured on."""
SPLITS = ("train", "validation", "test")
NO_DUAL = "reranking=null"
NOTHING_ELSE = (
    "fine_tuning=null", "test=null", NO_DUAL,
    "loop.steps=1", "loop.learning_rate=1e-4", "loop.warmup=0", "loop.validate_every=0",
)  # fmt: skip
"""What a pre-training does not read: whatever that is for fine-tuning, it stays the same."""
STAGES = ("pretraining", "fine_tuning")
SAVE = "loop.save_every=1000"
"""The recipe saves at the end alone; a benchmark of hours should survive an interruption."""


def pretrainings(languages: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What each changes in the recipe; ``languages`` are those that MCT switches to."""
    plain = "pretraining.switched=false"

    def switched(count: int) -> str:
        return f"switching.languages=[{', '.join(languages[:count])}]"

    def tasks(*names: str) -> str:
        return f"pretraining.tasks=[{', '.join(names)}]"

    return {
        page.FULL: (),
        page.PLAIN: (plain,),
        page.MCT_2: (switched(2),),
        page.MCT_4: (switched(4),),
        # As in the paper, tasks are left out of pre-training without MCT.
        page.TASKS["xMLM"]: (plain, "pretraining.text_batch=0"),
        page.TASKS["MC-MLM"]: (plain, tasks("regions", "matching")),
        page.TASKS["MC-MRM"]: (plain, tasks("words", "matching")),
        page.TASKS["MC-VLM"]: (plain, tasks("words", "regions")),
    }


@dataclass(frozen=True)
class Prepared:
    """What was made for all runs, as changes in the recipe."""

    changes: tuple[str, ...] = ()
    """Where features and dictionaries are."""
    test_of: Mapping[str, str] = field(default_factory=dict)
    """Manifests of the test in one language alone, for runs of which no other is told."""
    dual: tuple[str, ...] = (NO_DUAL,)
    """Where the embeddings of the dual encoder are, for those that are measured on all."""


def plan(
    languages: Sequence[str],
    prepared: Prepared | None = None,
    *,
    test_on: int = TEST_ON,
    full: Sequence[str] = (),
) -> list[Run]:
    """All runs that the tables need, and those that measure some of them on the whole test."""
    prepared = prepared or Prepared()
    needed = {name for number in page.TABLES for name in names_of_table(number, languages)}
    begin, few = f"initialise_from={AFTER}/pretraining", f"test_on={test_on}"
    fine_tunings = {
        page.NONE: ("fine_tuning=null",),
        **{code: _on_language(code, prepared) for code in (ENGLISH, *languages)},
        page.ALL: ("fine_tuning.languages=null",),
        page.SWITCHED: ("fine_tuning.switched=true",),
    }
    runs = []
    for name, changes in pretrainings(languages).items():
        runs.append(Run(name, (*changes, *NOTHING_ELSE)))
        for on, tuned in fine_tunings.items():
            if f"{name} > {on}" in needed:
                start = ("pretraining=null", begin, few, NO_DUAL)
                runs.append(Run(f"{name} > {on}", (*start, *tuned), name))
    return [*runs, *(_on_the_whole(name, prepared) for name in full)]


def names_of_table(number: int, languages: Sequence[str]) -> list[str]:
    """The runs that a table is made of."""
    settings = page.TABLES[number].rows.values()
    return [name for setting in settings for name in page.run_names(setting, (ENGLISH, *languages))]


def _on_language(code: str, prepared: Prepared) -> tuple[str, ...]:
    """Fine-tuned on one language, which alone is measured unless it is English."""
    changes = (f"fine_tuning.languages=[{code}]",)
    if code not in prepared.test_of:
        return changes
    return (*changes, f"test.manifest={prepared.test_of[code]}")


def _on_the_whole(name: str, prepared: Prepared) -> Run:
    """What a run has learned, measured on all test pictures."""
    pretraining, _, on = name.partition(" > ")
    after, stage = (pretraining, "pretraining") if on == page.NONE else (name, "fine_tuning")
    start = f"initialise_from={AFTER}/{stage}"
    changes = ("pretraining=null", "fine_tuning=null", start, "test_on=null", *prepared.dual)
    return Run(f"{name} > {page.WHOLE}", changes, after)


def main() -> None:
    from polyglance.recipes import open_recipe

    options = _options()
    recipe = open_recipe(options.recipe, options.change).settings
    languages = recipe.switching.languages
    if options.list:
        for run in plan(languages, full=options.full):
            print(f"{run.name:28} {'; '.join(run.changes)}")
        return
    if options.commit or shutil.which("git") is None:
        os.environ.setdefault("POLYGLANCE_COMMIT", options.commit or "unknown")
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # before the workers load what counts cores
    prepared = prepare(options)
    runs = plan(languages, prepared, test_on=options.test_on, full=options.full)
    wanted = chosen(runs, languages, options)
    shop = workshop(options, prepared)

    def finished(job: Job, reports: Mapping[Job, Report]) -> None:
        print(f"{job[0]}, seed {job[1]}: {line(reports[job])}", flush=True)
        write(runs, reports, languages, options)

    reports = staged_runs.run_all(runs, wanted, shop, at_once=options.jobs, finished=finished)
    written = write(runs, reports, languages, options)
    if options.document.is_file():
        page.fill(json.loads(written.read_text(encoding="utf-8")), options.document)


def chosen(runs: Sequence[Run], languages: Sequence[str], options: argparse.Namespace) -> list[Job]:
    """The runs that are asked for, by name or by table; whole tests with the first seed alone."""
    wanted = set(options.only or ())
    if unknown := (wanted | set(options.full)) - {run.name for run in runs}:
        raise SystemExit(f"there is no run {min(unknown)!r}: --list names them")
    if not wanted:
        wanted.update(*(names_of_table(number, languages) for number in options.tables))
        wanted.update(f"{name} > {page.WHOLE}" for name in options.full)
    return [
        (run.name, seed)
        for seed in options.seeds
        for run in runs
        if run.name in wanted and (seed == options.seeds[0] or not run.name.endswith(page.WHOLE))
    ]


def workshop(options: argparse.Namespace, prepared: Prepared) -> Workshop:
    """What all runs have in common."""
    from polyglance.recipes import open_recipe

    changes = (SAVE, *prepared.changes, *options.change)
    recipe, data = open_recipe(options.recipe, changes), options.data.resolve()
    settings = recipe.settings
    splits = [*(getattr(settings, split) for split in SPLITS), *settings.more]
    stores = set() if settings.eyes else {data / split.features for split in splits}
    pattern = data / settings.switching.dictionaries
    made_from = staged_runs.fingerprints(
        recipe.kind,
        captions=[data / split.manifest for split in splits],
        texts=[data / text.manifest for text in settings.texts],
        features=sorted(stores),
        dictionaries=[next(p for p in pattern.parents if "{" not in str(p))],
    )
    return Workshop(options.recipe, data, options.runs, options.device, changes, made_from)


def prepare(options: argparse.Namespace) -> Prepared:
    """Make what runs share into the cache, where the data has none."""
    from polyglance.recipes import open_recipe
    from polyglance.recipes.word_dictionaries import learned_dictionaries
    from polyglance.recipes.word_keys import fingerprint
    from polyglance.records import write_manifest
    from polyglance.vision.extraction import ExtractionSettings, extract

    recipe = open_recipe(options.recipe, options.change).settings
    data, cache = options.data.resolve(), options.cache.resolve()
    manifests = {split: data / getattr(recipe, split).manifest for split in SPLITS}
    changes = []
    if not recipe.eyes and not (data / recipe.train.features).exists():
        settings = ExtractionSettings()
        features = cache / f"features-{fingerprint(settings, *manifests.values())}"
        extract(manifests["train"].parent, features, settings, device=options.device)
        changes += [f"{split}.features={features}" for split in SPLITS]
    languages = recipe.switching.languages
    files = [
        data / recipe.switching.dictionaries.format(source=ENGLISH, target=language)
        for language in languages
    ]
    if not all(path.is_file() for path in files):
        parallel = [data / text.manifest for text in recipe.texts if text.format == "jsonl"]
        pattern = learned_dictionaries(
            manifests["train"], next(iter(parallel), None), languages, cache=cache
        )
        print(f"dictionaries: {pattern}", flush=True)
        changes.append(f"switching.dictionaries={pattern}")
    test_of = {}
    for language in languages:
        path = cache / f"test-{fingerprint(manifests['test'])}-{language}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_manifest(path, _in_language(manifests["test"], language, absolute=bool(recipe.eyes)))
        test_of[language] = str(path)
    dual = Prepared.dual
    if options.rerank:
        folders = {name: _embedded(manifests[name], cache) for name in ("test", "validation")}
        dual = (
            f"reranking.dual={folders['test']}",
            f"reranking.validation={folders['validation']}",
            f"reranking.candidates={page.CANDIDATES}",
        )
    return Prepared(tuple(changes), test_of, dual)


def _in_language(manifest: Path, language: str, *, absolute: bool) -> Iterator[Record]:
    """A manifest with the captions of one language; others' pictures stay candidates."""
    from polyglance.records import read_manifest

    for record in read_manifest(manifest):
        image = str(manifest.parent / str(record.image)) if absolute else record.image
        yield replace(record, image=image, captions={language: record.captions.get(language, ())})


def _embedded(manifest: Path, cache: Path) -> Path:
    """A manifest's pictures and captions as the default dual encoder sees them, made once."""
    from polyglance.encoders.folder import find
    from polyglance.recipes.word_keys import fingerprint
    from polyglance.weights.cache import make_once

    def make(partial: Path) -> None:
        script = Path(__file__).with_name("dual_embeddings.py")
        subprocess.run([sys.executable, script, manifest, "--out", partial], check=True)

    folder = cache / f"dual-{fingerprint(manifest, find(None))}"
    return make_once(folder, lambda path: path.is_dir(), make)


def write(
    runs: Sequence[Run],
    reports: Mapping[Job, Report],
    languages: Sequence[str],
    options: argparse.Namespace,
) -> Path:
    """Write the results of all runs that there are so far."""
    found = {}
    for run in runs:
        if of_run := {seed: r for (name, seed), r in reports.items() if name == run.name}:
            found[run.name] = summary(run, of_run)
    figures = {
        "recipe": options.recipe,
        "changed_everywhere": options.change,
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        "languages": [ENGLISH, *languages],
        "test_on": options.test_on,
        "runs": found,
    }
    return write_results("m3p_flickr8k", figures, options.out)


def summary(run: Run, reports: Mapping[int, Report]) -> dict[str, Any]:
    """mR by way of measuring and language over seeds, and what training took."""
    stages = [[report[stage] for stage in STAGES if stage in report] for report in reports.values()]
    first, *_ = reports.values()
    return {
        "after": run.after,
        "changes": list(run.changes),
        "seeds": list(reports),
        "seconds": statistics.mean(sum(stage["seconds"] for stage in each) for each in stages),
        "best_steps": [stage["best_step"] for each in stages for stage in each],
        "trust": [report["validation"]["trust"] for report in reports.values()
                  if "validation" in report],
        "test": {
            way: {
                language: seeds.spread([r["test"][way][language]["mR"] for r in reports.values()])
                for language in measured
            }
            for way, measured in first.get("test", {}).items()
        },
    }  # fmt: skip


def line(report: Report) -> str:
    """The figures of one run in short."""
    said = [f"{report[stage]['seconds']:.0f} s" for stage in STAGES if stage in report]
    for way, measured in report.get("test", {}).items():
        recalls = (f"{language} {found['mR']:.1f}" for language, found in measured.items())
        said.append(f"{way.replace('_', ' ')}: {', '.join(recalls)}")
    return "; ".join(said)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of flickr8k/ and text/")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tables", type=int, nargs="+", choices=page.TABLES, default=page.TABLES)
    parser.add_argument("--only", nargs="+", metavar="RUN", help="some runs alone, by name")
    parser.add_argument("--list", action="store_true", help="name all runs and what they change")
    parser.add_argument("--test-on", type=int, default=TEST_ON, help="test pictures of the tables")
    parser.add_argument("--full", nargs="*", metavar="RUN", default=[page.JUDGED],
                        help="runs to measure on the whole test as well")  # fmt: skip
    parser.add_argument("--rerank", action="store_true", help="there, re-rank a dual encoder too")
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/m3p"), help="a folder a run")
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"), help="what runs share")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=page.PAGE, help="where tables go")
    parser.add_argument("--commit", help="which commit this is, where there is no git")
    options = parser.parse_args()
    if options.data is None and not options.list:
        parser.error("--data is needed: the folder of flickr8k/ and text/")
    return options


if __name__ == "__main__":
    main()

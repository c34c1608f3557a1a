"""What the experiments of M3P and UC2 on Flickr8k share: plan, prepare, train and write results.

Every run is a system's recipe with a few changes: a pre-training, or a fine-tuning that starts
from one and is evaluated. There are just as many as the rows of the tables need. What runs share
is prepared first, into ``--cache``, where DATA does not have it; both systems find it there.
Finished runs are not trained again, interrupted ones resume.

Scoring every pair of the 929 test images with their 22,985 captions takes minutes, so tables are
measured on the first ``--test-images``. ``reranking_flickr8k`` measures on the whole test set.
"""

from __future__ import annotations

import argparse
import json
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.experiments.options import add_cache_option, experiment_parser, set_environment
from benchmarks.reports import seeds
from benchmarks.reports.cross_encoder_tables import ALL, ENGLISH, NONE, Table
from benchmarks.results_io import write_results
from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce import shared_data as prepare
from polyglance.reproduce.runs import PARENT, SAVE, Experiment, Job, Report, Run
from polyglance.reproduce.shared_data import SPLITS, Changes, PreparedData
from polyglance.reproduce.summaries import recalls_by_protocol

Options = argparse.Namespace

TEST_IMAGES = 300
"""Test images that tables are measured on."""
NO_RERANKING = "reranking=null"
PRETRAINING_ONLY = (
    "fine_tuning=null", "test=null", NO_RERANKING,
    "loop.steps=1", "loop.learning_rate=1e-4", "loop.warmup=0", "loop.validate_every=0",
)  # fmt: skip
"""Fix what a pre-training does not use, so that changes to fine-tuning do not train it again."""


class CrossEncoderBenchmark(ABC):
    """A system's tables on Flickr8k, as a command."""

    results: ClassVar[str]
    """Name of the file of results."""
    recipe: ClassVar[str]
    runs: ClassVar[str]
    """Default folder of all runs."""
    tables: ClassVar[Mapping[int, Table]]
    document: ClassVar[Path]
    stages: ClassVar[Sequence[str]]
    """All stages of the recipe; the last is fine-tuning."""
    needs_dictionaries_to_english: ClassVar[bool] = False

    @property
    def reported_stages(self) -> tuple[str, ...]:
        """The stages that a report may have: pre-training may begin with matching alone."""
        return ("itm_only", *self.stages)

    @abstractmethod
    def languages(self, options: Options) -> Sequence[str]:
        """Return all languages of the tables but English."""

    @abstractmethod
    def pretrainings(self, languages: Sequence[str]) -> dict[str, Changes]:
        """Return the changes of each pre-training by its name."""

    @abstractmethod
    def text_corpora(self, recipe: Any) -> Sequence[Any]:
        """Return the corpora of text without images that a recipe reads."""

    @abstractmethod
    def dictionaries(self, recipe: Any) -> str:
        """Return the recipe's path of dictionaries, with {source} and {target} for languages."""

    @abstractmethod
    def dictionary_changes(self, pattern: str) -> Changes:
        """Return the changes that make a recipe read its dictionaries elsewhere."""

    @abstractmethod
    def fill(self, figures: Mapping[str, Any], document: Path, results: Path) -> None:
        """Fill the docs page; ``results`` is the folder of result files."""

    def fine_tunings(self, languages: Sequence[str], prepared: PreparedData) -> dict[str, Changes]:
        """Return the changes of each fine-tuning by its name.

        A model fine-tuned on one language other than English is tested in that language alone.
        """
        changes: dict[str, Changes] = {NONE: ("fine_tuning=null",)}
        for code in (ENGLISH, *languages):
            changes[code] = (f"fine_tuning.languages=[{code}]",)
            if code in prepared.test_manifests:
                changes[code] += (f"test.manifest={prepared.test_manifests[code]}",)
        return {**changes, ALL: ("fine_tuning.languages=null",)}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of one system alone."""
        del parser

    def prepare_extra(self, options: Options, changes: Changes) -> Changes:
        """Prepare what one system alone needs; return the changes that name it."""
        del options, changes
        return ()

    def plan(
        self,
        languages: Sequence[str],
        prepared: PreparedData | None = None,
        *,
        test_images: int = TEST_IMAGES,
    ) -> list[Run]:
        """Return all runs that the tables need."""
        prepared = prepared or PreparedData()
        needed = {name for number in self.tables for name in self.table_runs(number, languages)}
        fine_tunings = self.fine_tunings(languages, prepared)
        no_earlier_stages = tuple(f"{stage}=null" for stage in self.stages[:-1])
        initialise = f"initialise_from={PARENT}/pretraining"
        start = (*no_earlier_stages, initialise, f"test_images={test_images}", NO_RERANKING)
        runs = []
        for name, changes in self.pretrainings(languages).items():
            runs.append(Run(name, (*changes, *PRETRAINING_ONLY)))
            runs += [
                Run(f"{name} > {on}", (*start, *tuning), name)
                for on, tuning in fine_tunings.items()
                if f"{name} > {on}" in needed
            ]
        return runs

    def table_runs(self, number: int, languages: Sequence[str]) -> list[str]:
        """Return the names of the runs that a table needs."""
        return self.tables[number].run_names((ENGLISH, *languages))

    def main(self) -> None:
        """Run the command."""
        options = self._parse_options()
        languages = self.languages(options)
        if options.list:
            for run in self.plan(languages):
                print(f"{run.name:28} {'; '.join(run.changes)}")
            return
        set_environment(options, threads=2)
        prepared = self.prepare(options)
        runs = self.plan(languages, prepared, test_images=options.test_images)
        wanted = self._wanted(runs, languages, options)
        experiment = self._experiment(options, prepared)

        def on_finished(job: Job, reports: Mapping[Job, Report]) -> None:
            print(f"{job[0]}, seed {job[1]}: {self._progress_line(reports[job])}", flush=True)
            self._write(runs, reports, experiment, languages, options)

        reports = staged_runs.run_all(
            runs, wanted, experiment, max_workers=options.jobs, on_finished=on_finished
        )
        path = self._write(runs, reports, experiment, languages, options)
        if options.document.is_file():
            figures = json.loads(path.read_text(encoding="utf-8"))
            self.fill(figures, options.document, options.out)

    def _wanted(self, runs: Sequence[Run], languages: Sequence[str], options: Options) -> list[Job]:
        """Return the runs that are asked for, by name or by table."""
        wanted = set(options.only or ())
        if unknown := wanted - {run.name for run in runs}:
            raise SystemExit(f"there is no run {min(unknown)!r}: --list names them")
        if not wanted:
            wanted.update(*(self.table_runs(number, languages) for number in options.tables))
        return [(run.name, seed) for seed in options.seeds for run in runs if run.name in wanted]

    def _experiment(self, options: Options, prepared: PreparedData) -> Experiment:
        """Return what all runs have in common."""
        from polyglance.recipes import open_recipe

        changes = (SAVE, *prepared.changes, *options.changes)
        recipe, data = open_recipe(options.recipe, changes), options.data.resolve()
        settings = recipe.settings
        splits = [*(getattr(settings, split) for split in SPLITS), *settings.extra_train]
        stores = set() if settings.image_backbone else {data / split.features for split in splits}
        pattern = data / self.dictionaries(settings)
        inputs = staged_runs.fingerprints(
            recipe.system,
            captions=[data / split.manifest for split in splits],
            texts=[data / corpus.manifest for corpus in self.text_corpora(settings)],
            features=sorted(stores),
            dictionaries=[prepare.folder_of_pattern(pattern)],
        )
        return Experiment(
            options.recipe, data, options.runs, options.device, changes, inputs,
            keep_weights=options.keep_weights,
        )  # fmt: skip

    def prepare(self, options: Options) -> PreparedData:
        """Prepare what runs share in the cache, where the data does not have it."""
        from polyglance.recipes import open_recipe

        recipe = open_recipe(options.recipe, options.changes).settings
        data, cache = options.data.resolve(), options.cache.resolve()
        languages, manifests = self.languages(options), prepare.manifests(recipe, data)
        changes = prepare.extract_features(recipe, data, cache, options.device)
        pattern = self.dictionaries(recipe)
        learned = prepare.learn_dictionaries(
            pattern, languages, manifests["train"], self.text_corpora(recipe), data, cache,
            to_english=self.needs_dictionaries_to_english,
        )  # fmt: skip
        if learned is not None:
            changes += self.dictionary_changes(learned)
        test_manifests = prepare.write_test_manifests(
            manifests["test"], languages, cache, absolute=bool(recipe.image_backbone)
        )
        changes += self.prepare_extra(options, changes)
        return PreparedData(changes, learned or pattern, test_manifests)

    def _write(
        self,
        runs: Sequence[Run],
        reports: Mapping[Job, Report],
        experiment: Experiment,
        languages: Sequence[str],
        options: Options,
    ) -> Path:
        """Write the results of all runs finished so far."""
        by_run = {}
        for run in runs:
            if by_seed := {seed: r for (name, seed), r in reports.items() if name == run.name}:
                by_run[run.name] = self.summary(run, by_seed)
                by_run[run.name]["changes"] = with_symbolic_folders(run.changes, options)
        figures = {
            "commits": staged_runs.count_commits(experiment, reports),
            "recipe": options.recipe,
            "common_changes": with_symbolic_folders(options.changes, options),
            "device": options.device,
            "runs_at_once": options.jobs,
            "seeds": options.seeds,
            "languages": [ENGLISH, *languages],
            "test_images": options.test_images,
            "runs": by_run,
        }
        return write_results(self.results, figures, options.out)

    def summary(self, run: Run, reports: Mapping[int, Report]) -> dict[str, Any]:
        """Summarise a run over seeds: mR by protocol and language, steps and seconds."""
        stages = [
            [report[stage] for stage in self.reported_stages if stage in report]
            for report in reports.values()
        ]
        recalls = [recalls_by_protocol(report) for report in reports.values()]
        first = next(iter(reports.values()))
        steps = {stage: first[stage]["steps"] for stage in self.reported_stages if stage in first}
        return {
            "parent": run.parent,
            "seeds": list(reports),
            "seconds": statistics.mean(sum(stage["seconds"] for stage in each) for each in stages),
            "steps": sum(steps.values()),
            "stages": steps,
            "best_steps": [stage["best_step"] for each in stages for stage in each],
            "test": {
                protocol: {
                    language: seeds.spread([each[protocol][language]["mR"] for each in recalls])
                    for language in languages
                }
                for protocol, languages in recalls[0].items()
            },
        }  # fmt: skip

    def _progress_line(self, report: Report) -> str:
        """Format the figures of one run in a line."""
        stages = (report[stage] for stage in self.reported_stages if stage in report)
        parts = [f"{stage['seconds']:.0f} s" for stage in stages]
        for protocol, by_language in recalls_by_protocol(report).items():
            recalls = (f"{language} {test['mR']:.1f}" for language, test in by_language.items())
            parts.append(f"{protocol.replace('_', ' ')}: {', '.join(recalls)}")
        return "; ".join(parts)

    def _parse_options(self) -> Options:
        parser = experiment_parser(
            type(self).__doc__, data="flickr8k/ and text/", runs=self.runs,
            document=self.document, recipe=self.recipe, data_required=False,
        )  # fmt: skip
        add_cache_option(parser)
        parser.add_argument(
            "--tables", type=int, nargs="+", choices=self.tables, default=self.tables
        )
        parser.add_argument("--only", nargs="+", metavar="RUN", help="only these runs, by name")
        parser.add_argument("--list", action="store_true", help="list all runs and their changes")
        parser.add_argument(
            "--test-images",
            type=int,
            default=TEST_IMAGES,
            help="number of test images of the tables",
        )
        parser.add_argument(
            "--keep-weights", action="store_true", help="keep fine-tuned models as well"
        )
        self.add_options(parser)
        options = parser.parse_args()
        if options.data is None and not options.list:
            parser.error("--data is required: the folder of flickr8k/ and text/")
        return options


def with_symbolic_folders(changes: Sequence[str], options: Options) -> list[str]:
    """Replace this machine's folders in changes by DATA, CACHE and RUNS."""
    folders = {"DATA": options.data, "CACHE": options.cache, "RUNS": options.runs}
    symbolic = list(changes)
    for name, folder in folders.items():
        symbolic = [change.replace(str(folder.resolve()), name) for change in symbolic]
    return symbolic

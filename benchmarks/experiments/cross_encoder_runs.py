"""Runs that tables of M3P or UC2 on Flickr8k are made of: prepared, made, written down.

Every run is a system's recipe with a few settings changed: a pre-training, measured as it
is, or a fine-tuning that starts from one. There are just as many as the rows of the tables
need. What they share is made first, into ``--cache``, where DATA has none; both systems
find it there. Finished runs are not made again, interrupted ones go on.

Reading every pair of the 929 test pictures with their 22,985 captions takes minutes, so
tables are measured on the first ``--test-on`` pictures. How well such models can get, and
on the whole test, is asked by ``reranking_flickr8k.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.experiments import prepare_cross_encoder_data, staged_runs
from benchmarks.experiments.prepare_cross_encoder_data import SPLITS, Changes, Prepared
from benchmarks.experiments.staged_runs import AFTER, SAVE, Job, Report, Run, Workshop
from benchmarks.reports import seeds
from benchmarks.reports.cross_encoder_tables import ALL, ENGLISH, NONE, Table
from benchmarks.results_io import RESULTS, write_results

Options = argparse.Namespace

TEST_ON = 300
"""Test pictures that tables are measured on."""
NO_DUAL = "reranking=null"
NOTHING_ELSE = (
    "fine_tuning=null", "test=null", NO_DUAL,
    "loop.steps=1", "loop.learning_rate=1e-4", "loop.warmup=0", "loop.validate_every=0",
)  # fmt: skip
"""What a pre-training does not read: whatever that is for fine-tuning, it stays the same."""


class PairBenchmark(ABC):
    """A system's tables on Flickr8k, as a command."""

    results: ClassVar[str]
    """What the file of results is called."""
    recipe: ClassVar[str]
    runs: ClassVar[str]
    """The folder of all runs, where no other is given."""
    tables: ClassVar[Mapping[int, Table]]
    document: ClassVar[Path]
    stages: ClassVar[Sequence[str]]
    """All of the recipe's; the last is fine-tuning."""

    @property
    def reported(self) -> tuple[str, ...]:
        """What a report may tell of: pre-training may begin with matching alone."""
        return ("matching", *self.stages)

    both_ways: ClassVar[bool] = False
    """Whether dictionaries to English are needed as well."""

    @abstractmethod
    def languages(self, options: Options) -> Sequence[str]:
        """All that tables tell of, but English."""

    @abstractmethod
    def pretrainings(self, languages: Sequence[str]) -> dict[str, Changes]:
        """What each changes in the recipe."""

    @abstractmethod
    def texts(self, recipe: Any) -> Sequence[Any]:
        """Sentences without pictures that a recipe reads."""

    @abstractmethod
    def dictionaries(self, recipe: Any) -> str:
        """Where a recipe looks for them, with {source} and {target} for codes."""

    @abstractmethod
    def taking_dictionaries(self, pattern: str) -> Changes:
        """The changes by which they are taken from elsewhere."""

    @abstractmethod
    def fill(self, figures: Mapping[str, Any], document: Path, results: Path) -> None:
        """Put what was measured into the page; ``results`` is the folder of result files."""

    def fine_tunings(self, languages: Sequence[str], prepared: Prepared) -> dict[str, Changes]:
        """What each changes; on one language, that one alone is measured unless it is English."""
        found: dict[str, Changes] = {NONE: ("fine_tuning=null",)}
        for code in (ENGLISH, *languages):
            found[code] = (f"fine_tuning.languages=[{code}]",)
            if code in prepared.test_of:
                found[code] += (f"test.manifest={prepared.test_of[code]}",)
        return {**found, ALL: ("fine_tuning.languages=null",)}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Options of one system alone."""
        del parser

    def prepare_more(self, options: Options, changes: Changes) -> Changes:
        """Make what one system alone needs; returns where it is."""
        del options, changes
        return ()

    def plan(
        self,
        languages: Sequence[str],
        prepared: Prepared | None = None,
        *,
        test_on: int = TEST_ON,
    ) -> list[Run]:
        """All runs that the tables need."""
        prepared = prepared or Prepared()
        needed = {name for number in self.tables for name in self.of_table(number, languages)}
        fine_tunings = self.fine_tunings(languages, prepared)
        runs = []
        for name, changes in self.pretrainings(languages).items():
            runs.append(Run(name, (*changes, *NOTHING_ELSE)))
            for on, tuned in fine_tunings.items():
                if f"{name} > {on}" in needed:
                    begin = f"initialise_from={AFTER}/pretraining"
                    start = (*self._without_before(), begin, f"test_on={test_on}", NO_DUAL)
                    runs.append(Run(f"{name} > {on}", (*start, *tuned), name))
        return runs

    def of_table(self, number: int, languages: Sequence[str]) -> list[str]:
        """The runs that a table is made of."""
        return self.tables[number].run_names((ENGLISH, *languages))

    def _without_before(self) -> Changes:
        """No stage before fine-tuning."""
        return tuple(f"{stage}=null" for stage in self.stages[:-1])

    def main(self) -> None:
        """The command."""
        options = self._options()
        languages = self.languages(options)
        if options.list:
            for run in self.plan(languages):
                print(f"{run.name:28} {'; '.join(run.changes)}")
            return
        if options.commit or shutil.which("git") is None:
            os.environ.setdefault("POLYGLANCE_COMMIT", options.commit or "unknown")
        os.environ.setdefault("OMP_NUM_THREADS", "2")  # before the workers load what counts cores
        prepared = self.prepare(options)
        runs = self.plan(languages, prepared, test_on=options.test_on)
        wanted = self._chosen(runs, languages, options)
        shop = self._workshop(options, prepared)

        def finished(job: Job, reports: Mapping[Job, Report]) -> None:
            print(f"{job[0]}, seed {job[1]}: {self._line(reports[job])}", flush=True)
            self._write(runs, reports, shop, languages, options)

        reports = staged_runs.run_all(runs, wanted, shop, at_once=options.jobs, finished=finished)
        written = self._write(runs, reports, shop, languages, options)
        if options.document.is_file():
            figures = json.loads(written.read_text(encoding="utf-8"))
            self.fill(figures, options.document, options.out)

    def _chosen(self, runs: Sequence[Run], languages: Sequence[str], options: Options) -> list[Job]:
        """The runs that are asked for, by name or by table."""
        wanted = set(options.only or ())
        if unknown := wanted - {run.name for run in runs}:
            raise SystemExit(f"there is no run {min(unknown)!r}: --list names them")
        if not wanted:
            wanted.update(*(self.of_table(number, languages) for number in options.tables))
        return [(run.name, seed) for seed in options.seeds for run in runs if run.name in wanted]

    def _workshop(self, options: Options, prepared: Prepared) -> Workshop:
        """What all runs have in common."""
        from polyglance.recipes import open_recipe

        changes = (SAVE, *prepared.changes, *options.change)
        recipe, data = open_recipe(options.recipe, changes), options.data.resolve()
        settings = recipe.settings
        splits = [*(getattr(settings, split) for split in SPLITS), *settings.more]
        stores = set() if settings.eyes else {data / split.features for split in splits}
        pattern = data / self.dictionaries(settings)
        made_from = staged_runs.fingerprints(
            recipe.kind,
            captions=[data / split.manifest for split in splits],
            texts=[data / text.manifest for text in self.texts(settings)],
            features=sorted(stores),
            dictionaries=[next(p for p in pattern.parents if "{" not in str(p))],
        )
        return Workshop(
            options.recipe, data, options.runs, options.device, changes, made_from,
            keep_weights=options.keep_weights,
        )  # fmt: skip

    def prepare(self, options: Options) -> Prepared:
        """Make what runs share into the cache, where the data has none."""
        from polyglance.recipes import open_recipe

        recipe = open_recipe(options.recipe, options.change).settings
        data, cache = options.data.resolve(), options.cache.resolve()
        languages, files = (
            self.languages(options),
            prepare_cross_encoder_data.manifests(recipe, data),
        )
        changes = prepare_cross_encoder_data.features(recipe, data, cache, options.device)
        texts, known = self.texts(recipe), self.dictionaries(recipe)
        learned = prepare_cross_encoder_data.dictionaries(
            known, languages, files["train"], texts, data, cache, both_ways=self.both_ways
        )
        if learned is not None:
            changes += self.taking_dictionaries(learned)
        test_of = prepare_cross_encoder_data.tests_by_language(
            files["test"], languages, cache, absolute=bool(recipe.eyes)
        )
        changes += self.prepare_more(options, changes)
        return Prepared(changes, learned or known, test_of)

    def _write(
        self,
        runs: Sequence[Run],
        reports: Mapping[Job, Report],
        shop: Workshop,
        languages: Sequence[str],
        options: Options,
    ) -> Path:
        """Write the results of all runs that there are so far."""
        found = {}
        for run in runs:
            if of_run := {seed: r for (name, seed), r in reports.items() if name == run.name}:
                found[run.name] = self.summary(run, of_run)
                found[run.name]["changes"] = anywhere(run.changes, options)
        figures = {
            "made_at": staged_runs.commits(shop, reports),
            "recipe": options.recipe,
            "changed_everywhere": anywhere(options.change, options),
            "device": options.device,
            "runs_at_once": options.jobs,
            "seeds": options.seeds,
            "languages": [ENGLISH, *languages],
            "test_on": options.test_on,
            "runs": found,
        }
        return write_results(self.results, figures, options.out)

    def summary(self, run: Run, reports: Mapping[int, Report]) -> dict[str, Any]:
        """mR by way of measuring and language over seeds, and what training took."""
        stages = [
            [report[stage] for stage in self.reported if stage in report]
            for report in reports.values()
        ]
        measured = [ways_of(report) for report in reports.values()]
        first = next(iter(reports.values()))
        steps = {stage: first[stage]["steps"] for stage in self.reported if stage in first}
        return {
            "after": run.after,
            "seeds": list(reports),
            "seconds": statistics.mean(sum(stage["seconds"] for stage in each) for each in stages),
            "steps": sum(steps.values()),
            "stages": steps,
            "best_steps": [stage["best_step"] for each in stages for stage in each],
            "test": {
                way: {
                    language: seeds.spread([found[way][language]["mR"] for found in measured])
                    for language in languages
                }
                for way, languages in measured[0].items()
            },
        }  # fmt: skip

    def _line(self, report: Report) -> str:
        """The figures of one run in short."""
        said = [f"{report[stage]['seconds']:.0f} s" for stage in self.reported if stage in report]
        for way, measured in ways_of(report).items():
            recalls = (f"{language} {found['mR']:.1f}" for language, found in measured.items())
            said.append(f"{way.replace('_', ' ')}: {', '.join(recalls)}")
        return "; ".join(said)

    def _options(self) -> Options:
        parser = argparse.ArgumentParser(description=type(self).__doc__)
        parser.add_argument("--data", type=Path, help="the folder of flickr8k/ and text/")
        parser.add_argument("--device", default="cpu")
        parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
        parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
        parser.add_argument(
            "--tables", type=int, nargs="+", choices=self.tables, default=self.tables
        )
        parser.add_argument("--only", nargs="+", metavar="RUN", help="some runs alone, by name")
        parser.add_argument(
            "--list", action="store_true", help="name all runs and what they change"
        )
        parser.add_argument(
            "--test-on", type=int, default=TEST_ON, help="test pictures of the tables"
        )
        parser.add_argument(
            "--keep-weights", action="store_true", help="of models that are fine-tuned now as well"
        )
        parser.add_argument("--recipe", default=self.recipe)
        parser.add_argument(
            "--set", dest="change", action="append", default=[], metavar="KEY=VALUE"
        )
        parser.add_argument("--runs", type=Path, default=Path(self.runs), help="a folder a run")
        parser.add_argument(
            "--cache", type=Path, default=Path("runs/cache"), help="what runs share"
        )
        parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
        parser.add_argument("--document", type=Path, default=self.document, help="where tables go")
        parser.add_argument("--commit", help="which commit this is, where there is no git")
        self.add_options(parser)
        options = parser.parse_args()
        if options.data is None and not options.list:
            parser.error("--data is needed: the folder of flickr8k/ and text/")
        return options


def ways_of(report: Report) -> dict[str, Any]:
    """What was measured in which way: all pairs, translated into English."""
    ways = dict(report.get("test", {}))
    if "translate_test" in report:
        ways["translated"] = report["translate_test"]["all_pairs"]
    return ways


def anywhere(changes: Sequence[str], options: Options) -> list[str]:
    """Changes as they would read on any machine: folders by what they are for."""
    folders = {"DATA": options.data, "CACHE": options.cache, "RUNS": options.runs}
    found = list(changes)
    for name, folder in folders.items():
        found = [change.replace(str(folder.resolve()), name) for change in found]
    return found

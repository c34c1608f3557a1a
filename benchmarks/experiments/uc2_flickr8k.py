"""UC2 on Flickr8k in seven languages: the paper's Tables 1, 3 and 4 in miniature.

Every run is the recipe ``uc2-flickr8k`` with a few changes: ``cross_encoder_runs`` trains them,
``uc2_page.TABLES`` needs them. What they share is prepared first, into ``--cache``, where DATA
lacks it: features, dictionaries, and word alignments of captions.

    python -m benchmarks.experiments.uc2_flickr8k --data DATA --device cuda --jobs 5
    python -m benchmarks.experiments.uc2_flickr8k --data DATA --device cuda --tables 1 --seeds 0
    python -m benchmarks.experiments.uc2_flickr8k --list

Writes results/uc2_flickr8k.json and fills docs/results-uc2.md, where M3P's results from the same
folder are compared.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.experiments.cross_encoder_runs import CrossEncoderBenchmark, Options
from benchmarks.reports import seeds
from benchmarks.reports import uc2_page as page
from benchmarks.reports.cross_encoder_tables import ENGLISH
from polyglance.reproduce.runs import Report, Run, exit_with_parent
from polyglance.reproduce.shared_data import Changes, PreparedData

LANGUAGES = ("de", "fr", "cs", "pt", "zh", "ar")


class UC2Benchmark(CrossEncoderBenchmark):
    """UC2 on Flickr8k in seven languages: the paper's Tables 1, 3 and 4 in miniature."""

    results = "uc2_flickr8k"
    recipe = "uc2-flickr8k"
    runs = "runs/uc2"
    tables = page.TABLES
    document = page.PAGE
    stages = ("early_adaptation", "pretraining", "fine_tuning")
    needs_dictionaries_to_english = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the languages: the recipe itself takes all that captions are in."""
        parser.add_argument("--languages", nargs="+", default=LANGUAGES, metavar="CODE",
                            help="languages of the captions, without English")  # fmt: skip

    def languages(self, options: Options) -> Sequence[str]:
        """Return the languages of the command line."""
        return tuple(options.languages)

    def pretrainings(self, languages: Sequence[str]) -> dict[str, Changes]:
        """Return the changes of each pre-training by its name."""
        del languages
        no_vtlm, no_mrtm = "pretraining.mixture.vtlm=0", "pretraining.mixture.mrtm=0"
        return {
            page.FULL: (),
            page.NO_VTLM: (no_vtlm,),
            page.NO_MRTM: (no_mrtm,),
            page.NEITHER: (no_vtlm, no_mrtm),
            page.ENGLISH_PIVOT: ("pretraining.pivot=english",),
        }

    def fine_tunings(self, languages: Sequence[str], prepared: PreparedData) -> dict[str, Changes]:
        """Test the model fine-tuned on English by translate-test as well."""
        changes = super().fine_tunings(languages, prepared)
        changes[ENGLISH] += (f"translate_test={prepared.dictionaries}",)
        return changes

    def text_corpora(self, recipe: Any) -> Sequence[Any]:
        """Return the parallel corpora that the word aligner learns from."""
        corpora: Sequence[Any] = recipe.translations.texts
        return corpora

    def dictionaries(self, recipe: Any) -> str:
        """Return the path of the dictionaries for label names and translate-test."""
        return str(recipe.labels.dictionaries)

    def dictionary_changes(self, pattern: str) -> Changes:
        """Return the change for label names."""
        return (f"labels.dictionaries={pattern}",)

    def prepare_extra(self, options: Options, changes: Changes) -> Changes:
        """Align the words of captions once, which parallel runs would each do for themselves."""
        from polyglance.recipes import open_recipe
        from polyglance.utils.fingerprint import fingerprint

        recipe = open_recipe(options.recipe, (*changes, *options.changes)).settings
        data, settings = options.data.resolve(), recipe.translations
        if recipe.image_backbone:  # reading all images would take longer than it saves
            return ()
        files = [f"{ENGLISH}-{code}.tsv" for code in self.languages(options)]
        if settings.cache_dir and all(
            (data / settings.cache_dir / name).is_file() for name in files
        ):
            return ()
        inputs = [data / split.manifest for split in (recipe.train, *recipe.extra_train)]
        inputs += [data / corpus.manifest for corpus in settings.texts]
        folder = options.cache.resolve() / f"aligned-{fingerprint(settings.pairing, *inputs)}"
        cache_dir = f"translations.cache_dir={folder}"
        tasks = [
            (options.recipe, (*changes, *options.changes, cache_dir), data, code)
            for code in self.languages(options)
        ]
        if options.jobs == 1:
            for task in tasks:
                align_captions(*task)
            return (cache_dir,)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            min(options.jobs, len(tasks)), mp_context=spawn, initializer=exit_with_parent
        ) as pool:
            for future in [pool.submit(align_captions, *task) for task in tasks]:
                future.result()
        return (cache_dir,)

    def summary(self, run: Run, reports: Mapping[int, Report]) -> dict[str, Any]:
        """Add the ranks of label words before and after early adaptation."""
        figures = super().summary(run, reports)
        adapted = [
            report["early_adaptation"]
            for report in reports.values()
            if "early_adaptation" in report
        ]
        if adapted:
            figures["early_adaptation"] = {
                **{when: _ranks([each[f"rank_{when}"] for each in adapted])
                   for when in ("before", "after")},
                "named": next(iter(reports.values()))["labels"]["named"],
            }  # fmt: skip
        return figures

    def fill(self, figures: Mapping[str, Any], document: Path, results: Path) -> None:
        """Fill the docs page, with M3P's results of the same folder."""
        page.fill(figures, document, m3p=page.read_m3p(results))


def align_captions(recipe: str, changes: Changes, data: Path, language: str) -> None:
    """Align the words of English captions with those of captions in a language."""
    from polyglance.recipes import open_recipe
    from polyglance.recipes.uc2.data import load_data

    alignment_only = (
        f"translations.languages=[{language}]", "validation=null", "test=null",
        "early_adaptation=null", "pretraining.mixture.mrtm=0", "pretraining.mixture.vtlm=1",
    )  # fmt: skip
    load_data(open_recipe(recipe, (*changes, *alignment_only)).settings, data, "cpu")


def _ranks(reports: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Summarise ranks over seeds, by language and statistic."""
    return {
        language: {
            name: seeds.spread([ranks[language][name] for ranks in reports]) for name in statistics
        }
        for language, statistics in reports[0].items()
    }


if __name__ == "__main__":
    UC2Benchmark().main()

"""UC2 on Flickr8k in seven languages: the paper's Tables 1, 3 and 4 in miniature.

Every run is the recipe ``uc2-flickr8k`` with a few settings changed (see ``pair_runs.py``,
which makes them, and ``uc2_page.TABLES``, which need them). What they share is made first,
into ``--cache``, where DATA has none: features, dictionaries, and which words of captions
mean the same.

    python -m benchmarks.experiments.uc2_flickr8k --data DATA --device cuda --jobs 5
    python -m benchmarks.experiments.uc2_flickr8k --data DATA --device cuda --tables 1 --seeds 0
    python -m benchmarks.experiments.uc2_flickr8k --list

``uc2_page.py`` makes the page from the results, beside those of M3P where there are any.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.experiments.cross_encoder_runs import Options, PairBenchmark
from benchmarks.experiments.prepare_cross_encoder_data import Changes, Prepared
from benchmarks.experiments.staged_runs import Report, Run, end_with_parent
from benchmarks.reports import seeds
from benchmarks.reports import uc2_page as page
from benchmarks.reports.cross_encoder_tables import ENGLISH

LANGUAGES = ("de", "fr", "cs", "pt", "zh", "ar")


class UC2Benchmark(PairBenchmark):
    """UC2 on Flickr8k in seven languages: the paper's Tables 1, 3 and 4 in miniature."""

    results = "uc2_flickr8k"
    recipe = "uc2-flickr8k"
    runs = "runs/uc2"
    tables = page.TABLES
    document = page.PAGE
    stages = ("adaptation", "pretraining", "fine_tuning")
    both_ways = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Languages: the recipe takes all that captions are in."""
        parser.add_argument("--languages", nargs="+", default=LANGUAGES, metavar="CODE",
                            help="those of the captions beside English")  # fmt: skip

    def languages(self, options: Options) -> Sequence[str]:
        """As they were given."""
        return tuple(options.languages)

    def pretrainings(self, languages: Sequence[str]) -> dict[str, Changes]:
        """What each changes in the recipe."""
        del languages
        no_vtlm, no_mrtm = "pretraining.mixture.vtlm=0", "pretraining.mixture.mrtm=0"
        return {
            page.FULL: (),
            page.NO_VTLM: (no_vtlm,),
            page.NO_MRTM: (no_mrtm,),
            page.NEITHER: (no_vtlm, no_mrtm),
            page.BY_ENGLISH: ("pretraining.pivot=english",),
        }

    def fine_tunings(self, languages: Sequence[str], prepared: Prepared) -> dict[str, Changes]:
        """Fine-tuned on English, it is asked in English as well."""
        found = super().fine_tunings(languages, prepared)
        found[ENGLISH] += (f"translate_test={prepared.dictionaries}",)
        return found

    def texts(self, recipe: Any) -> Sequence[Any]:
        """Translations, for the word aligner to learn from."""
        texts: Sequence[Any] = recipe.translations.texts
        return texts

    def dictionaries(self, recipe: Any) -> str:
        """Those that name labels; translate-test takes the same, from the other side."""
        return str(recipe.labels.dictionaries)

    def taking_dictionaries(self, pattern: str) -> Changes:
        """For names of labels."""
        return (f"labels.dictionaries={pattern}",)

    def prepare_more(self, options: Options, changes: Changes) -> Changes:
        """Link the words of captions, which several runs at once would each do for themselves."""
        from polyglance.recipes import open_recipe
        from polyglance.recipes.keys import fingerprint

        recipe = open_recipe(options.recipe, (*changes, *options.change)).settings
        data, settings = options.data.resolve(), recipe.translations
        if recipe.eyes:  # a look at all pictures would take longer than what it saves
            return ()
        files = [f"{ENGLISH}-{code}.tsv" for code in self.languages(options)]
        if settings.keep and all((data / settings.keep / name).is_file() for name in files):
            return ()
        read = [data / described.manifest for described in (recipe.train, *recipe.more)]
        read += [data / text.manifest for text in settings.texts]
        folder = options.cache.resolve() / f"linked-{fingerprint(settings.pairing, *read)}"
        keep = f"translations.keep={folder}"
        tasks = [
            (options.recipe, (*changes, *options.change, keep), data, code)
            for code in self.languages(options)
        ]
        if options.jobs == 1:
            for task in tasks:
                link_words(*task)
            return (keep,)
        fresh = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            min(options.jobs, len(tasks)), mp_context=fresh, initializer=end_with_parent
        ) as pool:
            for done in [pool.submit(link_words, *task) for task in tasks]:
                done.result()
        return (keep,)

    def summary(self, run: Run, reports: Mapping[int, Report]) -> dict[str, Any]:
        """Beside what all have: where early adaptation brought the words of labels."""
        found = super().summary(run, reports)
        adapted = [report["adaptation"] for report in reports.values() if "adaptation" in report]
        if adapted:
            found["adaptation"] = {
                **{when: _ranks([each[f"rank_{when}"] for each in adapted])
                   for when in ("before", "after")},
                "named": next(iter(reports.values()))["labels"]["named"],
            }  # fmt: skip
        return found

    def fill(self, figures: Mapping[str, Any], document: Path, results: Path) -> None:
        """Put what was measured into the page, beside M3P's of the same folder."""
        page.fill(figures, document, m3p=page.of_m3p(results))


def link_words(recipe: str, changes: Changes, data: Path, language: str) -> None:
    """Find which words of English captions and of those in a language mean the same."""
    from polyglance.recipes import open_recipe
    from polyglance.recipes.pairs.uc2_world import World

    nothing_else = (f"translations.languages=[{language}]", "validation=null", "test=null")
    settings = open_recipe(recipe, (*changes, *nothing_else)).settings
    World.open(settings, data, "cpu").pairs()


def _ranks(found: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """By language and figure, over seeds."""
    return {
        language: {
            what: seeds.spread([each[language][what] for each in found]) for what in of_language
        }
        for language, of_language in found[0].items()
    }


if __name__ == "__main__":
    UC2Benchmark().main()

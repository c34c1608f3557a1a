"""M3P on Flickr8k in seven languages: the paper's Tables 2 to 6 in miniature.

Every run is the recipe ``m3p-flickr8k`` with a few settings changed (see ``pair_runs.py``,
which makes them, and ``m3p_page.TABLES``, which need them). What they share is made first,
into ``--cache``, where DATA has none: features and dictionaries.

    python -m benchmarks.experiments.m3p_flickr8k --data DATA --device cuda --jobs 6
    python -m benchmarks.experiments.m3p_flickr8k --data DATA --device cuda --tables 3 4 --seeds 0
    python -m benchmarks.experiments.m3p_flickr8k --list

``m3p_page.py`` makes the page from the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.cross_encoder_runs import Options, PairBenchmark
from benchmarks.experiments.prepare_cross_encoder_data import Changes, Prepared
from benchmarks.reports import m3p_page as page


class M3PBenchmark(PairBenchmark):
    """M3P on Flickr8k in seven languages: the paper's Tables 2 to 6 in miniature."""

    results = "m3p_flickr8k"
    recipe = "m3p-flickr8k"
    runs = "runs/m3p"
    tables = page.TABLES
    document = page.PAGE
    stages = ("pretraining", "fine_tuning")

    def languages(self, options: Options) -> Sequence[str]:
        """Those that MCT switches to."""
        from polyglance.recipes import open_recipe

        recipe = open_recipe(options.recipe, options.change).settings
        languages: Sequence[str] = recipe.switching.languages
        return languages

    def pretrainings(self, languages: Sequence[str]) -> dict[str, Changes]:
        """What each changes in the recipe."""
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

    def fine_tunings(self, languages: Sequence[str], prepared: Prepared) -> dict[str, Changes]:
        """On code-switched English as well."""
        found = super().fine_tunings(languages, prepared)
        return {**found, page.SWITCHED: ("fine_tuning.switched=true",)}

    def texts(self, recipe: Any) -> Sequence[Any]:
        """Those of xMLM."""
        texts: Sequence[Any] = recipe.texts
        return texts

    def dictionaries(self, recipe: Any) -> str:
        """Those of code-switching."""
        return str(recipe.switching.dictionaries)

    def taking_dictionaries(self, pattern: str) -> Changes:
        """For code-switching."""
        return (f"switching.dictionaries={pattern}",)

    def fill(self, figures: Mapping[str, Any], document: Path, results: Path) -> None:
        """Put what was measured into the page."""
        del results
        page.fill(figures, document)


if __name__ == "__main__":
    M3PBenchmark().main()

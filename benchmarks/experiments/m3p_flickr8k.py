"""M3P on Flickr8k in seven languages: the paper's Tables 2 to 6 in miniature.

Every run is the recipe ``m3p-flickr8k`` with a few changes: ``cross_encoder_runs`` trains them,
``m3p_page.TABLES`` needs them. What they share is prepared first, into ``--cache``, where DATA
lacks it: features and dictionaries.

    python -m benchmarks.experiments.m3p_flickr8k --data DATA --device cuda --jobs 6
    python -m benchmarks.experiments.m3p_flickr8k --data DATA --device cuda --tables 3 4 --seeds 0
    python -m benchmarks.experiments.m3p_flickr8k --list

Writes results/m3p_flickr8k.json and fills docs/results-m3p.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.cross_encoder_runs import CrossEncoderBenchmark, Options
from benchmarks.reports import m3p_page as page
from polyglance.reproduce.shared_data import Changes, PreparedData


class M3PBenchmark(CrossEncoderBenchmark):
    """M3P on Flickr8k in seven languages: the paper's Tables 2 to 6 in miniature."""

    results = "m3p_flickr8k"
    recipe = "m3p-flickr8k"
    runs = "runs/m3p"
    tables = page.TABLES
    document = page.PAGE
    stages = ("pretraining", "fine_tuning")

    def languages(self, options: Options) -> Sequence[str]:
        """Return the languages that MCT switches to."""
        from polyglance.recipes import open_recipe

        recipe = open_recipe(options.recipe, options.changes).settings
        languages: Sequence[str] = recipe.code_switching.languages
        return languages

    def pretrainings(self, languages: Sequence[str]) -> dict[str, Changes]:
        """Return the changes of each pre-training by its name."""
        plain = "pretraining.code_switched=false"

        def switched(count: int) -> str:
            return f"code_switching.languages=[{', '.join(languages[:count])}]"

        def tasks(*names: str) -> str:
            return f"pretraining.tasks=[{', '.join(names)}]"

        return {
            page.FULL: (),
            page.PLAIN: (plain,),
            page.MCT_2: (switched(2),),
            page.MCT_4: (switched(4),),
            # As in the paper, tasks are left out of pre-training without MCT.
            page.TASKS["xMLM"]: (plain, "pretraining.text_batch=0"),
            page.TASKS["MC-MLM"]: (plain, tasks("mc_mrm", "mc_vlm")),
            page.TASKS["MC-MRM"]: (plain, tasks("mc_mlm", "mc_vlm")),
            page.TASKS["MC-VLM"]: (plain, tasks("mc_mlm", "mc_mrm")),
        }

    def fine_tunings(self, languages: Sequence[str], prepared: PreparedData) -> dict[str, Changes]:
        """Add code-switched English."""
        changes = super().fine_tunings(languages, prepared)
        return {**changes, page.SWITCHED: ("fine_tuning.code_switched=true",)}

    def text_corpora(self, recipe: Any) -> Sequence[Any]:
        """Return the corpora of xMLM."""
        corpora: Sequence[Any] = recipe.texts
        return corpora

    def dictionaries(self, recipe: Any) -> str:
        """Return the path of the dictionaries for code-switching."""
        return str(recipe.code_switching.dictionaries)

    def dictionary_changes(self, pattern: str) -> Changes:
        """Return the change for code-switching."""
        return (f"code_switching.dictionaries={pattern}",)

    def fill(self, figures: Mapping[str, Any], document: Path, results: Path) -> None:
        """Fill the docs page."""
        del results
        page.fill(figures, document)


if __name__ == "__main__":
    M3PBenchmark().main()

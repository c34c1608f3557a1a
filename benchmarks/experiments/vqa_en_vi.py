"""Questions about pictures in English and Vietnamese: trained, measured, and written down.

Every run is the recipe ``vqa-en-vi`` with another seed. It is measured beside the best
answer for each type of question, and leaves in RUNS/answering/SEED its ``model``, which
``polyglance ask`` opens, and ``answers.jsonl``, all that it answered. Finished runs are not
made again, interrupted ones go on.

    python -m benchmarks.experiments.vqa_en_vi --data DATA --device cuda --jobs 3

BLEU needs ``sacrebleu``. Where the machine that trains has none, run the same command again
on one that has, with what the runs left (weights are not needed): it trains nothing then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.experiments import staged_runs
from benchmarks.experiments.staged_runs import SAVE, Run, Workshop
from benchmarks.reports import seeds
from benchmarks.reports import vqa_page as page
from benchmarks.results_io import RESULTS, write_results

if TYPE_CHECKING:
    from polyglance.records import Question

RECIPE = "vqa-en-vi"
RUN = "answering"
EXAMPLES = 3
"""Questions of each type that are shown: the first of the test, however they were answered."""
SHOWN = 3
"""People's answers that are shown beside, the most frequent first."""

Answered = tuple["Question", str]
"""A question, and what the model answered."""


def main() -> None:
    options = _options()
    if options.commit or shutil.which("git") is None:
        os.environ.setdefault("POLYGLANCE_COMMIT", options.commit or "unknown")
    os.environ.setdefault("OMP_NUM_THREADS", "4")  # before the workers load what counts cores
    from polyglance.recipes.questions.measuring import read_answers

    folders = train_all(options)
    reports = [json.loads((folder / "report.json").read_text("utf-8")) for folder in folders]
    answered = [list(read_answers(folder / "answers.jsonl")) for folder in folders]
    figures = {
        **staged_runs.made(folders[0]),
        "recipe": options.recipe,
        "changed_everywhere": options.change,
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        **summary(reports, answered),
        "examples": examples(answered[0]),
    }
    written = write_results("vqa_en_vi", figures, options.out)
    found = json.loads(written.read_text(encoding="utf-8"))
    for document, fill in ((options.document, page.fill), (options.card, page.fill_card)):
        if document.is_file():
            fill(found, document)


def train_all(options: argparse.Namespace) -> list[Path]:
    """Train with every seed, unless this very run is there already; returns their folders."""
    shop = Workshop(
        options.recipe,
        options.data.resolve(),
        options.runs,
        options.device,
        (SAVE, *options.change),
        _made_from(options),
        keep_weights=True,
        leaves=("report.json", "answers.jsonl"),
    )
    jobs = [(RUN, seed) for seed in options.seeds]
    staged_runs.run_all([Run(RUN)], jobs, shop, at_once=options.jobs)
    return [shop.folder(job) for job in jobs]


def summary(
    reports: Sequence[Mapping[str, Any]], answered: Sequence[Sequence[Answered]]
) -> dict[str, Any]:
    """By language: the model's figures over seeds, beside those of the best answers."""
    from polyglance.recipes.questions.measuring import figures

    test: dict[str, Any] = {}
    for language, first in reports[0]["test"].items():
        measured = []
        for some in answered:
            questions, answers = zip(*(a for a in some if a[0].language == language), strict=True)
            measured.append(figures(questions, answers))
        kinds = Counter(question.answer_type for question in questions)
        test[language] = {
            "questions": first["questions"],
            "questions_of": {f"of {kind}": count for kind, count in sorted(kinds.items())},
            "model": {
                name: seeds.spread([found[name] for found in measured]) for name in measured[0]
            },
            "baseline": first["baseline"],
            "above_baseline": seeds.spread(
                [report["test"][language]["above_baseline"] for report in reports]
            ),
        }
    trained = [report["training"] for report in reports]
    return {
        "answers": reports[0]["answers"],
        "training_questions": reports[0]["questions"],
        "seconds": statistics.mean(each["seconds"] for each in trained),
        "steps": trained[0]["steps"],
        "best_steps": [each["best_step"] for each in trained],
        "validation": [each["best_score"] for each in trained],
        "test": test,
    }


def examples(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """The first questions of each type in each language, with what people said and the model."""
    from polyglance.evaluation.answers import vqa_score

    shown: Counter[tuple[str, str | None]] = Counter()
    found = []
    for question, answer in answered:
        kind = question.language, question.answer_type
        shown[kind] += 1
        if shown[kind] <= EXAMPLES:
            people = Counter(question.answers).most_common(SHOWN)
            found.append(
                {
                    "language": question.language,
                    "type": question.answer_type,
                    "question": question.text,
                    "people": [text for text, _ in people],
                    "answer": answer,
                    "score": vqa_score(answer, question.answers, question.language),
                }
            )
    return sorted(found, key=lambda one: (one["language"], one["type"] or ""))


def _made_from(options: argparse.Namespace) -> dict[str, str]:
    """What decides a run beside its settings: code, questions, and the model it begins with."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(options.recipe, options.change)
    files = [*recipe.settings.train, *recipe.settings.test]
    data = options.data.resolve()
    return staged_runs.fingerprints(
        recipe.kind,
        questions=[data / file.manifest for file in files],
        towers=staged_runs.model_files(recipe.settings.towers),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of vqa/")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--set", dest="change", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/vqa"), help="what the runs leave")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=page.PAGE, help="where tables go")
    parser.add_argument("--card", type=Path, default=page.CARD, help="the model's card")
    parser.add_argument("--commit", help="which commit this is, where there is no git")
    return parser.parse_args()


if __name__ == "__main__":
    main()

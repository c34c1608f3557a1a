"""Visual question answering in English and Vietnamese, beside a baseline that sees no image.

Every run is the recipe ``vqa-en-vi`` with another seed. The baseline gives the best answer for
each type of question. A run writes into RUNS/vqa-en-vi/SEED its ``model``, which ``polyglance ask``
opens, and its answers to the test questions in ``answers.jsonl``. Finished runs are not trained
again, interrupted ones resume.

    python -m benchmarks.experiments.vqa_en_vi --data DATA --device cuda --jobs 3

BLEU needs ``sacrebleu``. Where the training machine lacks it, run the same command again on one
that has it, with the folders of the runs (without weights): nothing is trained then.
Writes results/vqa_en_vi.json, fills docs/results-vqa.md and docs/vqa-model-card.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.experiments.options import experiment_parser, set_environment
from benchmarks.reports import seeds
from benchmarks.reports import vqa_page as page
from benchmarks.results_io import write_results
from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce.runs import SAVE, Experiment, Run

if TYPE_CHECKING:
    from polyglance.records import Question

RECIPE = "vqa-en-vi"
RUN = "vqa-en-vi"
EXAMPLES = 3
"""Number of examples per question type: the first of the test, however they were answered."""
HUMAN_ANSWERS = 3
"""Number of human answers per example, the most frequent first."""

QuestionAnswer = tuple["Question", str]
"""A question, and the model's answer."""


def main() -> None:
    options = _parse_options()
    set_environment(options, threads=4)
    from polyglance.recipes.vqa.evaluation import read_answers

    folders = train_all(options)
    reports = [json.loads((folder / "report.json").read_text("utf-8")) for folder in folders]
    answers = [list(read_answers(folder / "answers.jsonl")) for folder in folders]
    figures = {
        **staged_runs.training_environment(folders[0]),
        "recipe": options.recipe,
        "common_changes": options.changes,
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": options.seeds,
        **summary(reports, answers),
        "examples": examples(answers[0]),
    }
    path = write_results("vqa_en_vi", figures, options.out)
    figures = json.loads(path.read_text(encoding="utf-8"))
    for document, fill in ((options.document, page.fill), (options.card, page.fill_card)):
        if document.is_file():
            fill(figures, document)


def train_all(options: argparse.Namespace) -> list[Path]:
    """Train with every seed, unless it was before; return the folders of the runs."""
    experiment = Experiment(
        options.recipe,
        options.data.resolve(),
        options.runs,
        options.device,
        (SAVE, *options.changes),
        _fingerprint_inputs(options),
        keep_weights=True,
        outputs=("report.json", "answers.jsonl"),
    )
    jobs = [(RUN, seed) for seed in options.seeds]
    staged_runs.run_all([Run(RUN)], jobs, experiment, max_workers=options.jobs)
    return [experiment.folder(job) for job in jobs]


def summary(
    reports: Sequence[Mapping[str, Any]], answers: Sequence[Sequence[QuestionAnswer]]
) -> dict[str, Any]:
    """Summarise the seeds by language: the model's scores beside the baseline's."""
    from polyglance.recipes.vqa.evaluation import figures

    test: dict[str, Any] = {}
    for language, first in reports[0]["test"].items():
        scores = []
        for of_seed in answers:
            pairs = (pair for pair in of_seed if pair[0].language == language)
            questions, texts = zip(*pairs, strict=True)
            scores.append(figures(questions, texts))
        types = Counter(question.answer_type for question in questions)
        test[language] = {
            "questions": first["questions"],
            "questions_by_type": {f"of {name}": count for name, count in sorted(types.items())},
            "model": {name: seeds.spread([each[name] for each in scores]) for name in scores[0]},
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


def examples(answers: Sequence[QuestionAnswer]) -> list[dict[str, Any]]:
    """Return the first questions of each type and language, with human and model answers."""
    from polyglance.evaluation.answers import vqa_score

    counts: Counter[tuple[str, str | None]] = Counter()
    rows = []
    for question, answer in answers:
        group = question.language, question.answer_type
        counts[group] += 1
        if counts[group] <= EXAMPLES:
            people = Counter(question.answers).most_common(HUMAN_ANSWERS)
            rows.append(
                {
                    "language": question.language,
                    "type": question.answer_type,
                    "question": question.text,
                    "people": [text for text, _ in people],
                    "answer": answer,
                    "score": vqa_score(answer, question.answers, question.language),
                }
            )
    return sorted(rows, key=lambda row: (row["language"], row["type"] or ""))


def _fingerprint_inputs(options: argparse.Namespace) -> dict[str, str]:
    """Fingerprint the code, the questions, and the model that runs are initialised from."""
    from polyglance.recipes import open_recipe

    recipe = open_recipe(options.recipe, options.changes)
    files = [*recipe.settings.train, *recipe.settings.test]
    data = options.data.resolve()
    return staged_runs.fingerprints(
        recipe.system,
        questions=[data / file.manifest for file in files],
        dual_encoder=staged_runs.model_files(recipe.settings.init_from_dual_encoder),
    )


def _parse_options() -> argparse.Namespace:
    parser = experiment_parser(
        __doc__, data="vqa/", runs="runs/vqa", document=page.PAGE, recipe=RECIPE
    )
    parser.add_argument("--card", type=Path, default=page.CARD, help="the model card to fill")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Fill the page of visual question answering and the model's card.

    python -m benchmarks.reports.vqa_page

Reads results/vqa_en_vi.json, fills docs/results-vqa.md and docs/vqa-model-card.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages, seeds
from benchmarks.results_io import DOCS, read_results

PAGE, CARD = DOCS / "results-vqa.md", DOCS / "vqa-model-card.md"
MIN_ABOVE_BASELINE = 8.0
"""The goal: points above the baseline, in every language."""
_NAMES = {"en": "English", "vi": "Vietnamese"}
_MEASURES = {
    "score": "VQA score",
    "accuracy": "accuracy",
    "bleu": "BLEU",
    "sentence_bleu": "BLEU of single answers",
}

Figures = Mapping[str, Any]


def main() -> None:
    figures = read_results("vqa_en_vi")
    fill(figures)
    fill_card(figures)


def fill(figures: Figures, document: Path = PAGE) -> None:
    """Fill the tables of the page."""
    lines = goals(figures)
    (judged,) = seeds.write_lines(lines)
    contents = {
        "languages": languages(figures),
        "types": types(figures),
        "examples": examples(figures),
        "goals": pages.bullets(judged),
        "compared": seeds.how_compared(lines),
        "how": how(figures),
    }
    pages.fill(document, contents)


def fill_card(figures: Figures, document: Path = CARD) -> None:
    """Fill the figures of the model card."""
    counts = ", ".join(f"{count:,} in {_name(code)}" for code, count in figures["answers"].items())
    contents = {
        "figures": languages(figures),
        "answers": f"It can give {sum(figures['answers'].values()):,} answers: {counts}.",
        "how": how(figures),
    }
    pages.fill(document, contents)


def languages(figures: Figures) -> str:
    """Format the scores of the model and the baseline, a row per language and measure."""
    rows = []
    for code, measured in figures["test"].items():
        for key, name in _MEASURES.items():
            if key in measured["model"]:
                cells = _score_cells(measured, key)
                rows.append([_name(code), f"{measured['questions']:,}", name, *cells])
    header = ["language", "questions", "measure", "baseline", "model", "difference"]
    return pages.table(header, rows, text_columns=3)


def types(figures: Figures) -> str:
    """Format scores by the question types of the data."""
    rows = [
        [_name(code), key.removeprefix("of "), f"{count:,}", *_score_cells(measured, key)]
        for code, measured in figures["test"].items()
        for key, count in measured["questions_by_type"].items()
    ]
    header = ["language", "type", "questions", "baseline", "model", "difference"]
    return pages.table(header, rows, text_columns=3)


def _score_cells(measured: Figures, key: str) -> list[str]:
    """Format a score of the baseline, of the model, and their difference."""
    model, baseline = measured["model"][key], measured["baseline"].get(key)
    if baseline is None:
        return ["–", seeds.cell(model), "–"]
    return [f"{baseline:.1f}", seeds.cell(model), f"{model['mean'] - baseline:+.1f}"]


def examples(figures: Figures) -> str:
    """Format questions with the answers of people and of the model, and its score."""
    rows = [
        [
            *(_escape(str(one[key])) for key in ("language", "type", "question")),
            _escape(", ".join(one["people"])),
            _escape(one["answer"]),
            f"{one['score']:.1f}",
        ]
        for one in figures["examples"]
    ]
    header = ["", "type", "question", "people", "model", "score"]
    return pages.table(header, rows, text_columns=5)


def _escape(text: str) -> str:
    """Return text that fits into one cell of a table."""
    return " ".join(text.replace("|", "/").split())


def goals(figures: Figures) -> list[seeds.Line]:
    """Say whether the goal was reached, by language."""
    return [
        _goal(_name(code), measured["above_baseline"]["values"])
        for code, measured in figures["test"].items()
    ]


def _goal(name: str, values: list[float]) -> seeds.Line:
    each = ", ".join(f"{value:+.1f}" for value in values)
    return seeds.Line(
        lambda above_goal, above_baseline: (
            f"{name}: at least {MIN_ABOVE_BASELINE:.0f} points above the baseline:"
            f" {seeds.verdict(above_goal)} ({seeds.signed(above_baseline)}; {each}; above"
            f" the goal by {seeds.signed(above_goal)})."
        ),
        (seeds.gain(values, MIN_ABOVE_BASELINE), seeds.gain(values)),
    )


def how(figures: Figures) -> str:
    """Say when, where and how this was measured."""
    words = ", ".join(
        f"{measured['baseline']['first_words']} in {_name(code)}"
        for code, measured in figures["test"].items()
    )
    changed = ", ".join(f"`{change}`" for change in figures["common_changes"])
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {len(figures['seeds'])} seeds, {figures['training_questions']:,} training questions,"
        f" {figures['steps']:,} steps in {figures['seconds'] / 60:.1f} minutes,"
        f" {figures['runs_at_once']} runs at once. The strongest baseline takes as a question's"
        f" type its first words: {words}."
        + (f" Changes to the recipe: {changed}." if changed else "")
    )


def _name(code: str) -> str:
    return _NAMES.get(code, code)


if __name__ == "__main__":
    main()

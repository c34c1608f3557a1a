"""Fill the page of question answering and the model's card from what was measured.

python -m benchmarks.reports.vqa_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import cross_encoder_tables, pages, seeds
from benchmarks.results_io import RESULTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE, CARD = DOCS / "results-vqa.md", DOCS / "vqa-model-card.md"
LEAST_ABOVE = 8.0
"""Points above the best answers that were set out for, in every language."""
_NAMES = {"en": "English", "vi": "Vietnamese"}
_MEASURES = {
    "score": "VQA score",
    "accuracy": "accuracy",
    "bleu": "BLEU",
    "sentence_bleu": "BLEU of single answers",
}

Figures = Mapping[str, Any]


def main() -> None:
    figures = json.loads((RESULTS / "vqa_en_vi.json").read_text(encoding="utf-8"))
    fill(figures)
    fill_card(figures)


def fill(figures: Figures, document: Path = PAGE) -> None:
    """Put fresh tables between the marks of the page."""
    contents = {
        "languages": languages(figures),
        "types": types(figures),
        "examples": examples(figures),
        "goals": cross_encoder_tables.listed(goals(figures)),
        "how": how(figures),
    }
    pages.fill(document, contents)


def fill_card(figures: Figures, document: Path = CARD) -> None:
    """The same for the card."""
    known = ", ".join(f"{count:,} in {_name(code)}" for code, count in figures["answers"].items())
    contents = {
        "figures": languages(figures),
        "answers": f"It can give {sum(figures['answers'].values()):,} answers: {known}.",
        "how": how(figures),
    }
    pages.fill(document, contents)


def languages(figures: Figures) -> str:
    """A row a language and measure: the model beside the best answer for each type of question."""
    rows = []
    for code, found in figures["test"].items():
        for key, name in _MEASURES.items():
            if key in found["model"]:
                rows.append([_name(code), f"{found['questions']:,}", name, *_beside(found, key)])
    header = ["language", "questions", "measure", "best answers", "model", "above"]
    return pages.table(header, rows, text_columns=3)


def types(figures: Figures) -> str:
    """The same by type of question, as the data has them."""
    rows = [
        [_name(code), key.removeprefix("of "), f"{count:,}", *_beside(found, key)]
        for code, found in figures["test"].items()
        for key, count in found["questions_of"].items()
    ]
    header = ["language", "type", "questions", "best answers", "model", "above"]
    return pages.table(header, rows, text_columns=3)


def _beside(found: Figures, key: str) -> list[str]:
    """A figure of the baseline, of the model, and by how much that is above."""
    model, baseline = found["model"][key], found["baseline"].get(key)
    if baseline is None:
        return ["–", seeds.cell(model), "–"]
    return [f"{baseline:.1f}", seeds.cell(model), f"{model['mean'] - baseline:+.1f}"]


def examples(figures: Figures) -> str:
    """Questions with what people and the model answered, and what that is worth."""
    rows = [
        [
            *(_plain(str(one[key])) for key in ("language", "type", "question")),
            _plain(", ".join(one["people"])),
            _plain(one["answer"]),
            f"{one['score']:.1f}",
        ]
        for one in figures["examples"]
    ]
    header = ["", "type", "question", "people", "model", "score"]
    return pages.table(header, rows, text_columns=5)


def _plain(text: str) -> str:
    """What cannot end a cell of a table."""
    return " ".join(text.replace("|", "/").split())


def goals(figures: Figures) -> list[str]:
    """What was set out for, language by language."""
    lines = []
    for code, found in figures["test"].items():
        above = found["above_baseline"]
        reached = "yes" if above["mean"] >= LEAST_ABOVE else "no"
        gain = seeds.signed((above["mean"], above["deviation"]))
        each = ", ".join(f"{value:+.1f}" for value in above["seeds"])
        lines.append(
            f"{_name(code)}: at least {LEAST_ABOVE:.0f} points above the best answer for each type"
            f" of question: {reached}, by the mean over seeds ({gain}; {each})."
        )
    return lines


def how(figures: Figures) -> str:
    """When, where and how this was measured."""
    words = ", ".join(
        f"{found['baseline']['first_words']} in {_name(code)}"
        for code, found in figures["test"].items()
    )
    changed = ", ".join(f"`{change}`" for change in figures["changed_everywhere"])
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}:"
        f" {len(figures['seeds'])} seeds, {figures['training_questions']:,} training questions,"
        f" {figures['steps']:,} steps in {figures['seconds'] / 60:.1f} minutes,"
        f" {figures['runs_at_once']} runs at once. The types of question whose best answers are"
        f" the strongest baseline go by so many first words: {words}."
        + (f" Changed in the recipe: {changed}." if changed else "")
    )


def _name(code: str) -> str:
    return _NAMES.get(code, code)


if __name__ == "__main__":
    main()

"""Tables of what was measured, for the terminal and for documents.

Figures in documents come from results files that a command wrote. A document
names them in a comment, and `fill` puts the table after it:

    <!-- results: results/toy.json -->
    <!-- end of results -->

One file gives its table by language; several give one row a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.results import Evaluation, read_results
from polyglance.evaluation.retrieval import RetrievalResult, meta_average

if TYPE_CHECKING:
    from rich.table import Table

_SLOT = re.compile(
    r"(<!-- results: (?P<files>[^\n]+?) -->\n)(?:.*?\n)??(<!-- end of results -->)", re.DOTALL
)


def terminal_table(evaluation: Evaluation) -> Table:
    """A table by language to print with rich; it fits a terminal of 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    header, rows = _by_language(evaluation)
    table = Table(
        title=evaluation.split,
        caption=_footnote(evaluation),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for number, name in enumerate(header):
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(name.replace(" ", "\n"), justify=justify, overflow="fold")
    for row in rows:
        if row[0] == "mean":
            table.add_section()
        table.add_row(*row)
    return table


def markdown(evaluation: Evaluation) -> str:
    """A table by language in Markdown, with a line that says how it was measured."""
    header, rows = _by_language(evaluation)
    return f"{_markdown(header, rows)}\n\n{evaluation.split}. {_footnote(evaluation)}"


def comparison(evaluations: Sequence[Evaluation]) -> str:
    """The mR of several models in Markdown: a row a model, a column a language of a split.

    Results on the same split that had other candidates, or broke ties by
    another rule, are not comparable: they are an error rather than a column.
    """
    models: dict[str, dict[str, Evaluation]] = {}
    columns: dict[tuple[str, str], Evaluation] = {}
    for evaluation in evaluations:
        if evaluation.split in models.setdefault(evaluation.model, {}):
            raise PolyglanceError(
                f"there are two results of {evaluation.model} on {evaluation.split}"
            )
        models[evaluation.model][evaluation.split] = evaluation
        for language in evaluation.languages:
            first = columns.setdefault((evaluation.split, language), evaluation)
            _check_comparable(first, evaluation, language)
    splits = {split for split, _ in columns}
    header = ["model", *(f"{split} {language}" for split, language in columns), "Meta-Ave"]
    rows = []
    for model, measured in models.items():
        recalls = {split: evaluation.mean_recalls for split, evaluation in measured.items()}
        cells = [_figure(recalls.get(split, {}).get(language)) for split, language in columns]
        whole = "–" not in cells
        rows.append([model, *cells, _figure(meta_average(recalls) if whole else None)])
    if len(splits) == 1:  # then Meta-Ave is the plain mean over languages
        header[-1] = "mean"
    return _markdown(header, rows)


def fill(document: str | Path) -> bool:
    """Put fresh tables into a Markdown document; say whether that changed it.

    Results files are named relative to the document.
    """
    document = Path(document)
    try:
        before = document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{document}: cannot be read as text") from error

    def table(slot: re.Match[str]) -> str:
        found = [read_results(document.parent / name) for name in slot["files"].split()]
        text = markdown(found[0]) if len(found) == 1 else comparison(found)
        return f"{slot[1]}\n{text}\n\n{slot[3]}"

    after = _SLOT.sub(table, before)
    if after != before:
        document.write_text(after, encoding="utf-8")
    return after != before


def _by_language(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    ks = list(next(iter(evaluation.languages.values())).image_to_text.recalls)
    header = [
        "language",
        *(f"i→t R@{k}" for k in ks),
        *(f"t→i R@{k}" for k in ks),
        "mR",
        "pictures",
        "captions",
    ]
    rows = [[language, *_cells(result)] for language, result in evaluation.languages.items()]
    blank = [""] * (2 * len(ks))
    rows.append(["mean", *blank, _figure(evaluation.average), "", ""])
    if evaluation.human_average is not None:
        rows.append(["HA", *blank, _figure(evaluation.human_average), "", ""])
    return header, rows


def _cells(result: RetrievalResult) -> Iterator[str]:
    for direction in (result.image_to_text, result.text_to_image):
        yield from map(_figure, direction.recalls.values())
    yield _figure(result.mean_recall)
    yield f"{result.text_to_image.candidates:,}"
    yield f"{result.image_to_text.candidates:,}"


def _footnote(evaluation: Evaluation) -> str:
    people = f" HA: {', '.join(evaluation.human)}." if evaluation.human else ""
    return (
        f"{evaluation.model}, {evaluation.similarity}, measured {evaluation.date[:10]} "
        f"by polyglance {evaluation.version}.{people} Rank: {evaluation.tie_rule}."
    )


def _check_comparable(one: Evaluation, other: Evaluation, language: str) -> None:
    sides = [
        (
            evaluation.languages[language].text_to_image.candidates,
            evaluation.languages[language].image_to_text.candidates,
            tuple(evaluation.languages[language].text_to_image.recalls),
            evaluation.tie_rule,
        )
        for evaluation in (one, other)
    ]
    if sides[0] != sides[1]:
        raise PolyglanceError(
            f"{one.model} and {other.model} cannot share a column: on {one.split} {language} "
            "they differ in candidates, recalls or tie rule; give the splits different names"
        )


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"

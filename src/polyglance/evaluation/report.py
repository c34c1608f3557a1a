"""Tables of results, for the terminal and for documents.

Figures in documents come from results files. A document names them in a comment, and
`update_tables` puts the table after it:

    <!-- results: results/toy.json -->
    <!-- end of results -->

One file makes a table by language, several make one row per model.
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
    """Return a table by language for rich, at most 80 columns wide."""
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


def markdown_table(evaluation: Evaluation) -> str:
    """Return a table by language in Markdown, with a line about how it was evaluated."""
    header, rows = _by_language(evaluation)
    return f"{_markdown(header, rows)}\n\n{evaluation.split}. {_footnote(evaluation)}"


def comparison_table(evaluations: Sequence[Evaluation]) -> str:
    """Return mR of several models in Markdown: a row per model, a column per language of a split.

    Results on the same split with other candidates or another tie rule are not comparable and
    raise an error.
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
    for model, by_split in models.items():
        recalls = {split: evaluation.mean_recalls for split, evaluation in by_split.items()}
        cells = [_figure(recalls.get(split, {}).get(language)) for split, language in columns]
        complete = "–" not in cells
        rows.append([model, *cells, _figure(meta_average(recalls) if complete else None)])
    if len(splits) == 1:  # then Meta-Ave is the plain mean over languages
        header[-1] = "mean"
    return _markdown(header, rows)


def update_tables(document: str | Path) -> bool:
    """Update the tables of a Markdown document; return whether that changed it.

    Paths of results files are relative to the document.
    """
    document = Path(document)
    try:
        before = document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{document}: cannot be read as text") from error

    def table(slot: re.Match[str]) -> str:
        results = [read_results(document.parent / name) for name in slot["files"].split()]
        text = markdown_table(results[0]) if len(results) == 1 else comparison_table(results)
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
        "images",
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
    human = f" HA: {', '.join(evaluation.human)}." if evaluation.human else ""
    return (
        f"{evaluation.model}, {evaluation.similarity}, evaluated {evaluation.date[:10]} "
        f"by polyglance {evaluation.version}.{human} Rank: {evaluation.tie_rule}."
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

"""A comparison of models as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from polyglance.config import as_plain
from polyglance.evaluation.comparison import (
    MEAN,
    DifferentQuery,
    ModelFigures,
    ModelRanks,
)
from polyglance.evaluation.comparison_data import TestSet
from polyglance.evaluation.results import provenance
from polyglance.evaluation.retrieval import TIE_RULE
from polyglance.evaluation.statistics import RESAMPLES, Comparison
from polyglance.records import atomic_write

if TYPE_CHECKING:
    from rich.table import Table

FORMAT = 1
"""Version of the JSON's form."""


def comparison_tables(models: Sequence[ModelFigures]) -> list[Table]:
    """Return tables for rich: the recalls of all models, and the differences of mR."""
    return [_recalls(models), _differences(models)]


def comparison_json(
    test_set: TestSet,
    models: Sequence[ModelFigures],
    ranks: Sequence[ModelRanks],
    queries: Sequence[DifferentQuery],
) -> dict[str, Any]:
    """Return the comparison as plain values.

    Args:
        test_set: What the models were compared on.
        models: Their figures, the baseline first.
        ranks: Their first hits, in the same order.
        queries: Those that differ most.
    """
    return {
        "format": FORMAT,
        **provenance(),
        "data": {
            "name": test_set.name,
            "pictures": len(test_set.layout.records),
            "captions": {code: len(test_set.layout.captions[code]) for code in test_set.languages},
            "machine_captions": test_set.machine_captions,
            "skipped": test_set.skipped,
        },
        "baseline": models[0].name,
        "tie_rule": TIE_RULE,
        "resamples": RESAMPLES,
        "p_values": "two-sided sign flips over pictures; of mR corrected by Holm's method",
        "models": [_model(model) for model in models],
        "queries": [_query(query, test_set, ranks) for query in queries],
    }


def write_json(target: Path | IO[str], plain: dict[str, Any]) -> None:
    """Write plain values to a file or an open stream."""
    text = json.dumps(plain, ensure_ascii=False, indent=2) + "\n"
    if not isinstance(target, Path):
        target.write(text)
        return
    with atomic_write(target) as out:
        out.write(text)


def _model(model: ModelFigures) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "similarity": model.similarity,
        "recalls": {code: as_plain(result) for code, result in model.results.items()},
        "mean_recall": {code: as_plain(figure) for code, figure in model.mean_recalls.items()},
        "differences": {code: _difference(d) for code, d in model.differences.items()},
        "recall_differences": {
            code: {name: _difference(d) for name, d in by_name.items()}
            for code, by_name in model.recall_differences.items()
        },
    }


def _difference(difference: Comparison) -> dict[str, Any]:
    mean, low, high, p = difference[:4]
    return {"mean": mean, "low": low, "high": high, "p": p, "better": difference.verdict}


def _query(query: DifferentQuery, test_set: TestSet, ranks: Sequence[ModelRanks]) -> dict[str, Any]:
    files = test_set.files
    return {
        "model": ranks[query.model].name,
        "language": query.language,
        "text": test_set.layout.captions[query.language][query.number],
        "picture": str(files[query.image]),
        "ranks": {model.name: rank for model, rank in zip(ranks, query.ranks, strict=True)},
        "first": {
            model.name: [str(files[int(i)]) for i in model.top_images[query.language][query.number]]
            for model in ranks
        },
    }


def _recalls(models: Sequence[ModelFigures]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    sides = next(iter(models[0].results.values()))
    header = [f"i→t\nR@{k}" for k in sides.image_to_text.recalls]
    header += [f"t→i\nR@{k}" for k in sides.text_to_image.recalls]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("language")
    table.add_column("model", overflow="fold")
    for name in (*header, "mR"):
        table.add_column(name, justify="right")
    for code in models[0].mean_recalls:
        table.add_section()
        for number, model in enumerate(models):
            cells = [""] * len(header)
            if code != MEAN:
                result = model.results[code]
                both = (result.image_to_text, result.text_to_image)
                cells = [f"{value:.1f}" for side in both for value in side.recalls.values()]
            shown = f"{model.mean_recalls[code].value:.1f}"
            table.add_row("" if number else code, model.name, *cells, shown)
    return table


def _differences(models: Sequence[ModelFigures]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    count = sum(len(model.differences) for model in models)
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=f"mR against {models[0].name}",
        caption="95 % intervals by paired bootstrap over pictures; p by sign flips"
        + (f", corrected for {count} differences (Holm)" if count > 1 else ""),
        caption_justify="left",
    )
    table.add_column("language")
    table.add_column("model", overflow="fold")
    for name in ("difference", "95 %", "p"):
        table.add_column(name, justify="right")
    table.add_column("")
    words = {"yes": "better", "no": "worse", "not decided": ""}
    for code in models[0].mean_recalls:
        for number, model in enumerate(models[1:]):
            d = model.differences[code]
            p = "" if d.p is None else "< 0.001" if d.p < 0.001 else f"{d.p:.3f}"
            interval = f"{d.low:+.1f} to {d.high:+.1f}"
            table.add_row(
                "" if number else code, model.name, f"{d.mean:+.1f}", interval, p, words[d.verdict]
            )
    return table

"""Write the results of a target: JSON, CSV, Markdown, and a plot as SVG."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyglance.records import atomic_write
from polyglance.reproduce.plots import language_plot, line_plot, scatter_plot
from polyglance.reproduce.results import BySeed, Measured, published
from polyglance.reproduce.target import Column, Row, Target

MISSING = "–"


def write_files(measured: Measured, folder: Path, details: Mapping[str, Any]) -> list[Path]:
    """Write all files of a target.

    Args:
        measured: the figures.
        folder: where to write.
        details: date, commit, machine, seeds and settings, for JSON and Markdown.

    Returns:
        The files: ``table.json``, ``table.csv``, ``table.md`` and, with figures, ``plot.svg``.
    """
    contents = {
        "table.json": json.dumps(as_json(measured, details), indent=2, ensure_ascii=False) + "\n",
        "table.csv": as_csv(measured),
        "table.md": as_markdown(measured, details),
    }
    if (image := as_svg(measured)) is not None:
        contents["plot.svg"] = image
    for name, text in contents.items():
        with atomic_write(folder / name) as file:
            file.write(text)
    return [folder / name for name in contents]


def as_json(measured: Measured, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that was measured, claimed and published."""
    target = measured.target
    rows = []
    for row in target.rows:
        figures = {c.name: measured.cell(row.name, c.name) for c in target.columns}
        rows.append(
            {
                "row": row.name,
                "section": row.section,
                "runs": {c.name: row.run_of(c) for c in target.columns if row.run_of(c)},
                "published": published(target, row),
                "measured": {
                    name: _spread(by_seed) for name, by_seed in figures.items() if by_seed
                },
                **({"note": row.note} if row.note else {}),
            }
        )
    return {
        "target": target.name, "title": target.title, "source": target.source, **details,
        "columns": [column.name for column in target.columns], "rows": rows,
        "claims": claims_json(measured),
    }  # fmt: skip


def claims_json(measured: Measured) -> list[dict[str, Any]]:
    """Return the claims with their comparisons; verdicts are by p-values after correction."""
    return [
        {
            "claim": claim.text,
            "better": claim.better,
            "worse": claim.worse,
            "columns": list(claim.columns),
            "published": measured.published_gain(claim),
            "verdict": corrected.verdict,
            **comparison._asdict(),
            "corrected_p": corrected.p,
        }
        for (claim, comparison), corrected in zip(
            measured.comparisons, measured.corrected, strict=True
        )
    ]


def as_csv(measured: Measured) -> str:
    """Return a line per cell: what was published, the mean, the deviation and every seed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["section", "row", "column", "published", "mean", "std", "seeds", "values"])
    target = measured.target
    for row in target.rows:
        figures = published(target, row)
        for column in target.columns:
            values = list(measured.cell(row.name, column.name).values())
            mean = f"{statistics.mean(values):.4f}" if values else ""
            std = f"{statistics.stdev(values):.4f}" if len(values) > 1 else ""
            writer.writerow(
                [
                    row.section, row.name, column.name, figures.get(column.name, ""), mean, std,
                    len(values), " ".join(f"{value:.4f}" for value in values),
                ]
            )  # fmt: skip
    return out.getvalue()


def as_markdown(measured: Measured, details: Mapping[str, Any]) -> str:
    """Return a page: the table, the claims with their verdicts, and how it was measured."""
    target = measured.target
    parts = [f"# {target.name}: {target.title}", f"{target.source}."]
    if details.get("toy"):
        parts.append(
            "**Toy data**: the chain works and something is learned; no figure here says"
            " anything of the paper's."
        )
    parts.append("Measured figures; those of the paper in parentheses.")
    parts.append(_table(measured))
    if claims := _claims(measured):
        parts.append("## Claims\n\n" + "\n".join(f"- {line}" for line in claims))
        if len(claims) > 1:
            parts.append(
                f"P-values are corrected for these {len(claims)} comparisons by Holm's method;"
                " intervals are of each by itself."
            )
    if notes := [f"- {row.name}: {row.note}" for row in target.rows if row.note]:
        parts.append("## Notes\n\n" + "\n".join(notes))
    seeds = ", ".join(map(str, details.get("seeds", ())))
    how = f"Measured {details.get('date')} at {details.get('commit')} on {details.get('hardware')}"
    parts.append(f"{how}; seeds {seeds}. Figures are means and standard deviations over seeds.")
    if changes := details.get("changes"):
        parts.append("Changes to all recipes: " + ", ".join(f"`{one}`" for one in changes) + ".")
    parts.append(f"    polyglance reproduce {target.name}{' --toy' if details.get('toy') else ''}")
    return "\n\n".join(parts) + "\n"


def as_svg(measured: Measured) -> str | None:
    """Draw what was measured (filled) and published (hollow); None without any figure."""
    target = measured.target
    if target.plot == "lines":
        return _line_plot(measured)
    if target.plot == "scatter":
        return _scatter_plot(measured)
    columns = [column.name for column in target.columns]
    series = []
    for row in target.rows:
        ours = {name: mean for name in columns if (mean := _mean(measured.cell(row.name, name)))}
        theirs = published(target, row)
        group = f"{row.section}: {row.name}" if row.section else row.name
        if ours:
            series.append(language_plot.Dots(row.name, group, ours))
        if theirs:
            series.append(language_plot.Dots(f"{row.name}, published", group, theirs, hollow=True))
    return language_plot.plot(columns, series, y_label=target.y_label) if series else None


def _line_plot(measured: Measured) -> str | None:
    target = measured.target
    curves: dict[str, list[tuple[float, float]]] = {}
    for column in target.columns:
        if target.plot_columns and column.name not in target.plot_columns:
            continue
        for row in target.rows:
            if row.x is not None:
                name = row.section or column.name
                if row.section and len(target.plot_columns) != 1:
                    name = f"{row.section}, {column.name}"
                mean = _mean(measured.cell(row.name, column.name))
                if mean is not None:
                    curves.setdefault(name, []).append((row.x, mean))
                if (figure := published(target, row).get(column.name)) is not None:
                    curves.setdefault(f"{name}, published", []).append((row.x, figure))
    if not curves:
        return None
    return line_plot.plot(curves, x_label=target.x_label, y_label=target.y_label)


def _scatter_plot(measured: Measured) -> str | None:
    """Place rows by their first column (across) and their last (up)."""
    target = measured.target
    across, up = target.columns[0].name, target.columns[-1].name
    points = {}
    for row in target.rows:
        x, y = (_mean(measured.cell(row.name, name)) for name in (across, up))
        if x and y is not None:
            points[row.name] = (x, y)
        figures = published(target, row)
        if across in figures and up in figures:
            points[f"{row.name}, published"] = (figures[across], figures[up])
    if len({x for x, _ in points.values()}) < 2:
        return None
    return scatter_plot.plot(points, {}, x_label=target.x_label or across, y_label=target.y_label)


def _table(measured: Measured) -> str:
    target = measured.target
    has_sections = any(row.section for row in target.rows)
    header = [*(["section"] if has_sections else []), "row", *(c.name for c in target.columns)]
    lines = [header, ["---"] * (1 + has_sections) + ["---:"] * len(target.columns)]
    for row in target.rows:
        cells = [_cell(measured, row, column) for column in target.columns]
        lines.append([*([row.section] if has_sections else []), row.name, *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(measured: Measured, row: Row, column: Column) -> str:
    values = list(measured.cell(row.name, column.name).values())
    figure = published(measured.target, row).get(column.name)
    text = MISSING
    if values:
        text = f"{statistics.mean(values):.{column.digits}f}"
        if len(values) > 1:
            text += f" ± {statistics.stdev(values):.{column.digits}f}"
    return text if figure is None else f"{text} ({figure:.{column.digits}f})"


def _claims(measured: Measured) -> list[str]:
    lines = []
    for (claim, _), comparison in zip(measured.comparisons, measured.corrected, strict=True):
        paper = measured.published_gain(claim)
        beside = "" if paper is None else f" (the paper: {paper:+.1f})"
        over = (
            f"{comparison.over}, {comparison.seeds} and {comparison.queries:,}"
            if comparison.over == "seeds and queries"
            else f"{comparison.over} only"
        )
        lines.append(f"{claim.text}{beside}: {comparison.verdict} ({comparison}; over {over}).")
    return lines


def _mean(by_seed: BySeed) -> float | None:
    return statistics.mean(by_seed.values()) if by_seed else None


def _spread(by_seed: BySeed) -> dict[str, Any]:
    values: Sequence[float] = list(by_seed.values())
    return {
        "mean": statistics.mean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": {str(seed): value for seed, value in by_seed.items()},
    }


def describe(target: Target) -> str:
    """Return one line for a list of targets."""
    kind = (
        "" if target.measured else "  [not measured: " + (target.instead or "published only") + "]"
    )
    return f"{target.title}{kind}"

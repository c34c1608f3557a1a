"""Fill the page of training speed: steps, all pairs, their history, and sweeps.

    python -m benchmarks.reports.training_speed_page

Reads results/uc2_step.json, m3p_step.json, all_pairs.json, history.jsonl and, if there,
mmp_step.json, uc2_sweep.json, streaming_corpus.json, streaming_corpus_resident.json and
vtlm_memory.json; fills
docs/training-speed.md and draws its plots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import history
from benchmarks.history import HEADLINES, REGRESSION, Line
from benchmarks.reports import cross_encoder_tables, pages
from benchmarks.results_io import DOCS, RESULTS, read_results
from polyglance.reproduce.plots import line_plot

PAGE = DOCS / "training-speed.md"
TRAINING = {
    "uc2_step": "UC2", "m3p_step": "M3P", "mmp_step": "MMP", "packed_encoder": "encoder",
    "all_pairs": "all pairs",
}  # fmt: skip
"""Benchmarks of accelerators, and their names in plots. UC2 is judged by its mixture."""
STEPS = ("uc2_step", "m3p_step", "packed_encoder")
"""Those of a training step, whose figures are of one order of magnitude."""
AXES = {
    "length": "mean sub-words of a caption", "batch": "pairs a step",
    "languages": "languages of the captions",
}  # fmt: skip
MAX_SECONDS = 6 * 60
"""The goal for all pairs of 1,000 images and 5,000 captions."""
Curves = dict[str, list[tuple[float, float]]]


def main() -> None:
    sweep = RESULTS / "uc2_sweep.json"
    fill(
        history.read_history(),
        read_results("all_pairs"),
        read_results("uc2_sweep") if sweep.is_file() else None,
    )


def fill(
    lines: Sequence[Line],
    pairs: Mapping[str, Any],
    sweep: Mapping[str, Any] | None,
    document: Path = PAGE,
) -> None:
    """Fill the tables of a document, and draw its plots.

    Args:
        lines: the history of all speed benchmarks.
        pairs: the results of `benchmarks.speed.all_pairs`.
        sweep: the results of `benchmarks.speed.step_sweep`, if there are any.
        document: the page.
    """
    images = document.parent / "images"
    contents = {
        "uc2": cross_encoder_tables.step_speed(RESULTS / "uc2_step.json"),
        "m3p": cross_encoder_tables.step_speed(RESULTS / "m3p_step.json"),
        "mmp": mmp_step(RESULTS / "mmp_step.json"),
        "from disk": from_disk(RESULTS),
        "captions on disk": captions_on_disk(RESULTS / "vtlm_memory.json"),
        "all pairs": all_pairs(pairs),
        "plots": history_plots(lines, images),
        "history": history_table(lines),
        "changes": changes_table(lines),
        "sweep": sweep_section(sweep, images),
    }
    pages.fill(document, contents)


def mmp_step(path: Path) -> str:
    """Format pairs a second, operations and peak memory of MMP's step, beside other ways.

    Args:
        path: The results of `benchmarks.speed.mmp_step`.
    """
    if not path.is_file():
        return pages.NOT_MEASURED
    figures = read_results(path.stem, path.parent)
    settings = list(figures["pairs"])
    parts = [
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}"
        f" ([{path.name}](../benchmarks/results/{path.name})):"
    ]
    tables = {"pairs_per_second": ("", ",.0f"), "tflops": ("TFLOP/s", ".1f")}
    tables |= {"peak_gib": ("Peak memory in GiB", ".1f")}
    for key, (title, form) in tables.items():
        rows = [
            [variant, *(f"{by_setting[name]:{form}}" for name in settings)]
            for variant, by_setting in figures[key].items()
            if by_setting
        ]
        if rows:
            parts += [*([f"{title}:"] if title else []), pages.table(["", *settings], rows)]
    if "peak_tflops" in figures:
        parts.append(f"Large matrix products reach {figures['peak_tflops']:,} TFLOP/s there.")
    return "\n\n".join(parts)


def from_disk(results: Path) -> str:
    """Format training from a corpus on disk, beside batches that lie on the device.

    Args:
        results: The folder with the results of `benchmarks.speed.streaming_corpus`.
    """
    names = ("streaming_corpus", "streaming_corpus_resident")
    if not all((results / f"{name}.json").is_file() for name in names):
        return pages.NOT_MEASURED
    trained, compared = (read_results(name, results) for name in names)
    rows = [
        [
            part["part"],
            f"{part['speed']['median_pairs_per_second']:,}",
            f"{part['speed']['tflops']:.0f}",
            f"{part['speed']['peak_share']:.0%}",
            f"{part['peak_device_gib']:.1f}" if "peak_device_gib" in part else "–",
            f"{part['memory']['VmHWM']:.1f}",
            f"{part['seconds_to_start']:.0f}",
        ]
        for part in trained["parts"]
    ]
    header = [
        "process", "pairs a second", "TFLOP/s", "share of peak", "device GiB", "memory GB",
        "seconds to start",
    ]  # fmt: skip
    slowest = min(part["speed"]["median_pairs_per_second"] for part in trained["parts"])
    memory = max(part["memory"]["VmHWM"] for part in trained["parts"])
    rates, cost = compared["pairs_per_second"], compared["streaming_cost"]
    measured = (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}"
        f" ([{name}.json](../benchmarks/results/{name}.json))"
        for name, figures in zip(names, (trained, compared), strict=True)
    )
    yes = {True: "yes", False: "no"}
    return "\n\n".join(
        [
            f"{next(measured)}, {trained['corpus']['images']:,} images of"
            f" {trained['corpus']['regions']} regions, {trained['minutes']:.0f} minutes:",
            pages.table(header, rows),
            f"Goal: at least 10,000 pairs a second: {yes[slowest >= 10_000]} ({slowest:,}). Goal:"
            f" resident memory under 24 GB: {yes[memory < 24]} ({memory:.1f}).",
            f"{next(measured)}: {rates['streamed']:,} pairs a second streamed and"
            f" {rates['resident']:,} with the same batches on the device, which is"
            f" {cost:.2%} less. Goal: at most 5 %: {yes[cost <= 0.05]}.",
        ]
    )


def captions_on_disk(path: Path) -> str:
    """Format the memory of captions and word alignments, on disk beside in memory.

    Args:
        path: The results of `benchmarks.speed.vtlm_memory`.
    """
    if not path.is_file():
        return pages.NOT_MEASURED
    figures = read_results(path.stem, path.parent)
    rows = [
        [way, f"{used['gigabytes'] * 1000:,.0f}", f"{used['peak_gigabytes'] * 1000:,.0f}"]
        for way, used in figures["memory"].items()
    ]
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}"
        f" ([{path.name}](../benchmarks/results/{path.name})), {figures['captions']:,} captions:"
        f"\n\n{pages.table(['', 'MB in training', 'MB at the peak'], rows)}"
    )


def all_pairs(figures: Mapping[str, Any]) -> str:
    """Format the evaluation of all pairs, and whether it is fast enough."""
    rows = [[name, f"{rate:,}"] for name, rate in figures["pairs_per_second"].items()]
    seconds = figures["seconds"]
    return (
        f"Measured {figures['date']} at {figures['commit']} on {figures['hardware']}"
        " ([all_pairs.json](../benchmarks/results/all_pairs.json)):\n\n"
        f"{pages.table(['', 'pairs a second'], rows)}\n\n"
        f"{figures['images']:,} images x {figures['captions']:,} captions took {seconds:.1f} s."
        f" Goal: at most {MAX_SECONDS // 60} minutes: {'yes' if seconds <= MAX_SECONDS else 'no'}."
    )


def history_plots(lines: Sequence[Line], images: Path) -> str:
    """Draw pairs a second, and ratios to references, by measurement."""
    rates: Curves = {}
    ratios: Curves = {}
    for name in TRAINING:
        headline = HEADLINES[name]
        assert headline is not None
        measured = [line for line in lines if line["benchmark"] == name]
        for number, line in enumerate(measured, 1):
            if name in STEPS:
                rate = line["figures"][headline.path] / 1000
                rates.setdefault(_curve(name, measured, line), []).append((number, rate))
            for ratio, value in line["ratios"].items():
                reference = ratio.partition(" / ")[2]
                if not reference.startswith("packed"):
                    curve = f"{_curve(name, measured, line)}: {reference}"
                    ratios.setdefault(curve, []).append((number, 100 * value))
    labels = {
        "training-speed": (rates, "thousand pairs a second"),
        "training-speed-ratios": (ratios, "percent of the reference's pairs a second"),
    }
    links = []
    for file, (curves, y_label) in labels.items():
        drawn = line_plot.plot(curves, x_label="number of the measurement", y_label=y_label)
        (images / f"{file}.svg").write_text(drawn, encoding="utf-8")
        links.append(f"![{y_label.capitalize()} by measurement](images/{file}.svg)")
    return "\n\n".join(links)


def _curve(name: str, measured: Sequence[Line], line: Line) -> str:
    """Name a curve, with its machine where a benchmark was measured on several."""
    several = len({one["hardware"] for one in measured}) > 1
    return TRAINING[name] + (f", {_machine(line)}" if several else "")


def history_table(lines: Sequence[Line]) -> str:
    """Format the headline figure and the ratios of all measurements on accelerators."""
    rows = []
    for name, label in TRAINING.items():
        headline = HEADLINES[name]
        assert headline is not None
        for line in lines:
            if line["benchmark"] == name:
                ratios = ", ".join(
                    f"{ratio.partition(' / ')[2]}: {value:.2f}"
                    for ratio, value in line["ratios"].items()
                )
                rate = line["figures"][headline.path]
                about = [line["date"], f"`{line['commit']}`", _machine(line)]
                rows.append([label, *about, f"{rate:,}", ratios])
    header = ["", "date", "commit", "machine", "pairs a second", "times as fast as"]
    return pages.table(header, rows, text_columns=4)


def changes_table(lines: Sequence[Line]) -> str:
    """Compare the last measurement of every benchmark with the one before on the same machine."""
    rows = []
    for name, headline in HEADLINES.items():
        by_machine: dict[str, list[Line]] = {}
        for line in lines:
            if line["benchmark"] == name:
                by_machine.setdefault(line["hardware"], []).append(line)
        for measured in by_machine.values():
            changed = history.change(measured[-1], measured[-2]) if len(measured) > 1 else None
            if headline is None or changed is None:
                continue
            absolute, by_ratio = changed
            before, now = (line["figures"][headline.path] for line in measured[-2:])
            commits = f"`{measured[-2]['commit']}` to `{measured[-1]['commit']}`"
            ratio = ", ".join(
                f"{key.partition(' / ')[2]}: {value:+.1%}" for key, value in by_ratio.items()
            )
            unit = headline.path.replace("/", ", ")
            figures = [f"{before:,g}", f"{now:,g}", f"{absolute:+.1%}", ratio or "–"]
            about = [f"{name}: {unit}", _machine(measured[-1]), commits]
            rows.append([*about, *figures, verdict(absolute, by_ratio)])
    header = ["", "machine", "commits", "before", "now", "faster by", "by the ratio to", "slower?"]
    return pages.table(header, rows, text_columns=3)


def verdict(absolute: float, by_ratio: Mapping[str, float]) -> str:
    """Say whether a benchmark has become slower by more than 5 %, judged by ratios if it can."""
    judged = min(by_ratio.values(), default=absolute)
    if judged >= -REGRESSION:
        return "no"
    return "**yes**" if by_ratio else "perhaps: no common reference"


def sweep_section(sweep: Mapping[str, Any] | None, images: Path) -> str:
    """Format and draw pairs a second by length, batch and number of languages."""
    if sweep is None:
        return pages.NOT_MEASURED
    base = sweep["base"]
    parts = [
        f"Measured {sweep['date']} at {sweep['commit']} on {sweep['hardware']}"
        " ([uc2_sweep.json](../benchmarks/results/uc2_sweep.json)). One thing varies at a time;"
        f" otherwise captions have {base['length']} sub-words, steps {base['batch']:,} pairs, and"
        f" there are {base['languages']} languages. Beside pairs a second: peak memory in GiB."
    ]
    rates, memory = sweep["pairs_per_second"], sweep["peak_gib"]
    for axis, label in AXES.items():
        values = list(next(iter(rates.values()))[axis])
        rows = [
            [variant, *(_sweep_cell(by_axis[axis][v], memory[variant][axis][v]) for v in values)]
            for variant, by_axis in rates.items()
        ]
        curves = {
            variant: [(float(v), by_axis[axis][v] / 1000) for v in values if by_axis[axis][v]]
            for variant, by_axis in rates.items()
        }
        drawn = line_plot.plot(
            {name: curve for name, curve in curves.items() if curve},
            x_label=label,
            y_label="thousand pairs a second",
        )
        (images / f"sweep-{axis}.svg").write_text(drawn, encoding="utf-8")
        parts += [
            f"![Pairs a second by {label}](images/sweep-{axis}.svg)",
            pages.table([label, *(f"{int(v):,}" for v in values)], rows),
        ]
    return "\n\n".join(parts)


def _sweep_cell(rate: float | None, gib: float | None) -> str:
    if rate is None:
        return "does not fit"
    return f"{rate:,}" + (f" ({gib:.0f})" if gib else "")


def _machine(line: Line) -> str:
    name: str = line["hardware"]
    return name.partition(",")[0]


if __name__ == "__main__":
    main()

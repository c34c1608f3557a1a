"""Fill the default model's card and page from what was measured.

    python -m benchmarks.reports.default_model_page

Reads results/default_model.json, latency.json and photo_transfer.json, and the log and
report of the run that made the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import RESULTS
from polyglance.languages import describe

ROOT = Path(__file__).parents[2]
RUN = ROOT / "docs" / "polyglance-small"
PAGE = ROOT / "docs" / "default-model.md"
CARD = ROOT / "src" / "polyglance" / "encoders" / "polyglance-small" / "README.md"
PLOT = ROOT / "docs" / "images" / "training.svg"


def main() -> None:
    model, latency, transfer = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("default_model", "latency", "photo_transfer")
    )
    report = json.loads((RUN / "report.json").read_text(encoding="utf-8"))
    recalls = recall_tables(model["recalls"])
    pages.fill(CARD, {"recalls": recalls, "speed": speed(latency)})
    pages.fill(
        PAGE,
        {
            "recalls": recalls,
            "speed": speed(latency),
            "compression": compression(report),
            "transfer": transfer_table(transfer),
            "seen from coco": transfer_coco(transfer),
        },
    )
    PLOT.write_text(training_plot(RUN / "log.jsonl"), encoding="utf-8")
    print(f"wrote {PLOT}")


def recall_tables(measured: Mapping[str, Any]) -> str:
    """Recalls of each language, on each set of pictures."""
    parts = []
    for name, found in measured.items():
        ways = [f"{way} R@{k}" for way in ("T→P", "P→T") for k in (1, 5, 10)]
        header = ["language", "captions", *ways, "mR"]
        rows = [
            [
                describe(language).english,
                f"{result['captions']:,}",
                *(f"{r:.1f}" for r in result["text_to_image"].values()),
                *(f"{r:.1f}" for r in result["image_to_text"].values()),
                f"{result['mR']:.1f}",
            ]
            for language, result in found.items()
            if isinstance(result, dict)
        ]
        rows.append(["average", *[""] * 7, f"{found['average_mR']:.1f}"])
        path, _, last = name.partition(":")
        which = f"the last {last} pictures of {path}" if last else f"{path}"
        parts.append(
            f"On {which}: {found['pictures']:,} pictures to find; text to picture (T→P) and back."
            f"\n\n{pages.table(header, rows)}"
        )
    return "\n\n".join(parts)


def speed(latency: Mapping[str, Any]) -> str:
    """Milliseconds on one core, ONNX Runtime beside torch."""
    rows = []
    for what, label in (
        ("text_query_ms", "a query of one sentence"),
        ("picture_file_ms", "a picture file, decoded and encoded"),
    ):
        both = latency[what]
        rows.append([label, *(f"{both[way]['median']:.0f} ms" for way in ("onnx", "torch"))])
    first = latency["fresh_process_s"]["first_text"]["median"]
    return (
        f"{pages.table(['', 'ONNX Runtime', 'torch'], rows)}\n\n"
        f"From the start of a process to the first vector of a text: {first:.1f} s."
        f" {latency['bytes'] / 1e6:.1f} MB in all. One thread, {latency['hardware']},"
        f" {latency['date']}."
    )


def compression(report: Mapping[str, Any]) -> str:
    """mR before and after."""
    whole, small = report["test"], report["compressed"]["test"]
    header = ["flickr8k/test, mR", *whole]
    rows = [
        [label, *(f"{result['mR']:.1f}" for result in found.values())]
        for label, found in (("float32", whole), ("compressed", small))
    ]
    return pages.table(header, rows)


def transfer_table(transfer: Mapping[str, Any]) -> str:
    """mR by language for each setting."""
    settings = _all_last(transfer["settings"])
    header = ["trained on", *next(iter(settings.values()))["test"]]
    rows = [
        [name, *(f"{result['mR']:.1f}" for result in found["test"].values())]
        for name, found in settings.items()
    ]
    note = (
        f"mR on flickr8k/test after {transfer['steps']} steps of {transfer['batch']} pictures of"
        f" each corpus, one run each, {transfer['hardware']}, {transfer['date']}."
    )
    return f"{pages.table(header, rows)}\n\n{note}"


def transfer_coco(transfer: Mapping[str, Any]) -> str:
    """The same on MSCOCO's held-out pictures."""
    rows, header = [], ["trained on"]
    for name, found in _all_last(transfer["settings"]).items():
        coco = {k: v for k, v in found["validation"].items() if k.startswith("coco/")}
        header = ["trained on", *(key.partition(".")[2] for key in coco)]
        rows.append([name, *(f"{value:.1f}" for value in coco.values())])
    return pages.table(header, rows)


def _all_last(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings from least to most to learn from."""
    return dict(sorted(settings.items(), key=lambda named: ("all" in named[0], len(named[0]))))


def training_plot(log: Path) -> str:
    """Validation recall by language while the model learned."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        for name, value in entry.get("validation", {}).items():
            if "." not in name and name not in ("score", "average"):
                label = describe(name).english
            elif name == "coco/train.average":
                label = "MSCOCO, held out"
            else:
                continue
            curves.setdefault(label, []).append((entry["step"], value))
    return pages.plot(curves, across="steps", up="mR on validation pictures, in percent")


if __name__ == "__main__":
    main()

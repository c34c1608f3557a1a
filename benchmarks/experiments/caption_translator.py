"""What a trained caption translator reaches, and what the checks keep of its translations.

    polyglance train caption-translator --data DATA --out RUN --device cuda
    python -m benchmarks.experiments.caption_translator RUN --reports TRANSLATED --commit COMMIT
        --hardware "NVIDIA H200"

TRANSLATED is a JSON file of what `polyglance data translate` reported for each manifest and
language. The training was elsewhere: its commit and machine are named here. Writes
results/caption_translator.json and fills docs/translate.md.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import caption_translator_page as page
from benchmarks.results_io import write_results

_OF_RUN = ("steps", "seconds", "parameters", "vocabulary", "pairs", "test", "round_trip", "refused")


def main() -> None:
    options = _parse_options()
    report = json.loads((options.run / "report.json").read_text(encoding="utf-8"))
    figures: dict[str, Any] = {name: report[name] for name in _OF_RUN}
    if options.reports is not None:
        reports = json.loads(options.reports.read_text(encoding="utf-8"))
        figures["translated"] = count_checks(reports)
    measured = {name: getattr(options, name) for name in ("commit", "hardware", "date", "python")}
    figures |= {name: value for name, value in measured.items() if value is not None}
    write_results("caption_translator", figures, options.out)
    if options.document.is_file():
        page.fill(figures, options.document)


def count_checks(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Sum up reports over manifests, by language: texts, those that passed, dropped by check."""
    totals: dict[str, Counter[str]] = {}
    for name, report in reports.items():
        counts = totals.setdefault(name.rpartition("-")[2], Counter())
        counts.update({"texts": report["texts"], "captions": report["captions"]})
        counts.update({f"dropped: {check}": number for check, number in report["dropped"].items()})
    return {language: dict(counts) for language, counts in sorted(totals.items())}


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the run folder")
    parser.add_argument("--reports", type=Path, help="what data translate reported")
    parser.add_argument("--commit", help="of the training")
    parser.add_argument("--hardware", help="of the training")
    parser.add_argument("--date", help="of the training")
    parser.add_argument("--python", help="its version in the training")
    parser.add_argument("--out", type=Path, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=page.PAGE, help="page to fill")
    return parser.parse_args()


if __name__ == "__main__":
    main()

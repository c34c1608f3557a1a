"""Fill the default model's card and page, and draw its training curves.

    python -m benchmarks.reports.default_model_page

Reads results/default_model.json, base_model.json, latency.json, left_out_languages.json,
person_bias.json, photo_transfer.json and picture_sizes.json, and the logs and reports of the
training runs in docs/polyglance-small. Fills docs/default-model.md and the model's README.md,
draws docs/images/training.svg.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports import pages
from benchmarks.results_io import DOCS, ROOT, read_results
from polyglance.evaluation.statistics import Comparison
from polyglance.languages import get_language
from polyglance.reproduce.plots import line_plot

RUN = DOCS / "polyglance-small"
PAGE = DOCS / "default-model.md"
CARD = ROOT / "src" / "polyglance" / "encoders" / "polyglance-small" / "README.md"
PLOT = DOCS / "images" / "training.svg"


def main() -> None:
    model, latency, transfer = (
        read_results(name) for name in ("default_model", "latency", "photo_transfer")
    )
    report = json.loads((RUN / "report.json").read_text(encoding="utf-8"))
    recalls = recall_tables(model["recalls"])
    words = word_table(model["word_search"])
    bias = bias_table(read_results("person_bias"))
    pages.fill(CARD, {"recalls": recalls, "words": words, "speed": speed(latency), "bias": bias})
    pages.fill(
        PAGE,
        {
            "recalls": recalls,
            "words": words,
            "speed": speed(latency),
            "compression": compression(report),
            "texts alone": texts_alone(
                json.loads((RUN / "texts-report.json").read_text(encoding="utf-8"))
            ),
            "sizes": sizes_table(read_results("picture_sizes")),
            "transfer": transfer_table(transfer),
            "transfer to coco": transfer_coco(transfer),
            "left out": left_out_table(read_results("left_out_languages")),
            "larger": larger_model(model["recalls"], read_results("base_model")),
        },
    )
    PLOT.write_text(training_plot(RUN / "log.jsonl"), encoding="utf-8")
    print(f"wrote {PLOT}")


def bias_table(measured: Mapping[str, Any]) -> str:
    """Format how errors differ between captions of women and of men."""
    rows = []
    for text in ("as written", "neutral"):
        for name, result in measured[text].items():
            low, high = result["interval"]
            rows.append(
                [
                    f"{name}, {text}",
                    *(f"{result[key]:.1f}" for key in ("women", "men")),
                    f"{result['difference']:+.1f} ({low:+.1f} to {high:+.1f})",
                ]
            )
    counts, each = measured["as written"]["R@1"]["captions"], measured["pictures_of_each"]
    header = ["", "women", "men", "difference (95 % interval)"]
    return (
        f"{pages.table(header, rows)}\n\n{counts[0]:,} captions of women and {counts[1]:,} of men"
        f" about {each} pictures of each; {measured['date']}, `person_bias.json`."
    )


def recall_tables(measured: Mapping[str, Any]) -> str:
    """Format recall by language, a table per set of pictures."""
    parts = []
    for name, recalls in measured.items():
        columns = [f"{direction} R@{k}" for direction in ("T→P", "P→T") for k in (1, 5, 10)]
        header = ["language", "captions", *columns, "mR"]
        rows = [
            [
                get_language(language).english_name,
                f"{result['captions']:,}",
                *(f"{r:.1f}" for r in result["text_to_image"].values()),
                *(f"{r:.1f}" for r in result["image_to_text"].values()),
                f"{result['mR']:.1f}",
            ]
            for language, result in recalls.items()
            if isinstance(result, dict)
        ]
        rows.append(["average", *[""] * 7, f"{recalls['average_mR']:.1f}"])
        path, _, last = name.partition(":")
        which = f"the last {last} pictures of {path}" if last else f"{path}"
        parts.append(
            f"On {which}: {recalls['pictures']:,} pictures to find; text to picture (T→P) and back."
            f"\n\n{pages.table(header, rows)}"
        )
    return "\n\n".join(parts)


def word_table(found: Mapping[str, Any]) -> str:
    """Format word search by language, best first."""
    precision = found["mean_average_precision"]
    rows = [
        [get_language(code).english_name, f"{value:.1f}", f"{value / precision['en']:.0%}"]
        for code, value in sorted(precision.items(), key=lambda pair: -pair[1])
    ]
    return (
        f"The names of COCO's 80 classes as queries over the {found['pictures']:,} pictures of"
        f" {found['split']}: mean average precision, and its share of English's.\n\n"
        f"{pages.table(['language', 'mAP', 'of English'], rows)}"
    )


def speed(latency: Mapping[str, Any]) -> str:
    """Format milliseconds on one core, of ONNX Runtime and of torch."""
    rows = []
    for key, label in (
        ("text_query_ms", "a query of one sentence"),
        ("image_file_ms", "a picture file, decoded and encoded"),
    ):
        both = latency[key]
        rows.append(
            [label, *(f"{both[runtime]['median']:.0f} ms" for runtime in ("onnx", "torch"))]
        )
    first = latency["cold_start_s"]["first_text"]["median"]
    return (
        f"{pages.table(['', 'ONNX Runtime', 'torch'], rows)}\n\n"
        f"From the start of a process to the first vector of a text: {first:.1f} s."
        f" {latency['bytes'] / 1e6:.1f} MB, and {latency['reader_bytes'] / 1e6:.1f} MB of its"
        f" reader. One thread, {latency['hardware']}, {latency['date']}."
    )


def compression(report: Mapping[str, Any]) -> str:
    """Format mR before and after compression."""
    whole, small = report["test"], report["compressed"]["test"]
    header = ["flickr8k/test, mR", *whole]
    rows = [
        [label, *(f"{result['mR']:.1f}" for result in recalls.values())]
        for label, recalls in (("float32", whole), ("compressed", small))
    ]
    return pages.table(header, rows)


def texts_alone(report: Mapping[str, Any]) -> str:
    """Format mR before and after training on texts alone."""
    both = report["validation"]
    header = ["flickr8k/val, mR", *both["before"]]
    rows = [
        [label, *(f"{value:.1f}" for value in both[key].values())]
        for label, key in (("third edition", "before"), ("fourth edition", "after"))
    ]
    return pages.table(header, rows)


def sizes_table(measured: Mapping[str, Any]) -> str:
    """Format mR and encoding time by the size of pictures."""
    sizes = measured["sizes"]
    first = next(iter(sizes.values()))
    columns = [name for name in first if name != "milliseconds"]
    rows = [
        [
            f"{size} pixels",
            *(f"{result[name]:.1f}" for name in columns),
            f"x {result['milliseconds'] / first['milliseconds']:.2f}",
        ]
        for size, result in sizes.items()
    ]
    header = ["flickr8k/val, mR", *columns, "time to encode"]
    return (
        f"{pages.table(header, rows)}\n\nThe first takes {first['milliseconds']:.0f} ms a picture"
        f" on {measured['threads']} of {measured['hardware']}, {measured['date']}"
        " ([picture_sizes.json](../benchmarks/results/picture_sizes.json))."
    )


def larger_model(recalls: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """Format mR of the default model beside that of polyglance-base."""
    test = recalls["flickr8k/test.jsonl"]
    held_out = {
        code: recalls[f"coco/held-out/{code}.jsonl"][code]["mR"] for code in base["held_out"]
    }
    languages = [code for code in base["test"] if code != "average"]
    header = ["mR", *languages, "average", *(f"{code}, MSCOCO" for code in held_out)]
    small = [*(test[code]["mR"] for code in languages), test["average_mR"], *held_out.values()]
    large = [*(result["mR"] for result in base["test"].values()), *base["held_out"].values()]
    rows = [
        [name, *(f"{value:.1f}" for value in values)]
        for name, values in (("polyglance-small", small), ("polyglance-base", large))
    ]
    return (
        f"{pages.table(header, rows)}\n\nflickr8k/test, and 500 held-out pictures of each of the"
        f" last {len(held_out)} languages. polyglance-base after {base['steps']} steps in"
        f" {base['seconds']:.0f} s on one {base['hardware'].partition(',')[0]}, one run, in torch,"
        f" {base['date']} ([base_model.json](../benchmarks/results/base_model.json))."
    )


def transfer_table(transfer: Mapping[str, Any]) -> str:
    """Format mR by language, a row per setting."""
    settings = _from_least_to_most(transfer["settings"])
    header = ["trained on", *next(iter(settings.values()))["test"]]
    rows = [
        [name, *(f"{result['mR']:.1f}" for result in report["test"].values())]
        for name, report in settings.items()
    ]
    note = (
        f"mR on flickr8k/test after {transfer['steps']} steps of {transfer['batch']} pictures of"
        f" each corpus, one run each, {transfer['hardware']}, {transfer['date']}."
    )
    return f"{pages.table(header, rows)}\n\n{note}"


def transfer_coco(transfer: Mapping[str, Any]) -> str:
    """Format the same on MSCOCO's held-out pictures."""
    rows, header = [], ["trained on"]
    for name, report in _from_least_to_most(transfer["settings"]).items():
        coco = {k: v for k, v in report["validation"].items() if k.startswith("coco/")}
        header = ["trained on", *(key.partition(".")[2] for key in coco)]
        rows.append([name, *(f"{value:.1f}" for value in coco.values())])
    return pages.table(header, rows)


def left_out_table(measured: Mapping[str, Any]) -> str:
    """Format mR in languages with captions and without, and how far each run is above the last."""
    runs, comparisons = measured["runs"], measured["comparisons"]
    codes = [*next(iter(runs.values()))["held_out"]]
    header = ["Dutch, Persian and Vietnamese captions", *codes, "flickr8k/val"]
    rows = [
        [
            name,
            *(f"{report['held_out'][code]:.1f}" for code in codes),
            f"{report['validation']['average']:.1f}",
        ]
        for name, report in runs.items()
    ]
    rows += [
        [name, *(str(Comparison(**by_code[code])) for code in codes), ""]
        for name, by_code in comparisons.items()
    ]
    translated = " and ".join(
        f"{count:,} pictures in {get_language(code).english_name}"
        for code, count in measured["translated"].items()
    )
    return (
        f"{pages.table(header, rows)}\n\n*translated*: {translated}. mR among 500 held-out"
        f" pictures of each language after {measured['steps']} steps of {measured['batch']}"
        " pictures of MSCOCO, one run each; intervals and p-values over pictures."
        f" {measured['hardware']}, {measured['date']}."
    )


def _from_least_to_most(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sort the settings by how much there is to learn from."""
    return dict(sorted(settings.items(), key=lambda named: ("all" in named[0], len(named[0]))))


_CURVES = {
    "flickr8k/": "Flickr8k: images and captions",
    "coco/": "MSCOCO: images and captions",
    "labels": "names of labels",
    "classes.images": "names of classes",
    "captions.parallel": "parallel captions",
    "tatoeba": "Tatoeba",
    "words": "words",
}
"""Parts of the names of losses, and how the plot calls them."""


def training_plot(log: Path) -> str:
    """Draw the losses over training."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        for name, value in entry.items():
            for part, label in _CURVES.items():
                if part in name:
                    curves.setdefault(label, []).append((entry["step"], value))
    return line_plot.plot(curves, x_label="steps", y_label="loss, before its weight")


if __name__ == "__main__":
    main()

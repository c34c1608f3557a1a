"""Fill the page of the default model's reader.

    python -m benchmarks.reports.reader_page

Reads what results/ has of the reader, fills docs/reader.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.reports import pages
from benchmarks.reports.seeds import cell, spread
from benchmarks.results_io import DOCS, read_results
from polyglance.languages import get_language

PAGE = DOCS / "reader.md"
QUALITY, SPEED = "default_reader", "reader_speed"
LANGUAGES = "reader_languages"
CANDIDATES, PRIORS, TRIALS = "reader_candidates", "reader_priors", "reader_trials"
WORK = {
    "load": "load",
    "rerank": "re-rank 20 hits",
    "score": "the same hits again",
    "ask": "answer a question",
    "explain": "explain a sentence",
}


def main() -> None:
    fill(
        read_results(QUALITY), read_results(SPEED), read_results(LANGUAGES),
        read_results(CANDIDATES), read_results(PRIORS), read_results(TRIALS),
    )  # fmt: skip


def fill(
    quality: Mapping[str, Any],
    speed: Mapping[str, Any],
    asked: Mapping[str, Any],
    lists: Mapping[str, Any],
    corrected: Mapping[str, Any],
    tried: Mapping[str, Any],
    document: Path = PAGE,
) -> None:
    """Fill the tables of a document."""
    pages.fill(
        document,
        {
            "candidates": candidates(lists),
            "priors": priors(corrected),
            "trials": trials(tried),
            "languages": languages(asked),
            "re-ranking": reranking(quality),
            "questions": questions(quality["questions"]),
            "speed": speeds(speed),
            "how": how(quality, speed),
        },
    )


def candidates(figures: Mapping[str, Any]) -> str:
    """Format mR by language and by how many candidates are re-ranked, as shipped."""
    lists = {count: found["shipped_weight"] for count, found in figures["candidates"].items()}
    dual, *_ = (found["dual"] for found in lists.values())
    rows = []
    for code, before in dual.items():
        label = code if code == "average" else get_language(code).english_name
        cells = [label, f"{before:.1f}"]
        for found in lists.values():
            score = found["reranked"][code]
            cells += [f"{score:.1f}", f"{score - found['dual'][code]:+.1f}"]
        rows.append(cells)
    header = ["", "without"]
    for count in lists:
        header += [f"first {count} re-ranked", "reading adds"]
    return (
        f"{pages.table(header, rows)}\n\nMeasured {figures['date']} at {figures['commit']} on"
        f" {figures['hardware']} ([{CANDIDATES}.json](../benchmarks/results/{CANDIDATES}.json))."
    )


def priors(figures: Mapping[str, Any]) -> str:
    """Format mR and the recalls of both directions with candidates' own parts taken off."""
    names = {
        "cosines": "cosines alone", "as_shipped": "re-ranked, as shipped",
        "predicted": "less what the vector predicts",
    }  # fmt: skip
    above = figures["predicted_above_shipped"]
    columns = {"mR": "mR", "text_to_image": "text to picture", "image_to_text": "picture to text"}
    rows = [
        [label, *(f"{figures['test'][name][column]:.2f}" for column in columns)]
        for name, label in names.items()
    ]
    return (
        f"{pages.table(['', *columns.values()], rows)}\n\nOf the first 50. Taking"
        f" {figures['share']:.0%} of what the vector predicts off changes mR by"
        f" {above['mean']:+.2f} [{above['low']:+.2f}, {above['high']:+.2f}]. The share and the"
        " penalty of the regression were chosen on the validation pictures, learned on each half"
        f" and measured on the other. Measured {figures['date']} at {figures['commit']} on"
        f" {figures['hardware']} ([{PRIORS}.json](../benchmarks/results/{PRIORS}.json))."
    )


def trials(figures: Mapping[str, Any]) -> str:
    """Format mR of variants of the training, each compared with the first."""
    names = {
        "lists": "lists with three negatives of either kind",
        "groups": "groups of eight, as many pairs a step",
        "corpora": "and negatives of the picture's own corpus",
        "repeated": "and Flickr8k's pictures four times as often",
    }
    rows = []
    for name, scores in figures["mR"].items():
        above = figures["above_the_first"].get(name)
        gained = ["", ""]
        if above:
            gained = [f"{above['mean']:+.2f} [{above['low']:+.2f}, {above['high']:+.2f}]"]
            gained.append("< 0.001" if above["p"] < 0.001 else f"{above['p']:.2f}")
        given = figures["answers"][name]
        answers = f"{mean(given):.1f}" if given else ""
        rows.append([names.get(name, name), f"{mean(scores):.2f}", *gained, answers])
    seeds = len(next(iter(figures["mR"].values())))
    images = {above["queries"] for above in figures["above_the_first"].values()}
    header = ["", "mR", "above the first", "p", "answers"]
    return (
        f"{pages.table(header, rows)}\n\nValidation, {max(images):,} pictures,"
        " re-ranked with the weight of the cosine that is best for each row on these pictures;"
        " answers: the VQA score on questions about held-out pictures."
        f" {seeds} {'seed' if seeds == 1 else 'seeds'}, so that intervals and p are over pictures"
        f" alone; {figures['steps']} steps, and {_code(figures['set'])}. Measured"
        f" {figures['date']} at {figures['commit']} on"
        f" {figures['hardware']} ([{TRIALS}.json](../benchmarks/results/{TRIALS}.json))."
    )


def _code(changes: Sequence[str]) -> str:
    return ", ".join(f"`{change}`" for change in changes)


def reranking(quality: Mapping[str, Any]) -> str:
    """Format mR by language: of the library's vectors, with those at a larger size, re-ranked."""
    figures = quality["reranking"]["compressed"]
    # Cosines at a size of the reader's own, where it is not the library's.
    ranked = [name for name in ("dual", "dual_tta") if name in figures]
    rows = []
    for code in [*(code for code in figures["dual"] if code != "average"), "average"]:
        label = code if code == "average" else get_language(code).english_name
        scores = [figures[name][code] for name in (*ranked, "reranked")]
        rows.append([label, *(f"{mR:.1f}" for mR in scores), f"{scores[-1] - scores[-2]:+.1f}"])
    larger = [f"cosines at {quality['image_size']} pixels too"] if len(ranked) > 1 else []
    header = ["", "without", *larger, "re-ranked", "reading adds"]
    shipped = quality["shipped_reranking"]
    recalls = (
        f"{name} {shipped['dual'][name]:.1f} → {shipped['reranked'][name]:.1f}"
        for name in shipped["dual"]
    )
    seeds = [seed["reranked"]["average"] for seed in quality["reranking"].get("trained", ())]
    trained = ""
    if seeds:
        trained = (
            f"Before compression, {name_seeds(seeds)}: {cell(spread(seeds))} re-ranked, on average."
        )
    note = (
        "As shipped, for the first English caption of each of"
        f" {shipped['queries']:,} pictures, text to picture: {', '.join(recalls)}."
    )
    return "\n\n".join(filter(None, (pages.table(header, rows), trained, note)))


def questions(figures: Mapping[str, Any]) -> str:
    """Format the score by language beside the best answer of each type of question."""
    seeds = figures.get("trained", ())
    rows = []
    for code, shipped in figures["shipped"].items():
        trained = [cell(spread([seed[code] for seed in seeds]))] if seeds else []
        rows.append(
            [
                get_language(code).english_name,
                f"{shipped['questions']:,}",
                f"{shipped['best_answer_of_type']:.1f}",
                *trained,
                f"{figures['compressed'][code]:.1f}",
                f"{figures['whole_picture'][code]:.1f}",
                f"{shipped['score']:.1f}",
            ]
        )
    header = ["", "questions", "best answer of the type"]
    header += [f"trained, {name_seeds(seeds)}"] if seeds else []
    table = pages.table([*header, "compressed", "as shipped", "five crops"], rows)
    learned = " and ".join(
        f"{own['score']:.1f} ({get_language(code).english_name}, {own['questions']:,})"
        for code, own in figures["learned"].items()
    )
    return (
        f"{table}\n\nOn training questions about 200 pictures, as shipped by five crops: {learned}."
    )


def languages(figures: Mapping[str, Any]) -> str:
    """Format the accuracy of colour questions by language, with the picture and with another."""
    rows = [
        [
            get_language(code).english_name,
            f"{result['accuracy']:.1f}",
            f"{result['shuffled_pictures']:.1f}",
        ]
        for code, result in figures["languages"].items()
    ]
    table = pages.table(["", "right, %", "with another's picture"], rows)
    return (
        f"{table}\n\n{figures['questions']} questions about {figures['pictures']} pictures; "
        f"“{figures['best_answer']}” for all would be right for"
        f" {figures['best_answer_accuracy']:.1f} %. Measured {figures['date']} at"
        f" {figures['commit']} ([{LANGUAGES}.json](../benchmarks/results/{LANGUAGES}.json))."
    )


def name_seeds(seeds: Sequence[Any]) -> str:
    """Name the seeds that figures are of."""
    return "seed 0" if len(seeds) == 1 else f"{len(seeds)} seeds"


def speeds(speed: Mapping[str, Any]) -> str:
    """Format seconds, with the bounds that they were to keep."""
    bounds = speed["bounds"]
    rows = [
        [label, f"{speed[name]['seconds']:.2f}", f"{bounds[name]:.1f}" if name in bounds else ""]
        for name, label in WORK.items()
    ]
    return pages.table(["", "seconds", "at most"], rows)


def how(quality: Mapping[str, Any], speed: Mapping[str, Any]) -> str:
    """Say when, where and on what this was measured."""
    trained = ""
    if "training" in quality:
        counts = quality["training"]
        trained = (
            f"Trained for {quality['steps']:,} steps a seed on {counts['images']:,} pictures with"
            f" {counts['captions']:,} captions and {counts['questions']:,} questions. "
        )
    return (
        f"{trained}As shipped, measured {quality['date']} on {quality['hardware']}; speed"
        f" {speed['date']} on"
        f" {speed['hardware']}, {speed['threads']} threads, {speed['megabytes']:.1f} MB"
        f" ([{QUALITY}.json](../benchmarks/results/{QUALITY}.json),"
        f" [{SPEED}.json](../benchmarks/results/{SPEED}.json))."
    )


if __name__ == "__main__":
    main()

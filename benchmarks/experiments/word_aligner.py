"""The word aligner beside eflomal on parallel captions: speed, and the links they share.

    python -m benchmarks.experiments.word_aligner multi30k-parallel.jsonl.gz --eflomal eflomal-align

The file has a JSON object per line, a sentence by language. eflomal (GPL) is run as a program,
twice, because it samples: how far it agrees with itself bounds how far others can agree with it.
A dictionary, such as FreeDict's, counts the links that it has as translations, which favours
neither. Writes results/word_aligner.json, which benchmarks.reports.word_aligner_page shows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results_io import write_results
from polyglance.text.alignment import AlignerSettings, Alignment, align
from polyglance.text.alignment.links import Link, read_pharaoh, symmetrise
from polyglance.text.alignment.parallel import ParallelText
from polyglance.text.dictionaries import Dictionary, open_dictionary
from polyglance.text.english import lemmas

FREQUENT_WORDS = 500
TIMED_PAIRS = 29_000
SYMMETRISATIONS = ("intersection", "grow-diag-final-and")

Pairs = Sequence[tuple[list[str], list[str]]]
Links = Sequence[Sequence[Link]]


def read_pairs(path: Path, language: str) -> Pairs:
    """Read the words of parallel sentences in English and a language."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    both = ((text["en"], text[language]) for text in texts if language in text)
    pairs = ParallelText.from_texts(both, "en", language).lowercased()
    return [pair for pair in pairs if all(pair)]


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of a call and the seconds it took."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, round(time.perf_counter() - start, 2)


def eflomal(pairs: Pairs, program: str) -> tuple[Links, Links]:
    """Run eflomal; return its links in both directions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, file in enumerate(("source", "target")):
            lines = "".join(" ".join(pair[side]) + "\n" for pair in pairs)
            (folder / file).write_text(lines, encoding="utf-8")
        options = ("-s", "source", "-t", "target", "-f", "forward", "-r", "backward")
        subprocess.run([program, *options], cwd=folder, check=True, capture_output=True)
        return list(read_pharaoh(folder / "forward")), list(read_pharaoh(folder / "backward"))


def recall(pairs: Pairs, reference: Links, links: Links) -> dict[str, float]:
    """Return the share of reference links that are found: of all, and of frequent words."""
    counts = [Counter(word for pair in pairs for word in pair[side]) for side in (0, 1)]
    frequent = [{word for word, _ in count.most_common(FREQUENT_WORDS)} for count in counts]
    total, hits = Counter[str](), Counter[str]()
    for (source, target), expected, found in zip(pairs, reference, map(set, links), strict=True):
        for link in expected:
            both = source[link[0]] in frequent[0], target[link[1]] in frequent[1]
            groups = ["all"] + ["english_frequent"] * both[0] + ["both_frequent"] * all(both)
            total.update(groups)
            hits.update(groups if link in found else ())
    return {group: round(hits[group] / total[group], 4) for group in sorted(total)}


def count_in_dictionary(pairs: Pairs, links: Links, dictionary: Dictionary) -> int:
    """Count the links that a dictionary has, of a word or of its lemma."""

    def translations(word: str) -> frozenset[str]:
        by_form = [dictionary.translations(form) for form in (word, *lemmas(word))]
        return frozenset(other.lower() for others in by_form for other in others)

    senses = {word: translations(word) for source, _ in pairs for word in set(source)}
    return sum(
        target[j] in senses[source[i]]
        for (source, target), of_pair in zip(pairs, links, strict=True)
        for i, j in of_pair
    )


def measure(
    pairs: Pairs, both: dict[str, tuple[Links, Links]], dictionary: Dictionary | None
) -> dict[str, Any]:
    """Compare the links of each aligner with the intersection of eflomal's first run."""
    reference = symmetrise(*both["eflomal"], "intersection")
    figures: dict[str, Any] = {}
    for name, directions in both.items():
        figures[name] = {}
        for symmetrisation in SYMMETRISATIONS:
            links = symmetrise(*directions, symmetrisation)
            total = sum(map(len, links))
            agreed = sum(len(set(a) & set(b)) for a, b in zip(links, reference, strict=True))
            row = {
                "links": total,
                "recall_against_eflomal": recall(pairs, reference, links),
                "precision_against_eflomal": round(agreed / total, 4),
            }
            if dictionary is not None:
                row["in_dictionary"] = count_in_dictionary(pairs, links, dictionary)
            figures[name][symmetrisation] = row
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a JSON object per line, a sentence by language")
    parser.add_argument("--eflomal", default="eflomal-align", help="the program of eflomal")
    parser.add_argument("--languages", nargs="+", default=["de"])
    parser.add_argument("--dictionary", help="pattern: freedict-eng-{language}.index")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    figures: dict[str, Any] = {"data": options.data.name, "frequent_words": FREQUENT_WORDS}
    for language in options.languages:
        pairs = read_pairs(options.data, language)
        alignments: dict[str, Alignment] = {}
        seconds: dict[str, float] = {}
        for name, settings in (
            ("polyglance", AlignerSettings()),
            ("fast_align", AlignerSettings.fast_align()),
        ):
            alignments[name], seconds[name] = timed(align, pairs, settings)
        both = {name: (one.forward_links, one.backward_links) for name, one in alignments.items()}
        both["eflomal"], seconds["eflomal"] = timed(eflomal, pairs, options.eflomal)
        both["eflomal_rerun"] = eflomal(pairs, options.eflomal)
        dictionary = None
        if options.dictionary:
            path = options.dictionary.replace("{language}", language)
            dictionary = open_dictionary(path, source="en") if Path(path).exists() else None
        row = {"pairs": len(pairs), "seconds": seconds, **measure(pairs, both, dictionary)}
        if language == "de":
            many = (list(pairs) * (1 + TIMED_PAIRS // len(pairs)))[:TIMED_PAIRS]
            row[f"seconds_for_{TIMED_PAIRS}_pairs"] = timed(align, many)[1]
        figures[f"en-{language}"] = row
        print(json.dumps(row, indent=1))
    write_results("word_aligner", figures, options.out)


if __name__ == "__main__":
    main()

"""The word aligner beside eflomal, on translated captions: speed, and the links they share.

    python -m benchmarks.experiments.word_aligner multi30k-parallel.jsonl.gz --eflomal eflomal-align

The file has a JSON object a line, a sentence by language. eflomal (GPL) is run
as a program, twice, for it draws at random: how far it agrees with itself is
the most that anyone can agree with it. A dictionary, FreeDict's for example,
says how many links it knows as translations, which is nobody's own measure.
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

FREQUENT = 500
TIMED = 29_000
SYMMETRIES = ("intersection", "grow-diag-final-and")

Pairs = Sequence[tuple[list[str], list[str]]]
Links = Sequence[Sequence[Link]]


def read(path: Path, language: str) -> Pairs:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    both = ((text["en"], text[language]) for text in texts if language in text)
    pairs = ParallelText.of(both, "en", language).plain()
    return [pair for pair in pairs if all(pair)]


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work(*arguments)
    return found, round(time.perf_counter() - began, 2)


def eflomal(pairs: Pairs, program: str) -> tuple[Links, Links]:
    """Both directions that the program finds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, file in enumerate(("source", "target")):
            lines = "".join(" ".join(pair[side]) + "\n" for pair in pairs)
            (folder / file).write_text(lines, encoding="utf-8")
        options = ("-s", "source", "-t", "target", "-f", "forward", "-r", "backward")
        subprocess.run([program, *options], cwd=folder, check=True, capture_output=True)
        return list(read_pharaoh(folder / "forward")), list(read_pharaoh(folder / "backward"))


def shared(pairs: Pairs, wanted: Links, found: Links) -> dict[str, float]:
    """The share of wanted links that were found: of frequent words, of frequent pairs, of all."""
    counts = [Counter(word for pair in pairs for word in pair[side]) for side in (0, 1)]
    frequent = [{word for word, _ in count.most_common(FREQUENT)} for count in counts]
    asked, hit = Counter[str](), Counter[str]()
    for (source, target), links, ours in zip(pairs, wanted, map(set, found), strict=True):
        for link in links:
            often = source[link[0]] in frequent[0], target[link[1]] in frequent[1]
            kinds = ["all"] + ["english_frequent"] * often[0] + ["both_frequent"] * all(often)
            asked.update(kinds)
            hit.update(kinds if link in ours else ())
    return {kind: round(hit[kind] / asked[kind], 4) for kind in sorted(asked)}


def confirmed(pairs: Pairs, links: Links, dictionary: Dictionary) -> int:
    """How many links a dictionary knows, of a word or of its base form."""

    def known(word: str) -> frozenset[str]:
        found = [dictionary.translations(form) for form in (word, *lemmas(word))]
        return frozenset(other.lower() for others in found for other in others)

    senses = {word: known(word) for source, _ in pairs for word in set(source)}
    return sum(
        target[j] in senses[source[i]]
        for (source, target), here in zip(pairs, links, strict=True)
        for i, j in here
    )


def measure(
    pairs: Pairs, both: dict[str, tuple[Links, Links]], dictionary: Dictionary | None
) -> dict[str, Any]:
    """What each aligner's links are worth, against eflomal's first intersection."""
    theirs = symmetrise(*both["eflomal"], "intersection")
    figures: dict[str, Any] = {}
    for name, directions in both.items():
        figures[name] = {}
        for symmetry in SYMMETRIES:
            links = symmetrise(*directions, symmetry)
            total = sum(map(len, links))
            agreed = sum(len(set(a) & set(b)) for a, b in zip(links, theirs, strict=True))
            row = {
                "links": total,
                "of_eflomal_s_found": shared(pairs, theirs, links),
                "are_eflomal_s": round(agreed / total, 4),
            }
            if dictionary is not None:
                row["in_dictionary"] = confirmed(pairs, links, dictionary)
            figures[name][symmetry] = row
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a JSON object a line, a sentence by language")
    parser.add_argument("--eflomal", default="eflomal-align", help="its program")
    parser.add_argument("--languages", nargs="+", default=["de"])
    parser.add_argument("--dictionary", help="pattern: freedict-eng-{language}.index")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"data": arguments.data.name, "frequent_words": FREQUENT}
    for language in arguments.languages:
        pairs = read(arguments.data, language)
        found: dict[str, Alignment] = {}
        seconds: dict[str, float] = {}
        for name, told in (
            ("ours", AlignerSettings()),
            ("fast_align", AlignerSettings.fast_align()),
        ):
            found[name], seconds[name] = timed(align, pairs, told)
        both = {name: (one.forward_links, one.backward_links) for name, one in found.items()}
        both["eflomal"], seconds["eflomal"] = timed(eflomal, pairs, arguments.eflomal)
        both["eflomal again"] = eflomal(pairs, arguments.eflomal)
        dictionary = None
        if arguments.dictionary:
            path = arguments.dictionary.replace("{language}", language)
            dictionary = open_dictionary(path, source="en") if Path(path).exists() else None
        row = {"pairs": len(pairs), "seconds": seconds, **measure(pairs, both, dictionary)}
        if language == "de":
            many = (list(pairs) * (1 + TIMED // len(pairs)))[:TIMED]
            row[f"seconds_for_{TIMED}_pairs"] = timed(align, many)[1]
        figures[f"en-{language}"] = row
        print(json.dumps(row, indent=1))
    write_results("word_aligner", figures, arguments.out)


if __name__ == "__main__":
    main()

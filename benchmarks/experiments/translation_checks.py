"""What the checks of `polyglance data translate` keep and drop of translations by people.

    python -m benchmarks.experiments.translation_checks multi30k-parallel.jsonl.gz

The file has a JSON object a line, a sentence by language. All are right as they are; one in
twenty is then spoiled, left in English or cut to a quarter, and the checks should find
those. Whether the meaning is right is told by the default model, of right translations and of
those of another caption. Fills docs/translate.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polyglance
from benchmarks.reports import pages
from benchmarks.results_io import RESULTS, write_results
from polyglance.data.translate import embedding_check, standard_checks
from polyglance.encoders.protocol import Encoder
from polyglance.text.translation.checks import Pair, passing

PAGE = Path(__file__).parents[2] / "docs" / "translate.md"
SOURCE = "en"
ONE_IN = 20
"""Of so many translations one is spoiled."""


def main() -> None:
    options = _options()
    with gzip.open(options.texts, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    encoder = polyglance.load(threads=options.threads)
    languages = {}
    for language in options.languages:
        pairs = [(text[SOURCE], text[language]) for text in texts if language in text]
        languages[language] = measure(pairs[: options.pairs], language, encoder, options.meanings)
        print(language, languages[language], flush=True)
    figures = {"pairs": options.pairs, "meanings": options.meanings, "languages": languages}
    write_results("translation_checks", figures, options.out)
    if options.document.is_file():
        pages.fill(options.document, {"checks": table(figures)})


def measure(
    pairs: Sequence[Pair], language: str, encoder: Encoder, meanings: int
) -> dict[str, float | int]:
    """Of right translations what is dropped, and of spoiled ones what is found, in percent."""
    few = pairs[:meanings]
    alike = embedding_check(encoder)
    others = [(here, few[number - 1][1]) for number, (here, _) in enumerate(few)]
    return {
        "pairs": len(pairs),
        "dropped": len(dropped(pairs, language)),
        "left_in_english": found(pairs, language, lambda here, there: here),
        "cut_to_a_quarter": found(pairs, language, lambda here, there: there[: len(there) // 4]),
        "same_meaning_kept": _percent(alike(few, SOURCE, language)),
        "another_meaning_kept": _percent(alike(others, SOURCE, language)),
    }


def dropped(pairs: Sequence[Pair], language: str) -> list[Pair]:
    """Those that fail one of the checks that need no model."""
    _, failed = passing(pairs, standard_checks(), SOURCE, language)
    return [pair for bad in failed.values() for pair in bad]


def found(pairs: Sequence[Pair], language: str, spoil: Callable[[str, str], str]) -> float:
    """How many in a hundred of spoiled translations are dropped, among others that are right."""
    mixed = [
        (here, there if number % ONE_IN else spoil(here, there))
        for number, (here, there) in enumerate(pairs)
    ]
    bad = set(dropped(mixed, language))
    return _percent([pair in bad for pair in mixed[::ONE_IN]])


def table(figures: Mapping[str, Any]) -> str:
    """A row a language."""
    header = [
        "", "translations", "dropped", "left in English, found", "cut to a quarter, found",
        "right, kept by meaning", "of another caption, kept",
    ]  # fmt: skip
    rows = [
        [
            language,
            f"{one['pairs']:,}",
            str(one["dropped"]),
            *(f"{one[name]:.1f} %" for name in ("left_in_english", "cut_to_a_quarter")),
            *(f"{one[name]:.1f} %" for name in ("same_meaning_kept", "another_meaning_kept")),
        ]
        for language, one in figures["languages"].items()
    ]
    return pages.table(header, rows)


def _percent(good: Sequence[bool]) -> float:
    return 100 * sum(good) / len(good)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, help="a sentence by language in each line")
    parser.add_argument("--languages", nargs="+", default=["de", "fr", "cs", "pt"])
    parser.add_argument("--pairs", type=int, default=6000, help="translations of each language")
    parser.add_argument("--meanings", type=int, default=1000, help="of them by the default model")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=PAGE, help="where the table goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()

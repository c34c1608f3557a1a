"""What the checks of `polyglance data translate` keep and drop of human translations.

    python -m benchmarks.experiments.translation_checks multi30k-parallel.jsonl.gz

The file has a JSON object per line, a sentence by language. All translations are right as they
are; one in twenty is then spoiled, left in English or cut to a quarter, and the checks should find
those. The default model judges the meaning of right translations and of other captions'.
Writes results/translation_checks.json and fills docs/translate.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import polyglance
from benchmarks.reports import translation_checks_page as page
from benchmarks.results_io import RESULTS, write_results
from polyglance.data.translate import embedding_check, standard_checks
from polyglance.encoders.protocol import Encoder
from polyglance.text.translation.checks import Pair, filter_pairs

SOURCE = "en"
SPOIL_EVERY = 20
"""Of so many translations one is spoiled."""


def main() -> None:
    options = _parse_options()
    with gzip.open(options.texts, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    encoder = polyglance.load(threads=options.threads)
    languages = {}
    for language in options.languages:
        pairs = [(text[SOURCE], text[language]) for text in texts if language in text]
        languages[language] = measure(
            pairs[: options.pairs], language, encoder, options.embedded_pairs
        )
        print(language, languages[language], flush=True)
    figures = {
        "pairs": options.pairs,
        "embedded_pairs": options.embedded_pairs,
        "languages": languages,
    }
    write_results("translation_checks", figures, options.out)
    if options.document.is_file():
        page.fill(figures, options.document)


def measure(
    pairs: Sequence[Pair], language: str, encoder: Encoder, embedded_pairs: int
) -> dict[str, float | int]:
    """Return what is dropped of right translations and found of spoiled ones, in percent.

    Args:
        pairs: English sentences and their translations.
        language: The language of the translations.
        encoder: The model that judges their meaning.
        embedded_pairs: Number of pairs that it judges.
    """
    judged = pairs[:embedded_pairs]
    has_same_meaning = embedding_check(encoder)
    mismatched = [(source, judged[i - 1][1]) for i, (source, _) in enumerate(judged)]
    return {
        "pairs": len(pairs),
        "dropped": len(dropped(pairs, language)),
        "untranslated_found": share_found(pairs, language, lambda source, target: source),
        "truncated_found": share_found(
            pairs, language, lambda source, target: target[: len(target) // 4]
        ),
        "same_meaning_kept": _percent(has_same_meaning(judged, SOURCE, language)),
        "mismatched_kept": _percent(has_same_meaning(mismatched, SOURCE, language)),
    }


def dropped(pairs: Sequence[Pair], language: str) -> list[Pair]:
    """Return the pairs that fail one of the checks that need no model."""
    _, failed = filter_pairs(pairs, standard_checks(), SOURCE, language)
    return [pair for by_check in failed.values() for pair in by_check]


def share_found(pairs: Sequence[Pair], language: str, spoil: Callable[[str, str], str]) -> float:
    """Return the percentage of spoiled translations, among right ones, that is dropped."""
    mixed = [
        (source, target if number % SPOIL_EVERY else spoil(source, target))
        for number, (source, target) in enumerate(pairs)
    ]
    bad = set(dropped(mixed, language))
    return _percent([pair in bad for pair in mixed[::SPOIL_EVERY]])


def _percent(flags: Sequence[bool]) -> float:
    return 100 * sum(flags) / len(flags)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, help="a JSON object per line, a sentence by language")
    parser.add_argument("--languages", nargs="+", default=["de", "fr", "cs", "pt"])
    parser.add_argument("--pairs", type=int, default=6000, help="translations per language")
    parser.add_argument(
        "--embedded-pairs", type=int, default=1000, help="those that the default model judges"
    )
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--document", type=Path, default=page.PAGE, help="the docs page to fill")
    return parser.parse_args()


if __name__ == "__main__":
    main()

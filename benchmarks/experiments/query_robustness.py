"""Typing mistakes and exclusions: what `polyglance.search.query_syntax` is worth.

Typing mistakes: captions of flickr8k/val in six languages, each with one edit in one word of five
letters or more; recall of its picture among the first ten of all validation pictures, for the
caption as it was, mistyped, and mistyped and corrected.

Clean captions: how many captions as they were are changed by the correction (some have mistakes),
and what that does to the recall, in points of all captions. Spanish and Ukrainian captions belong
to training pictures, of which some are the library.

Scripts: see `query_scripts`.

Exclusions: names of COCO's classes in the languages of the interface, "dog without people" and
"without dogs", on pictures that the model was not trained on; which of the first 20 do not show
what was excluded, and show what was wanted.

    python -m benchmarks.experiments.query_robustness --data DATA --held-out MANIFEST...

Writes results/query_robustness.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.calibration import (
    NAMES,
    CachedTexts,
    encode_pictures,
    held_out_pictures,
)
from benchmarks.experiments.query_scripts import measure_scripts
from benchmarks.results_io import write_results
from polyglance.encoders import Encoder
from polyglance.encoders.protocol import Vectors
from polyglance.evaluation.calibration_data import LabelledPicture, read_labelled_pictures
from polyglance.search.judging import PEOPLE_WEIGHT, exclusion_vectors
from polyglance.search.query import encode_query
from polyglance.search.query_syntax import parse_query
from polyglance.text.segment import word_spans

LANGUAGES = ("en", "de", "fr", "cs", "pt", "ar")
NUM_CAPTIONS = 150
"""Captions of each language."""
NUM_CLEAN = 3
"""Captions of each picture in each language that are corrected though they are clean."""
NUM_TRAINED = 150
"""Training pictures with Spanish and Ukrainian captions."""
NUM_FIRST = 20
ONLY_WITHOUT = {
    "en": "without {}", "de": "ohne {}", "fr": "sans {}", "cs": "bez: {}", "pt": "sem {}",
    "zh": "没有{}", "ar": "بدون {}",
}  # fmt: skip
WITHOUT = {
    "en": "{} without {}", "de": "{} ohne {}", "fr": "{} sans {}", "cs": "{}, bez {}",
    "pt": "{} sem {}", "zh": "{}，没有{}", "ar": "{} بدون {}",
}  # fmt: skip
CZECH_GENITIVE = {"person": "lidí", "dog": "psa", "car": "auta", "dining table": "stolu",
                  "chair": "židle", "bench": "lavičky", "truck": "nákladního auta",
                  "bicycle": "kola", "horse": "koně", "cat": "kočky", "boat": "lodi",
                  "umbrella": "deštníku"}  # fmt: skip
EXCLUDED = ("person", "dog", "car", "dining table", "chair", "bench", "truck", "bicycle", "boat")
MIN_PICTURES = 25
"""Pictures with both classes, and with the first alone, that a pair must have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, nargs="+", required=True, help="manifests")
    parser.add_argument("--cache", type=Path, help="vectors of pictures, .npz")
    options = parser.parse_args()
    encoder = CachedTexts(options.cache)
    validation = read_labelled_pictures([options.data / "flickr8k" / "val.jsonl"])
    figures: dict[str, Any] = {
        "typing_mistakes": measure_mistakes(
            encoder, validation, encode_pictures(validation, options.cache)
        )
    }
    print(json.dumps(figures["typing_mistakes"], indent=1), flush=True)
    figures["clean_captions"] = measure_clean(
        encoder, validation, encode_pictures(validation, options.cache), LANGUAGES
    )
    more = read_labelled_pictures([options.data / "more" / "flickr8k-es-uk-mt.jsonl.xz"])
    trained = [
        replace(one, path=options.data / "flickr8k" / "images" / one.path.name)
        for one in more[:NUM_TRAINED]
    ]
    figures["clean_captions"] |= measure_clean(
        encoder, trained, encode_pictures(trained, options.cache), ("es", "uk")
    )
    print(json.dumps(figures["clean_captions"], indent=1), flush=True)
    pictures = held_out_pictures(options.data, options.held_out)
    vectors = encode_pictures(pictures, options.cache)
    # Labels of the others were read from captions, which do not name everything.
    labelled = np.array([picture.path.stem.isdecimal() for picture in pictures])
    chosen = [picture for picture, known in zip(pictures, labelled, strict=True) if known]
    names = json.loads(NAMES.read_text())
    figures["scripts"] = measure_scripts(encoder, chosen, vectors[labelled])
    figures["exclusions"] = measure_exclusions(encoder, chosen, vectors[labelled], names)
    print(json.dumps(figures["exclusions"], indent=1))
    write_results("query_robustness", figures)


def measure_mistakes(
    encoder: Encoder, pictures: Sequence[LabelledPicture], vectors: Vectors
) -> dict[str, Any]:
    """Return recall of captions with and without typing mistakes, by language."""
    generator = np.random.default_rng(0)
    report: dict[str, Any] = {}
    for code in LANGUAGES:
        mistyped, clean, own = list[str](), list[str](), list[int]()
        for number in generator.permutation(len(pictures)).tolist():
            texts = pictures[number].captions.get(code, ())
            if not texts or len(clean) == NUM_CAPTIONS:
                continue
            text = texts[generator.integers(len(texts))]
            wrong = mistype(text, code, generator)
            if wrong is not None:
                clean.append(text)
                mistyped.append(wrong)
                own.append(number)
        corrected = [_corrected(encoder, text) for text in mistyped]
        recalls = {
            name: recall(encoder.encode_texts(texts) @ vectors.T, own)
            for name, texts in (
                ("clean", clean), ("mistyped", mistyped), ("corrected", corrected),
            )
        }  # fmt: skip
        report[code] = {
            "captions": len(clean),
            **recalls,
            "share_of_clean": round(recalls["corrected"] / recalls["clean"], 4),
            "restored": _share(zip(corrected, clean, strict=True)),
        }
    return report


def measure_clean(
    encoder: Encoder,
    pictures: Sequence[LabelledPicture],
    vectors: Vectors,
    languages: Sequence[str],
) -> dict[str, Any]:
    """Return how many captions the correction changes, and by how much recall changes, in points.

    Only captions that are changed are encoded: the recall of others stays.
    """
    report: dict[str, Any] = {}
    for code in languages:
        captions = [
            (number, text)
            for number, picture in enumerate(pictures)
            for text in picture.captions.get(code, ())[:NUM_CLEAN]
        ]
        pairs = [(number, text, _corrected(encoder, text)) for number, text in captions]
        changed = [(number, (text, fixed)) for number, text, fixed in pairs if fixed != text]
        own = [number for number, _ in changed]
        typed, corrected = (
            recall(encoder.encode_texts([texts[column] for _, texts in changed]) @ vectors.T, own)
            if changed
            else 0.0
            for column in (0, 1)
        )
        share = len(changed) / len(captions)
        report[code] = {
            "captions": len(captions),
            "changed": round(share, 4),
            "recall_of_changed": {"typed": typed, "corrected": corrected},
            "points": round(100 * share * (corrected - typed), 3),
        }
    return report


def mistype(text: str, language: str, generator: np.random.Generator) -> str | None:
    """Make one edit in one word of five letters or more; None if there is none."""
    spans = [
        (start, end)
        for start, end in word_spans(text, language)
        if end - start >= 5 and text[start:end].isalpha()
    ]
    if not spans:
        return None
    start, end = spans[generator.integers(len(spans))]
    word = text[start:end]
    letters = sorted({character for character in text.lower() if character.isalpha()})
    while True:
        at = int(generator.integers(len(word)))
        letter = letters[generator.integers(len(letters))]
        wrong = (
            word[:at] + word[at + 1 :],
            word[:at] + letter + word[at:],
            word[:at] + letter + word[at + 1 :],
            word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :],
        )[generator.integers(4)]
        if wrong != word:
            return text[:start] + wrong + text[end:]


def recall(scores: Vectors, own: Sequence[int], k: int = 10) -> float:
    """Return the share of rows whose own column is among the ``k`` best."""
    best = scores[np.arange(len(own)), own][:, None]
    return round(float(((scores > best).sum(1) < k).mean()), 4)


def measure_exclusions(
    encoder: Encoder,
    pictures: Sequence[LabelledPicture],
    vectors: Vectors,
    names: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """Return the precision among the first hits, by language."""
    has = {label: np.array([label in picture.labels for picture in pictures]) for label in names}
    pairs = [
        (wanted, label)
        for wanted in names
        for label in EXCLUDED
        if wanted not in (label, "person")
        and min((has[wanted] & has[label]).sum(), (has[wanted] & ~has[label]).sum()) >= MIN_PICTURES
    ]
    report: dict[str, Any] = {"pictures": len(pictures), "pairs": len(pairs)}
    for code in ONLY_WITHOUT:
        genitive = CZECH_GENITIVE if code == "cs" else {}
        first, plain, people = [], [], []
        for wanted, label in pairs:
            name = genitive.get(label, names[label][code])
            query = WITHOUT[code].format(names[wanted][code], name)
            for text, rows in ((query, first), (names[wanted][code], plain)):
                hits = _search(encoder, text, code, vectors)
                rows.append((~has[label][hits], has[wanted][hits] & ~has[label][hits]))
                if label == "person" and rows is first:
                    people.append(~has[label][hits])
        alone = {
            label: _without_alone(encoder, genitive.get(label, names[label][code]), code, vectors)
            for label in EXCLUDED
        }
        report[code] = {
            "without_excluded": _mean(row for row, _ in first),
            "wanted_without_excluded": _mean(row for _, row in first),
            "without_people": _mean(people),
            "not_asked": _mean(row for row, _ in plain),
            "wanted_not_asked": _mean(row for _, row in plain),
            "only_without": {label: _mean([~has[label][hits]]) for label, hits in alone.items()},
        }
    report["share_without"] = {label: _mean([~has[label]]) for label in EXCLUDED}
    return report


def _without_alone(encoder: Encoder, name: str, code: str, vectors: Vectors) -> Any:
    text = ONLY_WITHOUT[code].replace(":", "").format(name)
    return _search(encoder, text, code, vectors)


def _search(encoder: Encoder, text: str, code: str, vectors: Vectors) -> Any:
    parsed = parse_query(text, code)
    words, directions = exclusion_vectors(encoder, parsed.excluded)
    wanted = [one.part for one in parsed.wanted]
    query = encode_query(
        encoder,
        wanted,
        exclude=words,
        exclude_pictures=directions,
        exclude_weights=[1.0] * len(words) + [PEOPLE_WEIGHT] * len(directions),
    )
    return np.argsort(-(vectors @ query.vector), kind="stable")[:NUM_FIRST]


def _corrected(encoder: Encoder, text: str) -> str:
    surprisal = getattr(encoder, "surprisal", None)
    return parse_query(text, surprisal=surprisal).searched_for or text


def _share(pairs: Any) -> float:
    return round(float(np.mean([one.casefold() == other.casefold() for one, other in pairs])), 4)


def _mean(rows: Any) -> float:
    return round(float(np.mean(np.concatenate(list(rows)))), 4)


if __name__ == "__main__":
    main()

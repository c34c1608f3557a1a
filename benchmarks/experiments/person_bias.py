"""How the default model's errors differ between captions of women and of men.

    python -m benchmarks.experiments.person_bias --data DATA

The pictures of DATA/flickr8k/test.jsonl whose English captions name women or girls and never men or
boys, and as many, drawn at random, of the reverse: with more pictures of one sex, more wrong hits
would show it. Text to picture among these: recall with the captions that name somebody as they are,
and with the person made neutral ("a person", "a child", "their"), which is lower by as much as the
words had told; and, where the first hit is wrong, how often it shows the other sex. Differences
between both groups have an interval by bootstrap over pictures. Takes two minutes on two cores.
Writes results/person_bias.json.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyglance
from benchmarks.results_io import RESULTS, write_results
from polyglance.records import read_manifest

WORDS = {
    "women": r"wom[ae]n|girls?|lad(?:y|ies)|she|her|hers",
    "men": r"m[ae]n|boys?|guys?|he|his|him",
}
NEUTRAL = {
    "woman|man|lady|guy": "person",
    "women|men|ladies|guys": "people",
    "girl|boy": "child",
    "girls|boys": "children",
    "she|he": "they",
    "her|his|hers": "their",
    "him": "them",
}
RESAMPLES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    manifest = options.data / "flickr8k" / "test.jsonl"
    every = [record for record in read_manifest(manifest) if record.captions.get("en")]
    by_sex = {
        name: [record for record in every if sex_of(record.captions["en"]) == name]
        for name in WORDS
    }
    size = min(map(len, by_sex.values()))
    generator = np.random.default_rng(0)
    records = [
        own[place]
        for own in by_sex.values()
        for place in generator.choice(len(own), size, replace=False)
    ]
    shown = [name for name in by_sex for _ in range(size)]
    captions = [
        (place, text, sex)
        for place, record in enumerate(records)
        for text in record.captions["en"]
        if (sex := sex_of([text])) is not None
    ]
    encoder = polyglance.load(threads=options.threads)
    pictures = encoder.encode_pictures([manifest.parent / str(r.image) for r in records])
    own = np.array([place for place, _, _ in captions])
    women = np.array([sex == "women" for _, _, sex in captions])
    found = {}
    for name, texts in (
        ("as written", [text for _, text, _ in captions]),
        ("neutral", [neutral(text) for _, text, _ in captions]),
    ):
        cosines = encoder.encode_texts(texts) @ pictures.T
        ranks = (cosines > cosines[np.arange(len(own)), own][:, None]).sum(1)
        best = cosines.argmax(1)
        opposite = np.where(women, "men", "women")
        other = np.array([shown[hit] for hit in best]) == opposite
        found[name] = (ranks, other)
    figures: dict[str, Any] = {
        "pictures_of_each": size,
        "pictures_in_all": {name: len(own) for name, own in by_sex.items()},
    }
    for name, (ranks, other) in found.items():
        figures[name] = {
            "R@1": compare((ranks < 1) * 100.0, women, own),
            "R@10": compare((ranks < 10) * 100.0, women, own),
            "first hit shows the other, of wrong ones": compare(
                other[ranks > 0] * 100.0, women[ranks > 0], own[ranks > 0]
            ),
        }
    write_results("person_bias", figures, options.out)


def sex_of(texts: list[str] | tuple[str, ...]) -> str | None:
    """Return whose words texts have, None for both or neither."""
    has = [
        name
        for name, words in WORDS.items()
        if any(re.search(rf"\b(?:{words})\b", text, re.IGNORECASE) for text in texts)
    ]
    return has[0] if len(has) == 1 else None


def neutral(text: str) -> str:
    """Return a caption that does not say whether people are female or male."""
    for words, instead in NEUTRAL.items():
        text = re.sub(rf"\b(?:{words})\b", instead, text, flags=re.IGNORECASE)
    return text


def compare(
    values: NDArray[np.float64], women: NDArray[np.bool_], pictures: NDArray[np.int64]
) -> dict[str, Any]:
    """Return both groups' means, and their difference with a 95 % interval."""
    names, place = np.unique(pictures, return_inverse=True)
    sums = [np.bincount(place, values * mask, len(names)) for mask in (women, ~women)]
    counts = [np.bincount(place, mask, len(names)) for mask in (women, ~women)]
    drawn = np.random.default_rng(0).integers(len(names), size=(RESAMPLES, len(names)))
    means = [s[drawn].sum(1) / c[drawn].sum(1) for s, c in zip(sums, counts, strict=True)]
    low, high = np.percentile(means[0] - means[1], [2.5, 97.5])
    both = [float(values[mask].mean()) for mask in (women, ~women)]
    return {
        "women": both[0],
        "men": both[1],
        "difference": both[0] - both[1],
        "interval": [float(low), float(high)],
        "captions": [int(women.sum()), int((~women).sum())],
    }


if __name__ == "__main__":
    main()

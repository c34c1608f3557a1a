"""Count the words of captions and Tatoeba's sentences, for the speller and language guessing.

    python -m benchmarks.experiments.spelling_words --data DATA

Writes src/polyglance/text/spelling/words. No caption of a validation or test picture is counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from polyglance.languages import normalise_language
from polyglance.text.segment import UNSPACED, normalise_word, word_spans
from polyglance.text.spelling.word_lists import FOLDER, write_word_lists

LANGUAGES = frozenset(
    {"ar", "bg", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hi", "hu", "id", "it",
     "nb", "nl", "pl", "pt", "ro", "ru", "sr", "sv", "tr", "uk", "vi"}
)  # fmt: skip
"""Languages that are told apart; those with enough text also get a list."""
CAPTIONS = (
    "flickr8k/train.jsonl", "coco/train.jsonl", "more/coco-en-human.jsonl.xz",
    "more/flickr8k-ar-human.jsonl.xz", "more/coco-nl-mt.jsonl.xz", "more/coco-fa-mt.jsonl.xz",
    "more/coco-vi-human.jsonl.xz", "more/flickr8k-es-uk-mt.jsonl.xz",
)  # fmt: skip
PARALLEL = ("text/multi30k-parallel.jsonl.gz", "more/multi30k-parallel-more.jsonl.xz")
SENTENCES = ("text/tatoeba.tsv.gz", "more/tatoeba-more.tsv.xz")
_MARKS = str.maketrans("", "", "'\u200c")
"""What a word may have beside letters."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    for code, text in read_texts(options.data):
        words = counts.setdefault(code, Counter())
        for start, end in word_spans(text, code):
            word = normalise_word(text[start:end], code)
            if word.translate(_MARKS).isalpha() or code == "hi":
                words[word] += 1
    write_word_lists(counts, options.out)
    total = sum(path.stat().st_size for path in options.out.iterdir())
    print(f"{options.out}: {len(counts)} languages, {total / 1e6:.2f} MB")


def read_texts(data: Path) -> Iterator[tuple[str, str]]:
    """Yield texts with their languages."""
    for name in CAPTIONS:
        for line in _lines(data / name):
            for code, texts in json.loads(line)["captions"].items():
                yield from _known(code, texts)
    for name in PARALLEL:
        for line in _lines(data / name):
            for code, text in json.loads(line).items():
                yield from _known(code, [text])
    for name in SENTENCES:
        for line in _lines(data / name):
            code, sentence, english = line.rstrip("\n").split("\t")
            yield "en", english
            yield from _known(code, [sentence])


def _known(code: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    code = normalise_language(code)
    if code in LANGUAGES and code not in UNSPACED:
        for text in texts:
            yield code, text


def _lines(path: Path) -> Iterator[str]:
    opened = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opened(path, "rt", encoding="utf-8") as file:
        yield from file


if __name__ == "__main__":
    main()

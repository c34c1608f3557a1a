"""Count the words of captions and Tatoeba's sentences, for the speller and language guessing.

    python -m benchmarks.experiments.spelling_words --data DATA
    python -m benchmarks.experiments.spelling_words --dictionaries FOLDER

Writes src/polyglance/text/spelling/words. No caption of a validation or test picture is counted.
``--dictionaries`` has ``de.json.gz`` and others, as the package pyspellchecker (MIT) has them in
``spellchecker/resources``: of their words those are kept that would be corrected otherwise.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

from polyglance.languages import normalise_language
from polyglance.text.segment import UNSPACED, normalise_word, word_spans
from polyglance.text.spelling import KnownWords, WordLists
from polyglance.text.spelling.speller import MAX_BITS, MIN_LENGTH
from polyglance.text.spelling.word_lists import FOLDER, KNOWN, write_word_lists

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
COMPOUNDING = frozenset({"de", "nl"})
"""Languages with a dictionary in which words are joined to new ones."""
MIN_FIRST, MIN_BITS = 4, -17.0
"""Letters and frequency of the first part of a compound."""
_MARKS = str.maketrans("", "", "'\u200c")
"""What a word may have beside letters."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--dictionaries", type=Path)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    if options.data is not None:
        write_counts(options.data, options.out)
    if options.dictionaries is not None:
        write_dictionaries(options.dictionaries, options.out)


def write_counts(data: Path, out: Path) -> None:
    """Count words and write the lists."""
    counts: dict[str, Counter[str]] = {}
    for code, text in read_texts(data):
        words = counts.setdefault(code, Counter())
        for start, end in word_spans(text, code):
            word = normalise_word(text[start:end], code)
            if word.translate(_MARKS).isalpha() or code == "hi":
                words[word] += 1
    write_word_lists(counts, out)
    total = sum(path.stat().st_size for path in out.glob("*.xz"))
    print(f"{out}: {len(counts)} languages, {total / 1e6:.2f} MB")


def write_dictionaries(source: Path, out: Path) -> None:
    """Write the words of dictionaries that are one edit away from a frequent word."""
    lists = WordLists(out)
    (out / KNOWN).mkdir(exist_ok=True)
    for path in (out / KNOWN).glob("*.bloom"):
        path.unlink()
    for code in lists.languages:
        path = source / f"{code}.json.gz"
        if not path.is_file():
            continue
        with gzip.open(path, "rt", encoding="utf-8") as file:
            words = {normalise_word(word, code) for word in json.load(file)}
        if code in COMPOUNDING:
            words |= set(find_heads(words, lists.words(code)))
        frequent = {word for word, bits in lists.words(code).items() if bits > -MAX_BITS}
        gaps = {gap for word in frequent for gap in _gaps(word)}
        kept = [word for word in sorted(words - frequent) if _is_near(word, frequent, gaps)]
        content = KnownWords.of(kept).to_bytes()
        (out / KNOWN / f"{code}.bloom").write_bytes(content)
        print(f"{code}: {len(kept):,} of {len(words):,} words, {len(content) / 1e3:.0f} kB")


def find_heads(words: Iterable[str], frequent: Mapping[str, float]) -> Iterator[str]:
    """Yield what is left of a compound without its first part: "Echsen" of "Meerechsen"."""
    for word in words:
        for at in range(MIN_FIRST, len(word) - MIN_LENGTH + 1):
            if frequent.get(word[:at], -99.0) > MIN_BITS:
                yield word[at:]


def _gaps(word: str) -> Iterator[str]:
    """Yield a word with each letter replaced by a mark, and with a mark between any two."""
    for at in range(len(word) + 1):
        yield f"{word[:at]}*{word[at + 1 :]}"
        yield f"{word[:at]}*{word[at:]}"


def _is_near(word: str, frequent: Set[str], gaps: Set[str]) -> bool:
    """Return whether a frequent word may be one edit away; `_gaps` of all are given."""
    swapped = (word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1))
    edited = len(word) >= MIN_LENGTH and any(gap in gaps for gap in _gaps(word))
    return word.isalpha() and (edited or any(one in frequent for one in swapped))


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

"""Resident memory of UC2's captions, their word alignments and merged manifests.

Writes a manifest of English captions of synthetic words and, beside it, one of their German
translations, which the recipe merges. Two processes then load what VTLM needs, one from disk as for
a large corpus and one in memory as for a small one, and report what they occupy when training
could begin, beyond what the imported libraries do. Words are aligned with those at the same place,
in place of the word aligner, whose memory is bounded by ``translations.part_images``.

    python -m benchmarks.speed.vtlm_memory --captions 100000
    python -m benchmarks.speed.vtlm_memory --tiny

Writes results/vtlm_memory.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results_io import write_results
from polyglance.data.caption_files import build_captions
from polyglance.data.captions import CaptionTable
from polyglance.data.lazy_records import LazyRecords
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler, Streaming
from polyglance.recipes.cross_encoder.config import CaptionedImages, CaptionFile
from polyglance.recipes.cross_encoder.corpora import read_corpus
from polyglance.recipes.cross_encoder.merged_manifest import merged_path, write_merged
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions, AlignedPair
from polyglance.recipes.uc2.alignment_files import open_alignments, write_alignments
from polyglance.records import Record, write_manifest
from polyglance.text.tokenizer import Encoding
from polyglance.training.mixture import step_generator

WORDS, VOCABULARY, BATCH = 10, 20_000, 1024
CORPUS = CaptionedImages("english.jsonl", merge=(CaptionFile("german.jsonl"),))


class WordTokenizer:
    """A tokenizer whose sub-words are words, each named by its number."""

    unk_id = 1

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the words' numbers between special tokens."""
        return [[0, *(4 + int(word[1:]) for word in text.split()), 2] for text in texts]

    def encode_with_spans(self, text: str) -> Encoding:
        """Return the words' numbers and where the words are."""
        spans, at = [(0, 0)], 0
        for word in text.split():
            spans.append((at, at + len(word)))
            at += len(word) + 1
        words = ["<s>", *text.split(), "</s>"]
        return Encoding(self.encode_batch([text])[0], words, [*spans, (0, 0)])


def records(language: str, captions: int) -> Iterator[Record]:
    """Yield images with a caption each."""
    generator = np.random.default_rng(0)
    for first in range(0, captions, 10_000):
        count = min(10_000, captions - first)
        for number, words in enumerate(generator.integers(VOCABULARY, size=(count, WORDS))):
            text = " ".join(f"{language[0]}{word}" for word in words)
            yield Record(image=f"{first + number:08d}.jpg", captions={language: (text,)})


def align(part: Sequence[Record], language: str) -> list[AlignedPair]:
    """Align every second word with that at the same place."""
    links = tuple((place, place) for place in range(0, WORDS, 2))
    return [AlignedPair(number, 0, 0, links) for number in range(len(part))]


def load(data: Path, *, on_disk: bool) -> tuple[Any, ...]:
    """Load images, captions and alignments, as a recipe does."""
    tokenizer: Any = WordTokenizer()
    streaming = Streaming(BATCH)
    if not on_disk:
        images: Sequence[Record] = read_corpus(CORPUS, data)
        table = CaptionTable.build(images, tokenizer)
        aligned = {("en", "de"): align(images, "de")}
        pairs = AlignedCaptions.from_links(images, table, tokenizer, aligned, streaming=streaming)
        return images, table, LanguageBalancedSampler(table, streaming=streaming), pairs, aligned
    path = merged_path(CORPUS, data, "cache")
    if not path.is_file():
        write_merged(CORPUS, data, path)
    images = LazyRecords(path, lambda record: bool(record.image))
    table = build_captions(images, tokenizer, data / "cache" / "captions", "key")
    folder = data / "cache" / "links"
    if open_alignments(folder, "key", table) is None:
        languages = [("en", "de")]
        write_alignments(
            folder, "key", images, table, tokenizer, languages, align, part_images=50_000
        )
    mapped = open_alignments(folder, "key", table, streaming=streaming)
    assert mapped is not None
    return images, table, LanguageBalancedSampler(table, streaming=streaming), mapped


def measure(data: Path, *, on_disk: bool) -> None:
    """Print the resident memory of what `load` returns, after some batches, and the peak."""
    before = resident()
    loaded = load(data, on_disk=on_disk)
    for step in range(20):
        loaded[3].gather(loaded[3].sample(BATCH, step_generator(0, step)))
        loaded[1].gather(loaded[2].sample(BATCH, step_generator(0, step)))
    figures = {"gigabytes": resident() - before, "peak_gigabytes": resident("VmHWM") - before}
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


def resident(field: str = "VmRSS") -> float:
    """Return the resident memory in GB that is not backed by files, or its peak with files."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    if field == "VmRSS":
        return int(sizes["RssAnon"]) * 1024 / 1e9
    return (int(sizes[field]) - int(sizes["RssFile"])) * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--captions", type=int, default=100_000)
    parser.add_argument("--tiny", action="store_true", help="few captions; writes no results")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        measure(options.data, on_disk=options.worker != "memory")
        return
    count = 200 if options.tiny else options.captions
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for language, name in (("en", "english"), ("de", "german")):
            write_manifest(Path(folder) / f"{name}.jsonl", records(language, count // 2))
        for way in ("build on disk", "from disk", "memory"):
            command = [sys.executable, "-m", "benchmarks.speed.vtlm_memory"]
            command += ["--worker", way, "--data", folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures[way] = json.loads(done.stdout)
            print(f"{count:,} captions, {way}: {done.stdout.strip()}", flush=True)
    if not options.tiny:
        write_results("vtlm_memory", {"captions": count, "memory": figures}, options.out)


if __name__ == "__main__":
    main()

"""Summarise a manifest in counts and samples (``polyglance data show``)."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.errors import Problems
from polyglance.languages import get_language, is_spaceless
from polyglance.records import Record, read_manifest

if TYPE_CHECKING:
    from rich.console import Console

_AT = (5, 50, 95)
"""Percentiles of tokens."""
_RESERVOIR = 64
"""Number of records drawn, from which samples in many languages are chosen."""


@dataclass
class CaptionCounts:
    """Counts of the captions in one language of one split."""

    records: int = 0
    captions: int = 0
    words: int = 0
    characters: int = 0

    def add(self, texts: tuple[str, ...]) -> None:
        """Count the captions of one more record."""
        self.records += 1
        self.captions += len(texts)
        self.words += sum(len(text.split()) for text in texts)
        self.characters += sum(len(text) for text in texts)


@dataclass
class ItemCounts:
    """Number of records with questions or subtitle cues, and number of these items."""

    records: int = 0
    items: int = 0

    def add(self, items: int) -> None:
        """Count the items of one more record."""
        self.records += 1
        self.items += items


@dataclass
class SubtitleCounts(ItemCounts):
    """Records with subtitles, cues and their tokens (MMP's Table 8, Figures 5 and 6)."""

    per_video: Counter[int] = field(default_factory=Counter)
    """How many videos have a number of tokens."""
    per_subtitle: Counter[int] = field(default_factory=Counter)

    @property
    def tokens(self) -> int:
        """The number of tokens in all subtitles."""
        return sum(number * videos for number, videos in self.per_video.items())

    def add_cues(self, tokens: Sequence[int]) -> None:
        """Count the cues of one more record by their numbers of tokens."""
        self.add(len(tokens))
        self.per_video[sum(tokens)] += 1
        self.per_subtitle.update(tokens)


TokenCounter = Callable[[str, str], int]
"""Counts the tokens of a text in a language."""


def count_words(text: str, language: str) -> int:
    """Count words; in languages written without spaces, letters and digits."""
    if is_spaceless(language):
        return sum(character.isalnum() for character in text)
    return len(text.split())


@dataclass
class ManifestSummary:
    """Counts and samples of a manifest."""

    records: int = 0
    pictures: int = 0
    clips: int = 0
    texts: int = 0
    """Records with neither picture nor clip."""
    captions: dict[tuple[str, str], CaptionCounts] = field(default_factory=dict)
    """By split (empty for none) and language."""
    questions: dict[str, ItemCounts] = field(default_factory=dict)
    subtitles: dict[str, SubtitleCounts] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    samples: list[Record] = field(default_factory=list)
    count_tokens: TokenCounter = count_words
    """Of subtitles."""

    def add(self, record: Record) -> None:
        """Count one more record."""
        self.records += 1
        self.pictures += record.image is not None
        self.clips += record.video is not None
        self.texts += record.image is None and record.video is None
        for language, texts in record.captions.items():
            self.captions.setdefault((record.split or "", language), CaptionCounts()).add(texts)
        questions: dict[str, int] = {}
        for question in record.questions:
            questions[question.language] = questions.get(question.language, 0) + 1
        for language, items in questions.items():
            self.questions.setdefault(language, ItemCounts()).add(items)
        for language, cues in record.subtitles.items():
            counts = self.subtitles.setdefault(language, SubtitleCounts())
            counts.add_cues([self.count_tokens(cue.text, language) for cue in cues])


def summarise_manifest(
    source: str | Path | Iterable[Record], count_tokens: TokenCounter = count_words
) -> ManifestSummary:
    """Summarise a manifest file or records; malformed lines are counted and skipped."""
    summary = ManifestSummary(count_tokens=count_tokens)
    if isinstance(source, str | Path):
        source = read_manifest(source, summary.problems)
    generator = random.Random(0)
    for record in source:
        summary.add(record)
        # Reservoir sampling with a fixed seed: uniform and reproducible.
        if len(summary.samples) < _RESERVOIR:
            summary.samples.append(record)
        elif (index := generator.randrange(summary.records)) < _RESERVOIR:
            summary.samples[index] = record
    return summary


def print_summary(summary: ManifestSummary, console: Console, samples: int = 3) -> None:
    """Print a summary as tables, with sample records in as many languages as possible."""
    parts = [
        f"{count:,} {what}"
        for count, what in (
            (summary.pictures, "with a picture"),
            (summary.clips, "with a clip"),
            (summary.texts, "of text alone"),
        )
        if count
    ]
    detail = f": {', '.join(parts)}" if parts else ""
    records = f"{summary.records:,} record{'s' * (summary.records != 1)}"
    console.print(f"[bold]{records}[/bold]{detail}", highlight=False)
    _print_captions(summary, console)
    _print_counts("questions", summary.questions, console)
    _print_counts("subtitles", summary.subtitles, console)
    _print_tokens(summary.subtitles, console)
    for record in _choose_samples(summary.samples, samples):
        _print_sample(record, console)
    if summary.problems:
        console.print(f"\n[red]malformed lines skipped: {len(summary.problems):,}[/red], such as")
        for problem in summary.problems.items[:3]:
            console.print(f"  {problem}", markup=False, highlight=False, soft_wrap=True)


def _print_captions(summary: ManifestSummary, console: Console) -> None:
    if not summary.captions:
        return
    from rich.table import Table

    table = Table(title="captions", title_justify="left", title_style="bold")
    splits = any(split for split, _ in summary.captions)
    for name in ("split", "language") if splits else ("language",):
        table.add_column(name)
    for name in ("records", "captions", "words each", "characters each"):
        table.add_column(name, justify="right")
    previous = None
    for (split, language), counts in sorted(summary.captions.items(), key=_row_order):
        if previous is not None and split != previous:
            table.add_section()
        each = max(counts.captions, 1)
        table.add_row(
            *([_safe(split) if split != previous else ""] if splits else []),
            _language_label(language),
            f"{counts.records:,}",
            f"{counts.captions:,}",
            "–" if is_spaceless(language) else f"{counts.words / each:.1f}",
            f"{counts.characters / each:.1f}",
        )
        previous = split
    console.print(table)


def _row_order(row: tuple[tuple[str, str], CaptionCounts]) -> tuple[int, str, int, str]:
    """Sort the usual splits first, in a split the languages with the most captions first."""
    (split, language), counts = row
    usual = ("train", "restval", "val", "test")
    place = usual.index(split) if split in usual else len(usual)
    return place, split, -counts.captions, language


def _print_counts(title: str, counts: Mapping[str, ItemCounts], console: Console) -> None:
    if not counts:
        return
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("language")
    for name in ("records", title):
        table.add_column(name, justify="right")
    for language, count in sorted(counts.items(), key=lambda row: (-row[1].items, row[0])):
        table.add_row(_language_label(language), f"{count.records:,}", f"{count.items:,}")
    console.print(table)


def _print_tokens(counts: Mapping[str, SubtitleCounts], console: Console) -> None:
    """Print tokens of subtitles, and how they are spread over videos and subtitles."""
    if not counts:
        return
    from rich.table import Table

    table = Table(title="tokens of subtitles", title_justify="left", title_style="bold")
    table.add_column("language")
    for name in ("tokens", *(f"a {what}, {share} %" for what in ("video", "cue") for share in _AT)):
        table.add_column(name, justify="right")
    for language, count in sorted(counts.items(), key=lambda row: (-row[1].tokens, row[0])):
        spreads = (*quantiles(count.per_video), *quantiles(count.per_subtitle))
        numbers = (f"{number:,}" for number in (count.tokens, *spreads))
        table.add_row(_language_label(language), *numbers)
    console.print(table)


def quantiles(numbers: Counter[int], at: Sequence[int] = _AT) -> list[int]:
    """Return the smallest number that so many percent of all are not above."""
    total, found = numbers.total(), list[int]()
    for share in at:
        seen = 0
        for number in sorted(numbers):
            seen += numbers[number]
            if seen * 100 >= share * total:
                found.append(number)
                break
    return found


def _choose_samples(records: list[Record], count: int) -> list[Record]:
    """Choose records greedily, each for the languages that the earlier ones lack."""
    remaining, chosen = list(records), list[Record]()
    covered: set[str] = set()
    while remaining and len(chosen) < count:
        best = max(remaining, key=lambda record: len(_languages(record) - covered))
        remaining.remove(best)
        chosen.append(best)
        covered |= _languages(best)
    return chosen


def _languages(record: Record) -> set[str]:
    questions = {question.language for question in record.questions}
    return {*record.captions, *record.subtitles, *questions}


def _print_sample(record: Record, console: Console) -> None:
    name = _safe(record.key or "text")
    split = f"  ({_safe(record.split)})" if record.split else ""
    console.print(f"\n{name}{split}", style="bold", markup=False, highlight=False, soft_wrap=True)
    for language, texts in record.captions.items():
        for text in texts[:1]:
            _print_text(language, text, console)
    for question in record.questions[:3]:
        answers = ", ".join(dict.fromkeys(question.answers))
        _print_text(question.language, f"{question.text} → {answers}", console)
    for language, cues in record.subtitles.items():
        for cue in cues[:1]:
            _print_text(language, f"{cue.start:.1f}–{cue.end:.1f} s  {cue.text}", console)


def _print_text(language: str, text: str, console: Console) -> None:
    from rich.text import Text

    line = Text(_safe(text))
    line.truncate(max(console.width - 8, 10), overflow="ellipsis")
    console.print(Text(f"  {language:<5}", style="cyan") + _isolate(line.plain), soft_wrap=True)


def _language_label(language: str) -> str:
    english = get_language(language).english_name
    return language if english == language else f"{language:<4}{english}"


# Control characters, and marks that change the direction of the text after them.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]+")


def _safe(text: str) -> str:
    """Remove characters that could control the terminal or reorder the lines around them."""
    return _UNSAFE.sub(" ", text)


def _isolate(text: str) -> str:
    """Isolate right-to-left text, so that it does not reorder the text beside it."""
    if any(unicodedata.bidirectional(character) in ("R", "AL") for character in text):
        return f"\u2068{text}\u2069"
    return text

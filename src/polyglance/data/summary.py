"""What a manifest holds, in numbers and samples: what ``polyglance data show`` prints."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.errors import Problems
from polyglance.languages import get_language, is_spaceless
from polyglance.records import Record, read_manifest

if TYPE_CHECKING:
    from rich.console import Console

_RESERVOIR = 64
"""So many records are drawn for samples, of which those in the most languages are shown."""


@dataclass
class CaptionCounts:
    """The captions in one language of one split."""

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
    """How many records have something, and how much of it: questions, or cues of subtitles."""

    records: int = 0
    items: int = 0

    def add(self, items: int) -> None:
        """Count the items of one more record."""
        self.records += 1
        self.items += items


@dataclass
class ManifestSummary:
    """What a manifest holds."""

    records: int = 0
    pictures: int = 0
    clips: int = 0
    texts: int = 0
    """Records with neither picture nor clip."""
    captions: dict[tuple[str, str], CaptionCounts] = field(default_factory=dict)
    """By split (empty where there is none) and language."""
    questions: dict[str, ItemCounts] = field(default_factory=dict)
    subtitles: dict[str, ItemCounts] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    samples: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Count one more record."""
        self.records += 1
        self.pictures += record.image is not None
        self.clips += record.video is not None
        self.texts += record.image is None and record.video is None
        for language, texts in record.captions.items():
            self.captions.setdefault((record.split or "", language), CaptionCounts()).add(texts)
        asked: dict[str, int] = {}
        for question in record.questions:
            asked[question.language] = asked.get(question.language, 0) + 1
        for language, items in asked.items():
            self.questions.setdefault(language, ItemCounts()).add(items)
        for language, cues in record.subtitles.items():
            self.subtitles.setdefault(language, ItemCounts()).add(len(cues))


def summarise_manifest(source: str | Path | Iterable[Record]) -> ManifestSummary:
    """Count a manifest, or records; malformed lines of a manifest are counted and skipped."""
    summary = ManifestSummary()
    if isinstance(source, str | Path):
        source = read_manifest(source, summary.problems)
    generator = random.Random(0)
    for record in source:
        summary.add(record)
        # Reservoir sampling: every record has the same chance, and the same are drawn each time.
        if len(summary.samples) < _RESERVOIR:
            summary.samples.append(record)
        elif (place := generator.randrange(summary.records)) < _RESERVOIR:
            summary.samples[place] = record
    return summary


def print_summary(summary: ManifestSummary, console: Console, samples: int = 3) -> None:
    """Print a summary as tables, and some of its records in as many languages as they have."""
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
    _show_captions(summary, console)
    _show_counts("questions", summary.questions, console)
    _show_counts("subtitles", summary.subtitles, console)
    for record in _in_most_languages(summary.samples, samples):
        _show_sample(record, console)
    if summary.problems:
        console.print(f"\n[red]malformed lines skipped: {len(summary.problems):,}[/red], such as")
        for problem in summary.problems.items[:3]:
            console.print(f"  {problem}", markup=False, highlight=False, soft_wrap=True)


def _show_captions(summary: ManifestSummary, console: Console) -> None:
    if not summary.captions:
        return
    from rich.table import Table

    table = Table(title="captions", title_justify="left", title_style="bold")
    splits = any(split for split, _ in summary.captions)
    for name in ("split", "language") if splits else ("language",):
        table.add_column(name)
    for name in ("records", "captions", "words each", "characters each"):
        table.add_column(name, justify="right")
    before = None
    for (split, language), tally in sorted(summary.captions.items(), key=_row_order):
        if before is not None and split != before:
            table.add_section()
        each = max(tally.captions, 1)
        table.add_row(
            *([_safe(split) if split != before else ""] if splits else []),
            _named(language),
            f"{tally.records:,}",
            f"{tally.captions:,}",
            "–" if is_spaceless(language) else f"{tally.words / each:.1f}",
            f"{tally.characters / each:.1f}",
        )
        before = split
    console.print(table)


def _row_order(row: tuple[tuple[str, str], CaptionCounts]) -> tuple[int, str, int, str]:
    """The usual splits in their usual order, then others; in a split the most captions first."""
    (split, language), tally = row
    usual = ("train", "restval", "val", "test")
    place = usual.index(split) if split in usual else len(usual)
    return place, split, -tally.captions, language


def _show_counts(title: str, counts: dict[str, ItemCounts], console: Console) -> None:
    if not counts:
        return
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("language")
    for name in ("records", title):
        table.add_column(name, justify="right")
    for language, count in sorted(counts.items(), key=lambda row: (-row[1].items, row[0])):
        table.add_row(_named(language), f"{count.records:,}", f"{count.items:,}")
    console.print(table)


def _in_most_languages(records: list[Record], count: int) -> list[Record]:
    """Records chosen one after the other, each for the languages that those before do not have."""
    left, chosen = list(records), list[Record]()
    seen: set[str] = set()
    while left and len(chosen) < count:
        best = max(left, key=lambda record: len(_languages(record) - seen))
        left.remove(best)
        chosen.append(best)
        seen |= _languages(best)
    return chosen


def _languages(record: Record) -> set[str]:
    asked = {question.language for question in record.questions}
    return {*record.captions, *record.subtitles, *asked}


def _show_sample(record: Record, console: Console) -> None:
    name = _safe(record.key or "text")
    split = f"  ({_safe(record.split)})" if record.split else ""
    console.print(f"\n{name}{split}", style="bold", markup=False, highlight=False, soft_wrap=True)
    for language, texts in record.captions.items():
        for text in texts[:1]:
            _show_text(language, text, console)
    for question in record.questions[:3]:
        answers = ", ".join(dict.fromkeys(question.answers))
        _show_text(question.language, f"{question.text} → {answers}", console)
    for language, cues in record.subtitles.items():
        for cue in cues[:1]:
            _show_text(language, f"{cue.start:.1f}–{cue.end:.1f} s  {cue.text}", console)


def _show_text(language: str, text: str, console: Console) -> None:
    from rich.text import Text

    line = Text(_safe(text))
    line.truncate(max(console.width - 8, 10), overflow="ellipsis")
    console.print(Text(f"  {language:<5}", style="cyan") + _isolated(line.plain), soft_wrap=True)


def _named(language: str) -> str:
    english = get_language(language).english_name
    return language if english == language else f"{language:<4}{english}"


# Control characters, and the marks that turn the direction of what follows them.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]+")


def _safe(text: str) -> str:
    """Text that cannot steer the terminal nor disturb the lines around it."""
    return _UNSAFE.sub(" ", text)


def _isolated(text: str) -> str:
    """Text from right to left set apart, so that it does not reorder what stands beside it."""
    if any(unicodedata.bidirectional(character) in ("R", "AL") for character in text):
        return f"\u2068{text}\u2069"
    return text

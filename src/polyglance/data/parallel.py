"""Parallel sentences from files: two of them line by line, one as fast_align reads it, or a
dataset in any format."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from polyglance.data.readers import ReadOptions, read
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.languages import normalise_language
from polyglance.records import read_lines
from polyglance.text.alignment.parallel import BETWEEN, ParallelText

_TELLING = 100
"""In so many lines a file has told whether it is fast_align's."""


def read_parallel(
    paths: Sequence[Path],
    languages: Sequence[str] | None = None,
    *,
    format: str = "jsonl",
    segment: bool = False,
    problems: Problems | None = None,
) -> ParallelText:
    """Read two text files whose lines are translations, or two languages of one dataset.

    One file of ``source words ||| target words``, as fast_align reads it, is known
    by its lines; one that is malformed counts as a pair without words, so that
    links still belong to their lines. ``segment`` is `ParallelText.of`'s.
    ``format`` is the dataset's, one of `polyglance.data.readers.FORMATS`; ``jsonl``
    reads manifests and sentences by language. Its malformed places go to
    ``problems``; without it the first is an error.
    """
    codes = tuple(normalise_language(code) for code in languages or ())
    if len(codes) not in (0, 2):
        raise PolyglanceError(f"--languages takes two, as en,de, not {','.join(languages or ())!r}")
    source, target = codes or ("", "")
    if len(paths) == 2:
        here, there = map(_lines, paths)
        if len(here) != len(there):
            raise DataError(
                f"{paths[0]} has {len(here):,} lines and {paths[1]} {len(there):,}: "
                "translations lie line by line"
            )
        return ParallelText.of(zip(here, there, strict=True), source, target, segment=segment)
    problems = Problems(strict=True) if problems is None else problems
    if len(paths) == 1 and format == "jsonl" and _is_fast_align(paths[0]):
        texts = _fast_align_pairs(paths[0], problems)
        return ParallelText.of(texts, source, target, segment=segment)
    if len(paths) != 1 or not codes:
        raise PolyglanceError(
            f"give two text files, one with {BETWEEN} between translations, "
            "or one dataset and --languages en,de"
        )
    records = read(format, paths[0], ReadOptions(), problems)
    text = ParallelText.from_records(records, source, target, segment=segment)
    if not text.pairs:
        raise DataError(f"{paths[0]}: no record has captions in both {source} and {target}")
    return text


def _is_fast_align(path: Path) -> bool:
    if not path.is_file():
        return False
    lines = [line for _, line in islice(read_lines(path, Problems()), _TELLING)]
    return any(map(_sides, lines)) and not any(line.lstrip().startswith("{") for line in lines)


def _fast_align_pairs(path: Path, problems: Problems) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for number, line in read_lines(path, problems):
        pairs += [("", "")] * (number - 1 - len(pairs))  # lines that are no text
        sides = _sides(line)
        if sides is None and line.strip():
            problems.report(path, number, f"expected a sentence, {BETWEEN} and its translation")
        pairs.append(sides or ("", ""))
    return pairs


def _sides(line: str) -> tuple[str, str] | None:
    """What stands before and after the one mark of a line."""
    here, *there = line.split(BETWEEN)
    return (here, there[0]) if len(there) == 1 else None


def _lines(path: Path) -> list[str]:
    return [line for _, line in read_lines(path, Problems(strict=True))]

"""Parallel sentences from files: two of them line by line, or a dataset in any format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polyglance.data.readers import ReadOptions, read
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.languages import normalise_language
from polyglance.records import read_lines
from polyglance.text.alignment.parallel import ParallelText


def read_parallel(
    paths: Sequence[Path],
    languages: Sequence[str] | None = None,
    *,
    format: str = "jsonl",
    problems: Problems | None = None,
) -> ParallelText:
    """Read two text files whose lines are translations, or two languages of one dataset.

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
        return ParallelText.of(zip(here, there, strict=True), source, target)
    if len(paths) != 1 or not codes:
        raise PolyglanceError("give two text files, or one dataset and --languages en,de")
    problems = Problems(strict=True) if problems is None else problems
    records = read(format, paths[0], ReadOptions(), problems)
    text = ParallelText.from_records(records, source, target)
    if not text.pairs:
        raise DataError(f"{paths[0]}: no record has captions in both {source} and {target}")
    return text


def _lines(path: Path) -> list[str]:
    return [line for _, line in read_lines(path, Problems(strict=True))]

"""Parallel sentences from files: two of them line by line, one as fast_align reads it, or a
dataset in any format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from polyglance.data.readers import ReadOptions, find_format, read_dataset
from polyglance.errors import DataError, PolyglanceError, Problems, printable
from polyglance.languages import normalise_language
from polyglance.records import read_lines
from polyglance.text.alignment.parallel import SEPARATOR, ParallelText

_TELLING = 100
"""In so many lines a file has told whether it is fast_align's."""
_GIVE = (
    f"give two text files, one with {SEPARATOR} between translations, "
    "or one dataset and --languages en,de"
)


def read_parallel(
    paths: Sequence[Path],
    languages: Sequence[str] | None = None,
    *,
    format: str | None = None,
    segment: bool = False,
    problems: Problems | None = None,
) -> ParallelText:
    """Read two text files whose lines are translations, or two languages of one dataset.

    One file of ``source words ||| target words``, as fast_align reads it, is known
    by its lines; one that is malformed counts as a pair without words, so that
    links still belong to their lines. ``segment`` is `ParallelText.of`'s.
    ``format`` is the dataset's, one of `polyglance.data.readers.FORMATS`; ``jsonl``,
    as without it, reads manifests and sentences by language. Its malformed places go
    to ``problems``; without it the first is an error.
    """
    codes = tuple(normalise_language(code) for code in languages or ())
    if len(codes) not in (0, 2):
        raise PolyglanceError(f"--languages takes two, as en,de, not {','.join(languages or ())!r}")
    source, target = codes or ("", "")
    if format is not None:
        find_format(format)
    if len(paths) == 2:
        if format is not None:
            raise PolyglanceError(
                f"--format is a dataset's, and two text files are none: leave {format} out, or give"
                " one dataset"
            )
        here, there = map(_lines, paths)
        if len(here) != len(there):
            raise DataError(
                f"{paths[0]} has {len(here):,} lines and {paths[1]} {len(there):,}: "
                "translations lie line by line"
            )
        return ParallelText.from_texts(
            zip(here, there, strict=True), source, target, segment=segment
        )
    problems = Problems(strict=True) if problems is None else problems
    if len(paths) == 1 and format is None and _is_fast_align(paths[0]):
        texts = _fast_align_pairs(paths[0], problems)
        return ParallelText.from_texts(texts, source, target, segment=segment)
    if len(paths) != 1 or not codes:
        if len(paths) == 1:
            _must_be_there(paths[0], is_text=format is None)
        raise PolyglanceError(_GIVE)
    records = read_dataset(format or "jsonl", paths[0], ReadOptions(), problems)
    text = ParallelText.from_records(records, source, target, segment=segment)
    if not text.pairs:
        _must_be_there(paths[0], is_text=format is None)
        raise DataError(f"{paths[0]}: no record has captions in both {source} and {target}")
    return text


def _must_be_there(path: Path, *, is_text: bool) -> None:
    """Refuse what is missing or, where a text file is meant, empty or none."""
    name = printable(str(path))
    if not os.path.exists(path):  # noqa: PTH110 (unlike Path.exists it never raises)
        raise DataError(f"{name}: no such file or folder; {_GIVE}")
    if not is_text or not path.is_file():
        return
    problems = Problems()
    lines = _first_lines(path, problems)
    if problems.items and not lines:
        raise DataError(f"{problems.items[0]}; {_GIVE}")
    # Between bytes that are none, pictures have a few that happen to be text.
    if len(problems) > len(lines) or any("\0" in line for line in lines):
        raise DataError(f"{name} is no text in UTF-8; {_GIVE}")
    if not any(map(str.strip, lines)):
        raise DataError(f"{name} is empty; {_GIVE}")


def _is_fast_align(path: Path) -> bool:
    if not os.path.isfile(path):  # noqa: PTH113 (unlike Path.is_file it never raises)
        return False
    lines = _first_lines(path, Problems())
    return any(map(_sides, lines)) and not any(line.lstrip().startswith("{") for line in lines)


def _first_lines(path: Path, problems: Problems) -> list[str]:
    return [line for _, line in islice(read_lines(path, problems), _TELLING)]


def _fast_align_pairs(path: Path, problems: Problems) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for number, line in read_lines(path, problems):
        pairs += [("", "")] * (number - 1 - len(pairs))  # lines that are no text
        sides = _sides(line)
        if sides is None and line.strip():
            problems.report(path, number, f"expected a sentence, {SEPARATOR} and its translation")
        pairs.append(sides or ("", ""))
    return pairs


def _sides(line: str) -> tuple[str, str] | None:
    """What stands before and after the one mark of a line."""
    here, *there = line.split(SEPARATOR)
    return (here, there[0]) if len(there) == 1 else None


def _lines(path: Path) -> list[str]:
    return [line for _, line in read_lines(path, Problems(strict=True))]

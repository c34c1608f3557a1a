"""Read parallel text from two files line by line, a fast_align file, or a dataset."""

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

_SNIFFED_LINES = 100
"""Number of first lines that decide whether a file is in fast_align's format."""
_USAGE = (
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
    """Read two text files with one translation per line, or two languages of one dataset.

    A single file of ``source words ||| target words`` lines is recognised as fast_align's
    format. A malformed line of it becomes an empty pair, so that alignments keep their line
    numbers.

    Args:
        paths: Two text files, one fast_align file, or one dataset.
        languages: Source and target language; a dataset needs them.
        format: The dataset's format, one of `polyglance.data.readers.FORMATS`; by default
            ``jsonl``, which reads manifests and sentences by language.
        segment: Split sentences into words by the rules of their language.
        problems: Collects malformed entries; without it the first one is an error.
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
                f"--format {format} needs one dataset, not two text files: leave it out, or give a"
                " dataset"
            )
        here, there = map(_lines, paths)
        if len(here) != len(there):
            raise DataError(
                f"{paths[0]} has {len(here):,} lines and {paths[1]} {len(there):,}: "
                "give files whose lines are translations of each other"
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
            _check_source(paths[0], is_text=format is None)
        raise PolyglanceError(_USAGE)
    records = read_dataset(format or "jsonl", paths[0], ReadOptions(), problems)
    text = ParallelText.from_records(records, source, target, segment=segment)
    if not text.pairs:
        _check_source(paths[0], is_text=format is None)
        raise DataError(f"{paths[0]}: no record has captions in both {source} and {target}")
    return text


def _check_source(path: Path, *, is_text: bool) -> None:
    """Raise an error for a missing path or, if ``is_text``, one that is empty or not text."""
    name = printable(str(path))
    if not os.path.exists(path):  # noqa: PTH110 (unlike Path.exists it never raises)
        raise DataError(f"{name}: no such file or folder; {_USAGE}")
    if not is_text or not path.is_file():
        return
    problems = Problems()
    lines = _first_lines(path, problems)
    if problems.items and not lines:
        raise DataError(f"{problems.items[0]}; {_USAGE}")
    # A few lines of a binary file may happen to be valid UTF-8.
    if len(problems) > len(lines) or any("\0" in line for line in lines):
        raise DataError(f"{name} is not UTF-8 text; {_USAGE}")
    if not any(map(str.strip, lines)):
        raise DataError(f"{name} is empty; {_USAGE}")


def _is_fast_align(path: Path) -> bool:
    if not os.path.isfile(path):  # noqa: PTH113 (unlike Path.is_file it never raises)
        return False
    lines = _first_lines(path, Problems())
    return any(map(_sides, lines)) and not any(line.lstrip().startswith("{") for line in lines)


def _first_lines(path: Path, problems: Problems) -> list[str]:
    return [line for _, line in islice(read_lines(path, problems), _SNIFFED_LINES)]


def _fast_align_pairs(path: Path, problems: Problems) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for number, line in read_lines(path, problems):
        pairs += [("", "")] * (number - 1 - len(pairs))  # lines that are not UTF-8
        sides = _sides(line)
        if sides is None and line.strip():
            problems.report(path, number, f"expected a sentence, {SEPARATOR} and its translation")
        pairs.append(sides or ("", ""))
    return pairs


def _sides(line: str) -> tuple[str, str] | None:
    """Return the two sides of a line with exactly one separator, else None."""
    here, *there = line.split(SEPARATOR)
    return (here, there[0]) if len(there) == 1 else None


def _lines(path: Path) -> list[str]:
    return [line for _, line in read_lines(path, Problems(strict=True))]

"""Pictures with their captions in text files beside them: ``dog.jpg`` and ``dog.txt``.

Each line of the text file is a caption. A language code in the name says which language they are
in, ``dog.de.txt``; others are in the language of the options, else English. Folders inside are
read too. A picture without a text file has no captions, which leaves it among the candidates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, split_in_name
from polyglance.errors import DataError, Problems, printable
from polyglance.languages import is_language_code, normalise_language
from polyglance.records import Record, is_valid_text, read_lines
from polyglance.vision.pictures import SUFFIXES


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record for each picture, in the order of their paths."""
    expected = f"{printable(str(source))}: expected pictures with .txt files of the same name"
    if not source.is_dir():
        raise DataError(expected)
    language, captioned = options.language or "en", False
    for folder, inner, names in os.walk(source):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        where = Path(folder)
        texts = _text_files(names)
        for name in sorted(names):
            stem, suffix = os.path.splitext(name)  # noqa: PTH122 (a name, not a path)
            if suffix.lower() not in SUFFIXES or name.startswith("."):
                continue
            path = (where / name).relative_to(source)
            if not is_valid_text(path.as_posix()):
                problems.report(where / name, None, "expected a name in UTF-8")
                continue
            captions: dict[str, tuple[str, ...]] = {}
            for code, file in texts.get(stem, ()):
                lines = [line.strip() for _, line in read_lines(where / file, problems)]
                captions[code or language] = captions.get(code or language, ()) + tuple(lines)
            captions = {code: tuple(filter(None, own)) for code, own in captions.items()}
            captioned = captioned or any(captions.values())
            yield Record(
                image=options.path(path.as_posix()),
                captions={code: own for code, own in captions.items() if own},
                split=options.split or split_in_name(path.parent),
            )
    if not captioned:
        raise DataError(expected)


def _text_files(names: list[str]) -> dict[str, list[tuple[str | None, str]]]:
    """Return the text files of each stem, with the language that their name says."""
    found: dict[str, list[tuple[str | None, str]]] = {}
    for name in sorted(names):
        if not name.lower().endswith(".txt") or name.startswith("."):
            continue
        stem = name[: -len(".txt")]
        before, dot, code = stem.rpartition(".")
        found.setdefault(stem, []).append((None, name))
        if dot and is_language_code(code):
            found.setdefault(before, []).append((normalise_language(code), name))
    return found

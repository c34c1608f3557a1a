"""Plain text by language, such as Wikipedia's: one sentence or paragraph per line.

Layout: a file or folder named by its language (``de.txt``, ``wiki.de.txt.gz``,
``de/AA/wiki_00``), or a folder of such. WikiExtractor's output is read in both its forms:
between ``<doc ...>`` and ``</doc>``, and as JSON Lines with a ``text``. Lines are streamed, so
the size of the corpus does not matter.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, language_in_name
from polyglance.data.readers.validation import check_object, check_text, reporting
from polyglance.errors import DataError, Problems, printable
from polyglance.languages import is_language_code, normalise_language
from polyglance.records import Record, parse_json, read_lines

_DOCUMENT = re.compile(r'<doc\b.*?(?:\btitle="(?P<title>[^"]*)")?\s*>')


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record of text alone per line."""
    empty = True
    for path in _files(source):
        empty = False
        language = _language_of(path, source) or options.language
        if language is None:
            problems.report(path, None, "expected a name with the language in it, such as de.txt")
            continue
        for number, sentence in _sentences(path, problems):
            with reporting(problems, path, number):
                captions = {language: (check_text(sentence, "a sentence"),)}
                yield Record(captions=captions, split=options.split)
    if empty:
        raise DataError(f"{printable(str(source))}: expected files named de.txt, fr.txt ...")


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    for folder, folders, files in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def _language_of(path: Path, source: Path) -> str | None:
    """Return the language in the name of the file, else of its nearest folder that has one.

    WikiExtractor's own folders (AA, AB ...) are in capitals, unlike language codes.
    """
    folders = [source.name, *path.relative_to(source).parts[:-1]]
    named = (normalise_language(name) for name in reversed(folders) if is_language_code(name))
    return language_in_name(path.name) or next(named, None)


def _sentences(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    title = None
    for number, line in read_lines(path, problems):
        stripped = line.strip()
        if not stripped or stripped == "</doc>":
            continue
        if opening := _DOCUMENT.match(stripped):
            title = html.unescape(opening["title"] or "")
        elif stripped.startswith('{"'):
            with reporting(problems, path, number):
                page = check_object(parse_json(stripped), "the line")
                for paragraph in check_text(page.get("text"), "'text'").splitlines():
                    if paragraph.strip():
                        yield number, paragraph
        elif stripped == title:
            title = None  # the first line of a page repeats its title
        else:
            yield number, line

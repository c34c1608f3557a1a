"""Conceptual Captions (Sharma et al., 2018), and UC2's translations of it (Zhou et al., 2021).

Layout: ``Train_GCC-training.tsv`` ..., a caption and the URL of its image per line:

    a very typical bus station<TAB>http://lh6.ggpht.com/.../KXi_7.jpg

An optional third column is the image file. UC2's machine translations are
``train_imageId2Ann_de.tsv`` ..., written as CSV, with English in ``train_imageId2Ann.tsv``:

    IMAGE<TAB>URL<TAB>CAPTION<TAB>STATUS

A line whose status is "fail" or whose caption is empty has no translation and is left out.

A record's id is the CRC-32 of the URL, by which the downloader of ViLBERT, VOLTA and UC2 names
images; so captions of one image in several files can be merged, and stored regions be found.
Without an image file, ``images`` gives the folder of files named by this id; without ``images``
the record keeps UC2's image number, or the URL. Lines are streamed, three million of them
without memory.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files, split_in_name, without_gz
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import Problems
from polyglance.languages import normalise_language
from polyglance.records import Record, read_lines

_TRANSLATED = re.compile(r"imageId2Ann_(?P<language>[a-z]{2,3}(-[A-Za-z]+)?)\.tsv")


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per line."""
    expected = "files named Train_GCC-training.tsv, Validation_GCC-1.1.0-Validation.tsv"
    for path in find_files(source, lambda name: without_gz(name).endswith(".tsv"), expected):
        split = options.split or split_in_name(path)
        translated = _TRANSLATED.search(without_gz(path.name))
        language = options.language or "en"
        if translated is not None and options.language is None:
            language = normalise_language(translated["language"])
        for number, line in read_lines(path, problems):
            with reporting(problems, path, number):
                record = _parse(line, language, split, options)
                if record is not None:
                    yield record


def _parse(line: str, language: str, split: str | None, options: ReadOptions) -> Record | None:
    columns = line.split("\t")
    file = name = None
    if len(columns) == 4:
        name, url, caption, status = columns
        caption = _unquote(caption)
        if not caption.strip() or status.strip() == "fail":
            return None
    elif len(columns) in (2, 3):
        caption, url, *rest = columns
        file = check_text(rest[0], "an image file") if rest else None
    else:
        raise ValueError("'CAPTION<TAB>URL' or 'IMAGE<TAB>URL<TAB>CAPTION<TAB>STATUS'")
    caption, url = check_text(caption, "a caption"), check_text(url, "a URL")
    key = str(zlib.crc32(url.encode()))
    if file is not None:
        image = options.path(file)
    else:
        image = options.path(key) if options.images else name or url
    return Record(image=image, captions={language: (caption,)}, split=split, id=key)


def _unquote(field: str) -> str:
    """Undo the quoting of Python's csv module, which UC2's files were written with."""
    if len(field) >= 2 and field[0] == field[-1] == '"':
        return field[1:-1].replace('""', '"')
    return field

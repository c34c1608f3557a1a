"""Conceptual Captions (Sharma et al., 2018): a caption and the address of its picture a line.

    a very typical bus station<TAB>http://lh6.ggpht.com/.../KXi_7.jpg

A third column, where there is one, is the picture's file. Without it and with
``images`` the file is named as the downloader of ViLBERT, VOLTA and UC2 names
it, by the CRC-32 of the address; without ``images`` the record keeps the
address. Lines stream: three million of them need no memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files, split_in_name, without_gz
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Record, read_lines


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record a line."""
    expected = "files named Train_GCC-training.tsv, Validation_GCC-1.1.0-Validation.tsv"
    language = options.language or "en"
    for path in find_files(source, lambda name: without_gz(name).endswith(".tsv"), expected):
        split = options.split or split_in_name(path)
        for number, line in read_lines(path, problems):
            with reporting(problems, path, number):
                caption, image = _parse(line, options)
                yield Record(image=image, captions={language: (caption,)}, split=split)


def _parse(line: str, options: ReadOptions) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) not in (2, 3):
        raise ValueError("'CAPTION<TAB>ADDRESS'")
    caption, address = check_text(columns[0], "a caption"), check_text(columns[1], "an address")
    if len(columns) == 3:
        return caption, options.path(check_text(columns[2], "a picture's file"))
    if options.images:
        return caption, options.path(str(zlib.crc32(address.encode())))
    return caption, address

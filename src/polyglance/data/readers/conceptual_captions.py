"""Conceptual Captions (Sharma et al., 2018).

Layout: ``Train_GCC-training.tsv`` ..., a caption and the URL of its image per line:

    a very typical bus station<TAB>http://lh6.ggpht.com/.../KXi_7.jpg

An optional third column is the image file. Without it, ``images`` gives the folder of files
named by the CRC-32 of the URL, as the downloader of ViLBERT, VOLTA and UC2 does; without
``images`` the record keeps the URL. Lines are streamed, three million of them without memory.
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
    """Yield one record per line."""
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
        raise ValueError("'CAPTION<TAB>URL'")
    caption, url = check_text(columns[0], "a caption"), check_text(columns[1], "a URL")
    if len(columns) == 3:
        return caption, options.path(check_text(columns[2], "an image file"))
    if options.images:
        return caption, options.path(str(zlib.crc32(url.encode())))
    return caption, url

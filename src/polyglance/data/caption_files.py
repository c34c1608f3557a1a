"""Captions of millions of images as memory-mapped arrays, built once by a streaming pass.

A folder with ``captions.json`` (languages, sizes and the key of what it was built from) and one
file for each array of a `CaptionTable` (see `polyglance.data.array_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.data.array_files import ArrayWriter, map_arrays, read_info
from polyglance.data.captions import BatchTokenizer, CaptionTable
from polyglance.records import Record

_INFO = "captions.json"
_ARRAYS: dict[str, np.dtype[Any]] = {
    "token_ids": np.dtype("<i4"),
    "offsets": np.dtype("<i8"),
    "record_ids": np.dtype("<i4"),
    "language_ids": np.dtype("<i2"),
}
_RECORDS_AT_A_TIME = 4096


class CaptionWriter(ArrayWriter):
    """Writes the captions of consecutive parts of a corpus; use as a context manager."""

    def __init__(self, folder: Path, key: str = "") -> None:
        """Begin to write; ``key`` says what the captions are built from."""
        super().__init__(folder, _ARRAYS, _INFO)
        self.info = {"key": key, "languages": [], "records": 0, "captions": 0, "tokens": 0}

    def __enter__(self) -> CaptionWriter:
        super().__enter__()
        self.append("offsets", np.zeros(1, np.int64))
        return self

    def append_table(self, part: CaptionTable) -> None:
        """Add the captions of the records that follow; languages may only be added at the end."""
        info, languages = self.info, list(part.language_codes)
        if languages[: len(info["languages"])] != info["languages"]:
            raise ValueError(f"languages {languages} do not continue {info['languages']}")
        self.append("token_ids", part.token_ids)
        self.append("offsets", part.offsets[1:] + info["tokens"])
        self.append("record_ids", part.record_ids + info["records"])
        self.append("language_ids", part.language_ids)
        info["languages"] = languages
        info["tokens"] += len(part.token_ids)
        info["captions"] += len(part)
        info["records"] += part.num_records


def open_captions(folder: Path, key: str | None = None) -> CaptionTable | None:
    """Map captions that were written before.

    Args:
        folder: Where.
        key: What they must be built from; None for anything.

    Returns:
        The captions, or None if there are none with this key.
    """
    info = read_info(folder, _INFO, key)
    if info is None:
        return None
    lengths = dict.fromkeys(_ARRAYS, info["captions"])
    lengths |= {"token_ids": info["tokens"], "offsets": info["captions"] + 1}
    arrays = map_arrays(folder, _ARRAYS, lengths)
    return CaptionTable(
        arrays["token_ids"],
        arrays["offsets"],
        arrays["record_ids"],
        arrays["language_ids"],
        tuple(info["languages"]),
        info["records"],
    )


def build_captions(
    records: Iterable[Record],
    tokenizer: BatchTokenizer,
    folder: Path,
    key: str,
    *,
    max_tokens: int | None = None,
) -> CaptionTable:
    """Tokenise captions part by part into a folder, unless it has them, and map them.

    Args:
        records: The corpus; read once, if at all.
        tokenizer: Of all languages.
        folder: Where the captions are kept.
        key: A digest of the corpus and the tokenizer; captions under another key are replaced.
        max_tokens: Maximum length; a longer caption is cut but keeps its last token.

    Returns:
        The same captions as `CaptionTable.build`.
    """
    known = open_captions(folder, key)
    if known is not None:
        return known
    languages: list[str] = []
    with CaptionWriter(folder, key) as writer:
        for part in _parts(records):
            found = (code for record in part for code in record.captions)
            languages += [code for code in dict.fromkeys(found) if code not in languages]
            writer.append_table(
                CaptionTable.build(part, tokenizer, languages=languages, max_tokens=max_tokens)
                if languages
                else CaptionTable.build(part, tokenizer)
            )
    built = open_captions(folder, key)
    assert built is not None
    return built


def _parts(records: Iterable[Record]) -> Iterator[list[Record]]:
    remaining = iter(records)
    while part := list(islice(remaining, _RECORDS_AT_A_TIME)):
        yield part

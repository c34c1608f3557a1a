"""Captions of millions of images as memory-mapped arrays, built once by a streaming pass.

A folder with ``captions.json`` (languages, sizes and the key of what it was built from) and one
file for each array of a `CaptionTable`. Opening maps them: pages are read when captions are
gathered, and the system drops them again when memory is short.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polyglance.data.captions import BatchTokenizer, CaptionTable
from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record

_INFO = "captions.json"
_ARRAYS: dict[str, np.dtype[Any]] = {
    "token_ids": np.dtype("<i4"),
    "offsets": np.dtype("<i8"),
    "record_ids": np.dtype("<i4"),
    "language_ids": np.dtype("<i2"),
}
_RECORDS_AT_A_TIME = 4096


class CaptionWriter:
    """Writes the captions of consecutive parts of a corpus; use as a context manager.

    The folder appears when all is written; a killed run leaves a ``.partial`` folder, which the
    next attempt replaces.
    """

    def __init__(self, folder: Path, key: str = "") -> None:
        """Begin to write; ``key`` says what the captions are built from."""
        self.folder, self.key = folder, key
        self._partial = folder.with_name(folder.name + ".partial")
        self._files: dict[str, IO[bytes]] = {}
        self._tokens = self._captions = self._records = 0
        self._languages: tuple[str, ...] = ()

    def __enter__(self) -> CaptionWriter:
        try:
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)
            self._files = {name: (self._partial / name).open("wb") for name in _ARRAYS}
        except OSError as error:
            raise PolyglanceError(
                f"{self.folder}: cannot be written ({error.strerror or error}); give a writable"
                " cache folder"
            ) from error
        self._write("offsets", np.zeros(1, np.int64))
        return self

    def append(self, part: CaptionTable) -> None:
        """Add the captions of the records that follow; languages may only be added at the end."""
        if part.language_codes[: len(self._languages)] != self._languages:
            raise ValueError(f"languages {part.language_codes} do not continue {self._languages}")
        self._languages = part.language_codes
        self._write("token_ids", part.token_ids)
        self._write("offsets", part.offsets[1:] + self._tokens)
        self._write("record_ids", part.record_ids + self._records)
        self._write("language_ids", part.language_ids)
        self._tokens += len(part.token_ids)
        self._captions += len(part)
        self._records += part.num_records

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for file in self._files.values():
            file.close()
        if kind is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
            return
        info = {
            "key": self.key,
            "languages": list(self._languages),
            "records": self._records,
            "captions": self._captions,
            "tokens": self._tokens,
        }
        (self._partial / _INFO).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.replace(self._partial, self.folder)

    def _write(self, name: str, values: NDArray[Any]) -> None:
        self._files[name].write(np.ascontiguousarray(values, _ARRAYS[name]).data)


def open_captions(folder: Path, key: str | None = None) -> CaptionTable | None:
    """Map captions that were written before.

    Args:
        folder: Where.
        key: What they must be built from; None for anything.

    Returns:
        The captions, or None if there are none with this key.
    """
    try:
        info = json.loads((folder / _INFO).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / _INFO}: cannot be read ({error}); delete the folder") from error
    if key is not None and info.get("key") != key:
        return None
    counts = {
        "token_ids": info["tokens"],
        "offsets": info["captions"] + 1,
        "record_ids": info["captions"],
        "language_ids": info["captions"],
    }
    arrays: dict[str, Any] = {}
    for name, dtype in _ARRAYS.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != counts[name] * dtype.itemsize:
            raise DataError(f"{path}: is damaged; delete {folder} to have it made again")
        shape = (counts[name],)
        empty = not counts[name]  # nothing cannot be mapped
        arrays[name] = np.zeros(0, dtype) if empty else np.memmap(path, dtype, "r", shape=shape)
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
            writer.append(
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

"""Merge captions of several files by image without holding them in memory.

The records of the files to be merged are copied to scratch files, with the hash of their image's
key and their offset as the only things in memory (16 bytes a record). The images are then gone
through once, and written with all their captions into a manifest of the cache folder, whose
records stay on disk (`polyglance.data.lazy_records`).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.cross_encoder.config import CaptionedImages
from polyglance.recipes.cross_encoder.corpora import (
    image_key,
    in_splits,
    read_file,
    with_captions,
)
from polyglance.records import Record, atomic_write
from polyglance.utils.fingerprint import file_stats, fingerprint


def corpus_bytes(corpus: CaptionedImages, data: Path) -> int:
    """Return the size of a corpus's manifest and of the files that are merged with it."""
    paths = [data / name for name in (corpus.manifest, *(file.manifest for file in corpus.merge))]
    return sum(size for path in paths if path.exists() for _, size, _ in file_stats(path))


def merged_path(corpus: CaptionedImages, data: Path, cache_dir: str) -> Path:
    """Return where the merged manifest of a corpus is kept."""
    names = (corpus.manifest, *(file.manifest for file in corpus.merge))
    chosen = [corpus.format, corpus.splits, corpus.languages, corpus.language, corpus.images]
    key = fingerprint([file_stats(data / name) for name in names], chosen, list(corpus.merge))
    return data / cache_dir / f"merged-{key}.jsonl"


def write_merged(corpus: CaptionedImages, data: Path, path: Path) -> None:
    """Write all images of a corpus with all their captions, as `read_corpus` returns them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="merge-", dir=path.parent) as scratch:
        others = [
            _Scratch(Path(scratch) / str(number), read_file(file, data))
            for number, file in enumerate(corpus.merge)
        ]
        count, example = 0, ""
        with atomic_write(path) as out:
            for record in read_file(corpus, data):
                if not (record.image or record.video):
                    continue
                count, example = count + 1, example or image_key(record)
                merged = _merge(record, others)
                out.write(json.dumps(merged.to_json(), ensure_ascii=False) + "\n")
            if not count:
                raise DataError(
                    f"{data / corpus.manifest}: there is no image{in_splits(corpus)}: name other"
                    " splits or another file"
                )
            for file, other in zip(corpus.merge, others, strict=True):
                other.close()
                if not other.used:
                    raise PolyglanceError(
                        f"{file.manifest} captions none of the {count:,} images, such as"
                        f" {example!r}: merge a file that names images in the same way"
                    )


def _merge(record: Record, others: Sequence[_Scratch]) -> Record:
    key = image_key(record)
    for other in others:
        captions: dict[str, tuple[str, ...]] = {}
        for found in other.find(key):
            for language, texts in found.captions.items():
                captions[language] = captions.get(language, ()) + texts
        record = with_captions(record, captions)
    return record


class _Scratch:
    """Records on disk, found by the hashes of their images' keys."""

    def __init__(self, path: Path, records: Iterable[Record]) -> None:
        self.used = 0
        hashes, offsets = _Numbers(np.uint64), _Numbers(np.int64)
        with path.open("wb") as out:
            for record in records:
                hashes.append(_hash(image_key(record)))
                offsets.append(out.tell())
                out.write(json.dumps(record.to_json(), ensure_ascii=False).encode() + b"\n")
        order = np.argsort(hashes.values, kind="stable")  # of one image in their order
        self._hashes, self._offsets = hashes.values[order], offsets.values[order]
        self._file: IO[bytes] = path.open("rb")

    def find(self, key: str) -> Iterator[Record]:
        """Yield the records of an image, in their order."""
        wanted = np.uint64(_hash(key))
        first = int(np.searchsorted(self._hashes, wanted, "left"))
        last = int(np.searchsorted(self._hashes, wanted, "right"))
        for offset in self._offsets[first:last].tolist():
            self._file.seek(offset)
            record = Record.from_json(json.loads(self._file.readline()))
            if image_key(record) == key:
                self.used += 1
                yield record

    def close(self) -> None:
        self._file.close()


class _Numbers:
    """Numbers that are appended in blocks, of 8 bytes each."""

    def __init__(self, dtype: type[np.integer[Any]]) -> None:
        self._dtype = dtype
        self._blocks: list[NDArray[Any]] = []
        self._open: list[int] = []

    def append(self, value: int) -> None:
        self._open.append(value)
        if len(self._open) == 65536:
            self._blocks.append(np.array(self._open, self._dtype))
            self._open = []

    @property
    def values(self) -> NDArray[Any]:
        return np.concatenate([*self._blocks, np.array(self._open, self._dtype)])


def _hash(key: str) -> int:
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")

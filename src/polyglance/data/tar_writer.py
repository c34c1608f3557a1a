"""Write the images of a manifest into tars of WebDataset's layout, with an index.

``NAME-000000.tar``, ``NAME-000001.tar`` ... hold ``KEY.jpg`` and ``KEY.json`` for each record, in
the order of the manifest, so that consecutive images are one read. Image files are copied as they
are; those that cannot be decoded are left out.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from polyglance.data.tar_index import tar_key
from polyglance.data.tars import TarSet, build_index
from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.records import Record, read_manifest
from polyglance.utils.progress import progress
from polyglance.vision.decoding import DecodePool, ImageBytes
from polyglance.vision.pictures import SUFFIXES

_AT_A_TIME = 512


@dataclass(frozen=True)
class ShardResult:
    """What was written."""

    images: int
    tars: int
    damaged: dict[str, str]
    """Images that were left out, and why."""


def write_tars(
    manifest: Path,
    out: Path,
    *,
    max_bytes: int = 1 << 30,
    max_images: int = 100_000,
    workers: int = 0,
    quiet: bool = True,
) -> ShardResult:
    """Write tars and their index.

    Args:
        manifest: Of images with captions; records without an image are left out.
        out: Folder and name of the tars: ``shards/train`` for ``shards/train-000000.tar`` ...
        max_bytes: Of a tar.
        max_images: Of a tar.
        workers: Processes that try to decode images; 0 for threads.
        quiet: Show no progress bar.
    """
    pattern = re.compile(re.escape(out.name) + r"-\d{6}\.tar")
    if out.parent.is_dir() and any(pattern.fullmatch(path.name) for path in out.parent.iterdir()):
        raise PolyglanceError(f"{out}-*.tar are there already: choose another name")
    keys: set[str] = set()
    damaged: dict[str, str] = {}
    images = 0
    tars = _Tars(out, max_bytes, max_images)
    pool = DecodePool(workers)
    try:
        with progress("Writing tars", None, quiet=quiet) as advance:
            for records in _parts(manifest):
                sources = [_read(manifest, record) for record in records]
                errors = pool.damaged(sources)
                for number, (record, source) in enumerate(zip(records, sources, strict=True)):
                    if number in errors:
                        damaged[str(record.image)] = errors[number]
                        continue
                    tars.add(_unique_key(record, keys), record, source.read())
                    images += 1
                advance(len(records))
        tars.close()
    except BaseException:
        tars.abandon()
        raise
    finally:
        pool.close()
    if not images:
        raise DataError(f"{manifest}: there is no image that can be read")
    tar_set = TarSet(f"{out}-*.tar")
    index = build_index(tar_set, quiet=True)
    index.note_damaged([], [tar_key(image) for image in damaged])
    return ShardResult(images, tars.count, damaged)


class _Tars:
    """Tars of bounded size; all appear under their names when the last is closed."""

    def __init__(self, out: Path, max_bytes: int, max_images: int) -> None:
        self.out, self.max_bytes, self.max_images = out, max_bytes, max_images
        self.count = 0
        self._tar: tarfile.TarFile | None = None
        self._images = 0
        out.parent.mkdir(parents=True, exist_ok=True)

    def add(self, key: str, record: Record, content: bytes) -> None:
        """Add an image with its record."""
        full = self._tar is not None and (
            self._images >= self.max_images
            or self._tar.offset + len(content) + 4096 > self.max_bytes
        )
        if full:
            self._finish()
        if self._tar is None:
            self._tar = tarfile.TarFile(self._path(self.count, ".partial"), "w")
            self.count, self._images = self.count + 1, 0
        suffix = PurePosixPath(str(record.image)).suffix.lower()
        if suffix not in SUFFIXES:
            suffix = ".jpg"  # decoders look at the content
        text = json.dumps(record.to_json(), ensure_ascii=False)
        for name, data in ((key + suffix, content), (f"{key}.json", text.encode())):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            self._tar.addfile(member, io.BytesIO(data))
        self._images += 1

    def close(self) -> None:
        """Finish the last tar and give all their names."""
        self._finish()
        for number in range(self.count):
            os.replace(self._path(number, ".partial"), self._path(number))

    def abandon(self) -> None:
        """Delete what was written."""
        self._finish()
        for number in range(self.count):
            with suppress(FileNotFoundError):
                self._path(number, ".partial").unlink()

    def _finish(self) -> None:
        if self._tar is not None:
            self._tar.close()
            self._tar = None

    def _path(self, number: int, suffix: str = "") -> Path:
        return self.out.with_name(f"{self.out.name}-{number:06d}.tar{suffix}")


def _parts(manifest: Path) -> Iterator[Sequence[Record]]:
    records = (record for record in read_manifest(manifest) if record.image)
    while part := list(islice(records, _AT_A_TIME)):
        yield part


def _read(manifest: Path, record: Record) -> ImageBytes:
    path = manifest.parent / str(record.image)
    try:
        return ImageBytes(str(path), content=path.read_bytes())
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}): remove its record from"
            f" {manifest}, or copy the image there"
        ) from error


def _unique_key(record: Record, keys: set[str]) -> str:
    key = tar_key(str(record.image)).lstrip("/")
    if key in keys or not key:
        raise PolyglanceError(
            f"two images would have the key {printable(key)!r} in a tar: rename one of them, or"
            " merge the captions of one image into one record"
        )
    keys.add(key)
    return key

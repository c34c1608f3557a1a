"""An index of image tars (WebDataset's layout), for random access to their samples.

Tars hold samples of consecutive members with one key: ``KEY.jpg``, ``KEY.json``, ``KEY.txt``. The
key is a member's path up to the first dot of its file name, as WebDataset splits it. The index is
a folder of memory-mapped arrays (`polyglance.data.array_files`) with tar, offset and size of each
image and its texts, so that any image is one read and nothing is lost or read twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyglance.data.array_files import ArrayWriter, map_arrays, read_info
from polyglance.errors import DataError, printable
from polyglance.records import Record, atomic_write
from polyglance.vision.pictures import SUFFIXES

_INFO = "tars.json"
_ARRAYS: dict[str, np.dtype[Any]] = {
    "tar": np.dtype("<i4"),
    "image_start": np.dtype("<i8"),
    "image_size": np.dtype("<i8"),
    "image_suffix": np.dtype("<i2"),
    "json_start": np.dtype("<i8"),
    "json_size": np.dtype("<i8"),
    "text_start": np.dtype("<i8"),
    "text_size": np.dtype("<i8"),
    "key_end": np.dtype("<i8"),
    "key_bytes": np.dtype("u1"),
    "hash": np.dtype("<u8"),
    "by_hash": np.dtype("<i8"),
}
_MEMBER = re.compile(r"^((?:.*/)?[^./]+)\.([^/]+)$")
_META = re.compile(r"(^|/)__[^/]*__($|/)")
_TEXTS = ("txt", "text", "caption")
_AT_A_TIME = 4096
Indices = NDArray[np.int64]


@dataclass
class Sample:
    """The members of one sample: their extensions with offset and size in the tar."""

    key: str
    members: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def image(self) -> str | None:
        """The extension of the image: a plain one (``jpg``) before a longer (``mask.png``)."""
        found = [name for name in self.members if f".{name.rpartition('.')[2]}" in SUFFIXES]
        return min(found, key=lambda name: name.count("."), default=None)

    @property
    def text(self) -> str | None:
        """The extension of the plain caption, if there is one."""
        return next((name for name in _TEXTS if name in self.members), None)


def scan_tar(file: IO[bytes], name: str) -> Iterator[Sample]:
    """Yield the samples of a tar, as WebDataset groups them; reads headers alone.

    Args:
        file: The open tar, which can be sought in.
        name: Of the tar, for messages.
    """
    current: Sample | None = None
    for member in _members(file, name):
        split = _MEMBER.match(member.name)
        if not member.isreg() or split is None or _META.search(member.name):
            continue  # folders, links, and files that WebDataset skips too
        key, extension = split[1].removeprefix("./"), split[2].lower()
        if current is None or current.key != key:
            if current is not None:
                yield current
            current = Sample(key)
        if extension in current.members:
            raise DataError(
                f"{name}: {printable(member.name)} is there twice: expected an extension of its"
                " own for every file of a sample"
            )
        current.members[extension] = member.offset_data, member.size
    if current is not None:
        yield current


def _members(file: IO[bytes], name: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar; damage is an error, which `tarfile` takes for the end."""
    count = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # else all stay in memory
                if member.size < 0:
                    raise tarfile.ReadError("negative size")
                count += 1
                yield member
            file.seek(tar.offset)
            last = file.read(tarfile.BLOCKSIZE)
            if last.strip(b"\0") or 0 < len(last) < tarfile.BLOCKSIZE:
                raise tarfile.ReadError("damaged header")
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:
        reason = printable(" ".join(str(error).split()))
        raise DataError(
            f"{name}: cannot be read as a tar after {count:,} members ({reason}); tars must be"
            " whole and not compressed"
        ) from error


class TarIndexWriter:
    """Writes an index, tar after tar; use as a context manager."""

    def __init__(self, folder: Path, key: str, tars: Sequence[str]) -> None:
        """Begin to write.

        Args:
            folder: Of the index.
            key: What it is built from.
            tars: Names of the tars; `add` takes their numbers.
        """
        self._writer = ArrayWriter(folder, _ARRAYS, _INFO)
        self._writer.info = {"key": key, "tars": list(tars), "suffixes": [], "samples": 0}
        self._writer.info |= {"key_bytes": 0, "without_image": 0, "damaged": None}
        self._waiting: list[tuple[int, Sample, str]] = []
        self._hashes: list[NDArray[np.uint64]] = []

    def __enter__(self) -> TarIndexWriter:
        self._writer.__enter__()
        return self

    def add(self, tar: int, sample: Sample) -> None:
        """Add a sample of a tar; those without an image are counted and left out."""
        image = sample.image
        if image is None:
            self._writer.info["without_image"] += 1
            return
        self._waiting.append((tar, sample, image))
        if len(self._waiting) >= _AT_A_TIME:
            self._flush()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._flush()
            hashes = np.concatenate([np.zeros(0, np.uint64), *self._hashes])
            order = np.argsort(hashes, kind="stable")
            self._writer.append("by_hash", order)
            self._writer.append("hash", hashes[order])
        self._writer.__exit__(kind, *rest)

    def _flush(self) -> None:
        info, nothing = self._writer.info, (0, 0)
        keys = [sample.key.encode(errors="surrogateescape") for _, sample, _ in self._waiting]
        for _, _, image in self._waiting:
            if image not in info["suffixes"]:
                info["suffixes"].append(image)
        images = [sample.members[image] for _, sample, image in self._waiting]
        jsons = [sample.members.get("json", nothing) for _, sample, _ in self._waiting]
        texts = [sample.members.get(sample.text or "", nothing) for _, sample, _ in self._waiting]
        for name, places in (("image", images), ("json", jsons), ("text", texts)):
            both = np.array(places, np.int64).reshape(-1, 2)
            self._writer.append(f"{name}_start", both[:, 0])
            self._writer.append(f"{name}_size", both[:, 1])
        suffixes = [info["suffixes"].index(image) for _, _, image in self._waiting]
        self._writer.append("image_suffix", np.array(suffixes, np.int64))
        self._writer.append("tar", np.array([tar for tar, _, _ in self._waiting], np.int64))
        lengths = np.array([len(key) for key in keys], np.int64)
        self._writer.append("key_end", info["key_bytes"] + np.cumsum(lengths))
        self._writer.append("key_bytes", np.frombuffer(b"".join(keys), np.uint8))
        self._hashes.append(np.array([_hash(key) for key in keys], np.uint64))
        info["key_bytes"] += int(lengths.sum())
        info["samples"] += len(keys)
        self._waiting.clear()


class TarIndex:
    """Where the samples of tars lie."""

    def __init__(self, folder: Path, info: dict[str, Any]) -> None:
        """Map an index that was written before."""
        self.folder, self.info = folder, info
        self.tars: tuple[str, ...] = tuple(info["tars"])
        lengths = dict.fromkeys(_ARRAYS, info["samples"]) | {"key_bytes": info["key_bytes"]}
        self.arrays = map_arrays(folder, _ARRAYS, lengths)

    def __len__(self) -> int:
        return int(self.info["samples"])

    @cached_property
    def damaged(self) -> frozenset[int] | None:
        """Samples whose image cannot be decoded; None where nobody has tried."""
        known = self.info["damaged"]
        return None if known is None else frozenset(known)

    @cached_property
    def left_out(self) -> frozenset[str]:
        """Keys of images that were damaged when the tars were written, and are not in them."""
        return frozenset(self.info.get("left_out", ()))

    def note_damaged(self, numbers: Sequence[int], left_out: Sequence[str] = ()) -> None:
        """Store which samples' images cannot be decoded, and which were left out of the tars."""
        self.info |= {"damaged": list(numbers), "left_out": list(left_out)}
        self.__dict__.pop("damaged", None)
        self.__dict__.pop("left_out", None)
        with atomic_write(self.folder / _INFO) as out:
            out.write(json.dumps(self.info, indent=2) + "\n")

    @property
    def bytes_per_image(self) -> int:
        """The mean size of an image's file."""
        return int(np.mean(self.arrays["image_size"])) if len(self) else 0

    def key(self, number: int) -> str:
        """Return the key of a sample."""
        ends = self.arrays["key_end"]
        start = int(ends[number - 1]) if number else 0
        return bytes(self.arrays["key_bytes"][start : int(ends[number])]).decode(
            errors="surrogateescape"
        )

    def name(self, number: int) -> str:
        """Return tar, key and suffix of a sample's image: ``train-000000.tar/KEY.jpg``."""
        suffix = self.info["suffixes"][int(self.arrays["image_suffix"][number])]
        return f"{self.tars[int(self.arrays['tar'][number])]}/{self.key(number)}.{suffix}"

    def find(self, record: Record) -> int | None:
        """Return the sample of a record's image, or None.

        The record names the image with its tar (``train-000000.tar/KEY.jpg``, as 'polyglance data
        import webdataset' writes), or by a path or an id that is a key; one key in several tars
        is then an error.
        """
        image = record.image or ""
        tar, inside, member = image.partition(".tar/")
        if inside and (split := _MEMBER.match(member)):
            wanted = self._tar_numbers.get(PurePosixPath(f"{tar}.tar").name)
            return self._only(split[1], wanted)
        path = tar_key(image)
        for key in dict.fromkeys([path, PurePosixPath(path).name, record.id or path]):
            if (found := self._only(key)) is not None:
                return found
        return None

    @cached_property
    def _tar_numbers(self) -> dict[str, int]:
        return {PurePosixPath(name).name: number for number, name in enumerate(self.tars)}

    def _only(self, key: str, tar: int | None = None) -> int | None:
        """Return the one sample with a key, perhaps in a certain tar."""
        found = self._numbers(key)
        if tar is not None:
            found = [number for number in found if int(self.arrays["tar"][number]) == tar]
        if len(found) > 1:
            raise DataError(
                f"{self.name(found[0])} and {self.name(found[1])} have the same key: make keys"
                " unique, or a manifest that names tars with 'polyglance data import webdataset'"
            )
        return found[0] if found else None

    def _numbers(self, key: str) -> list[int]:
        """Return the samples with a key."""
        wanted = np.uint64(_hash(key.encode(errors="surrogateescape")))
        hashes = self.arrays["hash"]
        sides: tuple[Literal["left", "right"], ...] = ("left", "right")
        first, last = (int(np.searchsorted(hashes, wanted, side)) for side in sides)
        numbers = [int(self.arrays["by_hash"][place]) for place in range(first, last)]
        return [number for number in numbers if self.key(number) == key]


def open_index(folder: Path, key: str | None = None) -> TarIndex | None:
    """Map an index; None if there is none with this key."""
    info = read_info(folder, _INFO, key)
    return None if info is None else TarIndex(folder, info)


def tar_key(path: str) -> str:
    """Return the key under which an image file is stored: its path without the suffix.

    Dots of the name become underscores, since a key ends at the first dot of the file name.
    """
    whole = PurePosixPath(path.removeprefix("./"))
    stem = whole.name
    if f".{stem.rpartition('.')[2].lower()}" in SUFFIXES:
        stem = stem.rpartition(".")[0]
    parent = "" if str(whole.parent) == "." else f"{whole.parent}/"
    return parent + stem.replace(".", "_")


def _hash(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")

"""Images in tars, as WebDataset lays them out, on a disk or at an fsspec address.

    images = open_tars("cc3m/train-{000000..000331}.tar", cache_dir=Path("cache"))
    images.source(7)            # where the image lies, for `polyglance.vision.decoding`

An index (`polyglance.data.tar_index`) lies beside the tars, or in the cache folder where theirs
cannot be written; it is made at the first use, and again when tars change.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, overload

import numpy as np
from numpy.typing import NDArray

from polyglance.data.tar_index import TarIndex, TarIndexWriter, open_index, scan_tar, tar_key
from polyglance.errors import DataError, PolyglanceError, printable
from polyglance.records import Record
from polyglance.utils.fingerprint import fingerprint
from polyglance.utils.progress import progress
from polyglance.vision.decoding import DecodePool, ImageBytes
from polyglance.vision.shard_files import CACHE_BYTES, RemoteFiles, open_address

Indices = NDArray[np.int64]

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CHECKED_AT_A_TIME = 1024


@dataclass(frozen=True)
class TarFile:
    """A tar of a set."""

    name: str
    """File name."""
    size: int


class TarSet:
    """Tars of one folder or address."""

    def __init__(self, address: str | Path) -> None:
        """Find the tars: a folder, a tar, or a pattern with ``*`` or ``{000000..000331}``."""
        self.address = str(address)
        self.is_local = "://" not in self.address
        self._system: Any = None
        self.folder, pattern = self._split()
        self.tars = tuple(self._find(pattern))
        if not self.tars:
            raise DataError(
                f"{self.address}: there are no tars: expected a folder of .tar files, or a pattern"
                " such as train-{000000..000099}.tar"
            )

    @property
    def key(self) -> str:
        """What an index of these tars is built from: their names and sizes."""
        return fingerprint([[tar.name, tar.size] for tar in self.tars])

    @property
    def index_name(self) -> str:
        """The name of the index's folder: ``train.index`` for ``train-000000.tar`` ..."""
        stem = re.sub(r"[-_.]?\d+$", "", PurePosixPath(self.tars[0].name).stem)
        return f"{stem or 'tars'}.index"

    def open(self, name: str) -> IO[bytes]:
        """Open a tar to be scanned."""
        if self.is_local:
            return (Path(self.folder) / name).open("rb")
        opened: IO[bytes] = self._system.open(f"{self.folder}/{name}", "rb")
        return opened

    def _split(self) -> tuple[str, str]:
        """Return folder and pattern of the names."""
        if self.is_local:
            path = Path(self.address)
            return (str(path), "*.tar") if path.is_dir() else (str(path.parent), path.name)
        self._system, root = open_address(self.address)
        if self._system.isdir(root):
            return root, "*.tar"
        folder, _, name = root.rpartition("/")
        return folder, name

    def _find(self, pattern: str) -> Iterator[TarFile]:
        if braces := _BRACES.search(pattern):
            first, last = braces[1], braces[2]
            names = [
                pattern[: braces.start()] + str(number).zfill(len(first)) + pattern[braces.end() :]
                for number in range(int(first), int(last) + 1)
            ]
        elif self.is_local:
            names = sorted(path.name for path in Path(self.folder).glob(pattern))
        else:
            found = self._system.glob(f"{self.folder}/{pattern}")
            names = sorted(PurePosixPath(path).name for path in found)
        for name in names:
            try:
                yield TarFile(name, self._size(name))
            except FileNotFoundError:
                raise DataError(
                    f"{self.address}: {name} is missing: copy it, or change the range"
                ) from None

    def _size(self, name: str) -> int:
        if self.is_local:
            status = (Path(self.folder) / name).stat()
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
                raise DataError(f"{printable(f'{self.folder}/{name}')}: expected a tar file")
            return status.st_size
        return int(self._system.size(f"{self.folder}/{name}"))


class TarImages(Sequence[ImageBytes]):
    """Some images of tars, in an order of their own."""

    def __init__(
        self,
        tars: TarSet,
        index: TarIndex,
        items: Indices | None = None,
        *,
        cache_dir: Path | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """Prepare to read.

        Args:
            tars: Where they lie.
            index: Of them.
            items: Numbers of samples; None for all.
            cache_dir: For copies of tars from an address; None for a temporary folder.
            cache_bytes: The most that these may occupy.
        """
        self.tars, self.tar_index = tars, index
        self.items = np.arange(len(index)) if items is None else np.asarray(items, np.int64)
        self.files: RemoteFiles | None = None
        if not tars.is_local:
            address = tars.address.partition("://")[0] + "://" + tars.folder.lstrip("/")
            self.files = RemoteFiles(address, cache_dir, cache_bytes, suffix=".tar")

    @property
    def is_local(self) -> bool:
        """Whether any image can be read at any time at little cost."""
        return self.tars.is_local

    @property
    def image_bytes(self) -> int:
        """The mean size of an image's file."""
        return self.tar_index.bytes_per_image

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, number: int) -> ImageBytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[ImageBytes]: ...
    def __getitem__(self, number: int | slice) -> ImageBytes | list[ImageBytes]:
        """Return where an image lies; one at an address is read."""
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        item, arrays = int(self.items[number]), self.tar_index.arrays
        name = self.tar_index.tars[int(arrays["tar"][item])]
        start, size = int(arrays["image_start"][item]), int(arrays["image_size"][item])
        title = f"{self.tars.folder}/{self.tar_index.name(item)}"
        if self.files is None:
            return ImageBytes(title, f"{self.tars.folder}/{name}", start, size)
        with self.files.opened([name]) as (descriptor,):
            content = os.pread(descriptor, size, start)
        if len(content) < size:
            raise DataError(f"{title}: its tar ends before it: copy the tar again")
        return ImageBytes(title, content=content)

    def select(self, items: Indices) -> TarImages:
        """Return other images of the same tars."""
        other = object.__new__(TarImages)
        other.__dict__.update(self.__dict__)
        other.items = items
        return other

    def find(self, records: Sequence[Record]) -> Indices:
        """Return the samples of records' images, which must all be there.

        Images that are known to be damaged, or were left out of the tars for it, get -1.
        """
        numbers = np.empty(len(records), np.int64)
        damaged = self.tar_index.damaged or frozenset()
        for place, record in enumerate(records):
            found = self.tar_index.find(record)
            if found is None and tar_key(record.image or "") in self.tar_index.left_out:
                found = -1
            if found is None:
                example = self.tar_index.name(0) if len(self.tar_index) else "nothing"
                raise PolyglanceError(
                    f"{self.tars.address} has no image {record.key!r} (it has {example!r}): use"
                    " the manifest that the tars were made from, or one of 'polyglance data import"
                    " webdataset'"
                )
            numbers[place] = -1 if found in damaged else found
        return numbers


def open_tars(
    address: str | Path,
    *,
    cache_dir: Path | None = None,
    cache_bytes: int = CACHE_BYTES,
    quiet: bool = True,
) -> TarImages:
    """Open tars, with an index that is made if there is none.

    Args:
        address: A folder, a tar, or a pattern with ``*`` or ``{000000..000331}``, on a disk or at
            an address that fsspec understands.
        cache_dir: For copies of tars from an address, and for indices that cannot lie beside
            their tars.
        cache_bytes: The most that copies may occupy.
        quiet: Show no progress bar.
    """
    tars = TarSet(address)
    index = find_index(tars, cache_dir) or build_index(tars, cache_dir, quiet=quiet)
    copies = None if cache_dir is None else cache_dir / f"tars-{tars.key}"
    return TarImages(tars, index, cache_dir=copies, cache_bytes=cache_bytes)


def index_folders(tars: TarSet, cache_dir: Path | None) -> list[Path]:
    """Return where an index of tars may lie, the best place first."""
    folders = [Path(tars.folder) / tars.index_name] if tars.is_local else []
    if cache_dir is not None:
        folders.append(cache_dir / f"{tars.index_name}-{tars.key}")
    return folders


def find_index(tars: TarSet, cache_dir: Path | None = None) -> TarIndex | None:
    """Open the index of tars, or return None."""
    for folder in index_folders(tars, cache_dir):
        if (index := open_index(folder, tars.key)) is not None:
            return index
    return None


def build_index(
    tars: TarSet, cache_dir: Path | None = None, *, quiet: bool = True, check: bool = False
) -> TarIndex:
    """Scan tars and write their index, beside them or in the cache folder.

    Args:
        tars: The tars.
        cache_dir: Where the index lies if the tars' own folder cannot be written.
        quiet: Show no progress bar.
        check: Also decode every image and note the damaged ones.
    """
    folders = index_folders(tars, cache_dir)
    if not folders:
        raise PolyglanceError(f"{tars.address}: give a folder for the index of these tars")
    names = [tar.name for tar in tars.tars]
    for folder in folders:
        try:
            with (
                progress("Indexing tars", len(names), quiet=quiet) as advance,
                TarIndexWriter(folder, tars.key, names) as writer,
            ):
                for number, name in enumerate(names):
                    with tars.open(name) as file:
                        for sample in scan_tar(file, f"{tars.folder}/{name}"):
                            writer.add(number, sample)
                    advance(1)
            break
        except DataError:
            raise
        except PolyglanceError:  # the folder cannot be written
            if folder == folders[-1]:
                raise
    index = open_index(folder, tars.key)
    assert index is not None
    if (without := index.info["without_image"]) and not quiet:
        print(f"{tars.address}: {without:,} samples without an image left out", file=sys.stderr)
    return check_images(tars, index, quiet=quiet) if check else index


def check_images(
    tars: TarSet, index: TarIndex, *, workers: int = 0, quiet: bool = True
) -> TarIndex:
    """Decode every image once, and note those that cannot be decoded in the index.

    Args:
        tars: The tars.
        index: Of them.
        workers: Processes that decode; 0 for threads.
        quiet: Show no progress bar, and name no damaged image.
    """
    images, pool = TarImages(tars, index), DecodePool(workers)
    damaged: list[int] = []
    with progress("Decoding images", len(images), quiet=quiet) as advance:
        for first in range(0, len(images), _CHECKED_AT_A_TIME):
            sources = images[first : first + _CHECKED_AT_A_TIME]
            for number, reason in sorted(pool.damaged(sources).items()):
                damaged.append(first + number)
                if not quiet:
                    print(reason, file=sys.stderr)
            advance(len(sources))
    pool.close()
    index.note_damaged(damaged)
    return index

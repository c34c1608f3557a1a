"""Read the region databases that UNITER, UC2 and M3P publish.

- UNITER's and UC2's LMDB (`UniterLmdb`): a key per picture, whose value is an ``.npz`` file in the
  ``_compressed`` databases, else MessagePack with arrays as msgpack-numpy writes them. Either
  holds ``features``, ``norm_bb``, ``conf`` and ``soft_labels``.
- M3P's HDF5 (`FlatHdf5Regions`): one array for all pictures of ``image_id``, ``features``,
  ``bbox`` or ``boxes``, ``wh``, ``num_boxes``, and ``objects``, ``object`` or ``distribution``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import MissingExtraError
from polyglance.utils.bounded import parse_json
from polyglance.vision.regions import READ_FIELDS, RegionError, region_tokens
from polyglance.vision.tokens import VisualTokens

_THRESHOLDS = re.compile(r"feat_th(?P<threshold>[\d.]+)_max(?P<most>\d+)_min(?P<least>\d+)")
_FIXED = re.compile(r"feat_numbb(?P<count>\d+)")


def find_lmdb(path: Path) -> Path | None:
    """Return the folder of an LMDB: this one, or the only one inside; None without any."""
    if (path / "data.mdb").is_file():
        return path
    inside = sorted(file.parent for file in path.glob("*/data.mdb"))
    if len(inside) > 1:
        names = ", ".join(folder.name for folder in inside)
        raise RegionError(f"{path} has several databases ({names}): name one of them")
    return inside[0] if inside else None


class UniterLmdb:
    """A database of UNITER's and UC2's image features; ``path`` holds its ``data.mdb``.

    The number of regions follows the published code: what ``nbb_*.json`` beside the database
    says; else those above the confidence that the database's name gives, between a least and a
    most number (0.2, 10 and 100 where it gives none).
    """

    def __init__(self, path: Path) -> None:
        try:
            import lmdb
        except ModuleNotFoundError as error:
            raise MissingExtraError("reading LMDB databases", "regions") from error
        self.path = path
        self._counts = _stored_counts(path)
        try:
            self._database = lmdb.open(
                str(path), readonly=True, create=False, lock=False, max_readers=1
            )
            with self._database.begin() as transaction:
                listed = transaction.get(b"__keys__")
                if listed is not None:
                    names = [str(name) for name in parse_json(listed)]
                else:
                    names = [
                        bytes(key).decode() for key in transaction.cursor().iternext(True, False)
                    ]
        except (lmdb.Error, OSError, ValueError, TypeError) as error:
            raise RegionError(f"{path}: cannot be read as LMDB ({error})") from error
        # __len__ and the like describe the database.
        self._names = {
            name.removesuffix(".npz"): name for name in names if not name.startswith("__")
        }
        self.keys = tuple(self._names)
        if not self.keys:
            raise RegionError(f"{path} holds no regions")

    def read(self, key: str, labels: int = 1) -> VisualTokens:
        """See `polyglance.vision.regions.Regions.read`."""
        where = f"{self.path}:{key}"
        name = self._names.get(key)
        value = None
        if name is not None:
            with self._database.begin() as transaction:
                value = transaction.get(name.encode())
        if name is None or value is None:
            raise RegionError(f"{self.path}: holds no regions of {key!r}")
        fields = _decode(bytes(value), where)
        count = self._count(name, fields)
        arrays = {field: array[:count] for field, array in fields.items() if array.ndim}
        return region_tokens(fields | arrays, where, labels)

    def _count(self, name: str, fields: Mapping[str, NDArray[Any]]) -> int | None:
        if name in self._counts:
            return self._counts[name]
        if fixed := _FIXED.search(self.path.name):
            return int(fixed["count"])
        confidence = fields.get("conf")
        if confidence is None:
            return None
        limits = _THRESHOLDS.search(self.path.name)
        threshold, least, most = (
            (0.2, 10, 100)
            if limits is None
            else (float(limits["threshold"]), int(limits["least"]), int(limits["most"]))
        )
        return min(most, max(least, int((confidence > threshold).sum())))

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _stored_counts(path: Path) -> dict[str, int]:
    """Read the number of regions of each picture, if the database's maker wrote them down."""
    file = path.parent / f"nbb_{path.name.removeprefix('feat_').removesuffix('_compressed')}.json"
    if not file.is_file():
        return {}
    try:
        return {str(name): int(count) for name, count in parse_json(file.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise RegionError(f"{file}: expected a number of regions for each picture") from error


def _decode(value: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of one picture; nothing is unpickled."""
    try:
        if value.startswith(b"PK"):
            with np.load(io.BytesIO(value), allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files if name in READ_FIELDS}
        import msgpack

        fields = msgpack.unpackb(value, raw=False, strict_map_key=False, object_hook=_as_array)
        return {name: np.asarray(fields[name]) for name in fields if name in READ_FIELDS}
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading LMDB databases", "regions") from error
    except Exception as error:  # numpy, zipfile and msgpack raise anything on a mangled value
        raise RegionError(f"{where}: cannot be read ({error})") from error


def _as_array(fields: dict[Any, Any]) -> Any:
    """Build an array from a map of msgpack-numpy, whose keys are bytes or, in old files, text."""
    named = {key.decode() if isinstance(key, bytes) else key: fields[key] for key in fields}
    if not named.get("nd"):
        return fields
    if named.get("kind") in (b"V", "V", b"O", "O"):
        raise ValueError("arrays of objects are not read")
    return np.frombuffer(named["data"], np.dtype(named["type"])).reshape(named["shape"])


class FlatHdf5Regions:
    """An HDF5 file with one array for all pictures of each kind, as M3P's code reads it."""

    def __init__(self, path: Path, file: Any) -> None:
        """Take over an open file, whose ``wh`` the published code reads as height and width."""
        self.path, self._file = path, file
        try:
            names = [_text(name) for name in file["image_id"][()]]
        except Exception as error:  # HDF5 raises anything on a mangled file
            raise RegionError(f"{path}: image_id cannot be read ({error})") from error
        self._rows = {name: row for row, name in enumerate(names)}
        self.keys: tuple[str, ...] = tuple(self._rows)

    @staticmethod
    def recognises(file: Any) -> bool:
        """Return whether an open HDF5 file has this layout."""
        return "image_id" in file and "features" in file and not hasattr(file["features"], "keys")

    def read(self, key: str, labels: int = 1) -> VisualTokens:
        """See `polyglance.vision.regions.Regions.read`."""
        where = f"{self.path}:{key}"
        if key not in self._rows:
            raise RegionError(f"{self.path}: holds no regions of {key!r}")
        row, names = self._rows[key], set(self._file)
        fields: dict[str, Any] = {}
        try:
            count = int(self._file["num_boxes"][row]) if "num_boxes" in names else None
            for ours, theirs in (
                ("features", ("features",)),
                ("boxes", ("bbox", "boxes")),
                ("objects", ("objects", "object")),
                ("soft_labels", ("distribution",)),
            ):
                for name in theirs:
                    if name in names:
                        fields[ours] = np.asarray(self._file[name][row])[:count]
            if "objects" in fields:
                fields.pop("soft_labels", None)
            fields["height"], fields["width"] = np.asarray(self._file["wh"][row]).tolist()
        except Exception as error:  # HDF5 raises anything on a mangled file
            raise RegionError(f"{where}: cannot be read ({error})") from error
        return region_tokens(fields, where, labels)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)

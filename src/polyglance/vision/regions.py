"""Read precomputed detector regions into visual tokens.

These layouts are read, distinguished by the file's suffix and contents:

- ``.tsv`` of bottom-up attention (https://github.com/peteanderson80/bottom-up-attention,
  six columns) and of LXMERT (ten columns, with labels), arrays in base64;
- a folder of ``.npz``, one per picture, named after it, as bottom-up-attention.pytorch
  (``x``, ``bbox``) or UNITER and UC2 (``features``, ``norm_bb``, ``soft_labels``) write them;
- ``.h5`` as VOLTA writes it: one group per picture with ``features``, ``boxes``,
  ``obj_id``, ``obj_conf``, ``img_w`` and ``img_h``;
- ``.h5`` as M3P publishes it and UNITER's LMDB: see `polyglance.vision.region_databases`.

Boxes become fractions of the picture's width and height. Label ids stay as in the file,
which does not say to which set of classes they belong.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, MissingExtraError
from polyglance.vision.tokens import VisualTokens, zero_spans

_ALIASES = {
    "features": ("features", "x"),
    "boxes": ("boxes", "bbox"),
    "unit_boxes": ("norm_bb",),
    "width": ("img_w", "image_w", "image_width", "width"),
    "height": ("img_h", "image_h", "image_height", "height"),
    "label": ("obj_id", "objects_id", "objects"),
    "confidence": ("obj_conf", "objects_conf", "conf"),
    "distribution": ("cls_prob", "soft_labels"),
}
READ_FIELDS = frozenset(alias for aliases in _ALIASES.values() for alias in aliases)

_BOTTOM_UP = ("img_id", "img_w", "img_h", "num_boxes", "boxes", "features")
_LXMERT = ("img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf",
           "num_boxes", "boxes", "features")  # fmt: skip
_TSV_DTYPES = {"objects_id": np.int64, "objects_conf": np.float32, "boxes": np.float32,
              "features": np.float32}  # fmt: skip


class RegionError(DataError):
    """Precomputed regions that do not follow their format."""


class Regions(Protocol):
    """A file or folder of regions by key."""

    keys: tuple[str, ...]

    def read(self, key: str, labels: int = 1) -> VisualTokens:
        """Return a picture's regions with the ``labels`` most likely classes of each.

        There are fewer classes where the file has fewer.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def open_regions(path: str | Path) -> Regions:
    """Open precomputed regions of any layout."""
    path = Path(path)
    if path.is_dir():
        from polyglance.vision.region_databases import UniterLmdb, find_lmdb

        database = find_lmdb(path)
        return NpzRegions(path) if database is None else UniterLmdb(database)
    if path.suffix == ".tsv":
        return TsvRegions(path)
    if path.suffix in (".h5", ".hdf5"):
        return _open_hdf5(path)
    raise RegionError(f"{path}: regions are a .tsv, a .h5, an LMDB or a folder of .npz files")


def _open_hdf5(path: Path) -> Regions:
    """Open the layout of VOLTA or of M3P."""
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading HDF5 files", "regions") from error
    from polyglance.vision.region_databases import FlatHdf5Regions

    try:
        file = h5py.File(path, "r")
        flat = FlatHdf5Regions.recognises(file)
    except Exception as error:  # HDF5 raises anything on a mangled file
        raise RegionError(f"{path}: cannot be read as HDF5 ({error})") from error
    return FlatHdf5Regions(path, file) if flat else Hdf5Regions(path, file)


class _Closing:
    """A context manager that closes itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if one is open."""


class TsvRegions(_Closing):
    """A TSV of bottom-up attention or LXMERT; opening it scans for the lines' offsets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, tuple[int, int]] = {}
        try:
            self._file = path.open("rb")
            for number, (line, start) in enumerate(_lines(self._file), start=1):
                if line.strip():
                    key = line.split(b"\t", 1)[0].decode("utf-8", "replace")
                    self._lines[key] = (number, start)
        except OSError as error:
            raise RegionError(f"{path}: cannot be read ({error.strerror or error})") from error
        self.keys = tuple(self._lines)

    def read(self, key: str, labels: int = 1) -> VisualTokens:
        """See `Regions.read`."""
        try:
            number, start = self._lines[key]
        except KeyError:
            raise RegionError(f"{self.path}: holds no regions of {key!r}") from None
        where = f"{self.path}:{number}"
        self._file.seek(start)
        columns = self._file.readline().rstrip(b"\r\n").split(b"\t")
        names = {len(_BOTTOM_UP): _BOTTOM_UP, len(_LXMERT): _LXMERT}.get(len(columns))
        if names is None:
            raise RegionError(f"{where}: expected 6 or 10 columns, found {len(columns)}")
        fields: dict[str, Any] = {}
        for name, text in zip(names, columns, strict=True):
            try:
                if name in _TSV_DTYPES:
                    dtype = np.dtype(_TSV_DTYPES[name]).newbyteorder("<")
                    fields[name] = np.frombuffer(base64.b64decode(text, validate=True), dtype)
                elif name in ("img_w", "img_h", "num_boxes"):
                    fields[name] = int(text)
            except (binascii.Error, ValueError) as error:
                raise RegionError(f"{where}: column {name!r} cannot be read ({error})") from error
        count = max(fields.pop("num_boxes"), 0)
        for name, num_columns in (("boxes", 4), ("features", -1)):
            try:
                fields[name] = fields[name].reshape(count, num_columns)
            except (ValueError, OverflowError):
                raise RegionError(f"{where}: {name!r} does not hold {count} boxes") from None
        return region_tokens(fields, where, labels)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class NpzRegions(_Closing):
    """A folder of ``.npz`` files, each named after its picture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = tuple(sorted(file.stem for file in path.glob("*.npz")))
        if not self.keys:
            raise RegionError(f"{path} holds no .npz files")

    def read(self, key: str, labels: int = 1) -> VisualTokens:
        """See `Regions.read`."""
        file = self.path / f"{key}.npz"
        fields: dict[str, Any] = {}
        try:
            with np.load(file, allow_pickle=False) as archive:
                for name in archive.files:
                    if (
                        name in READ_FIELDS
                    ):  # others may be pickled, like bottom-up-attention's `info`
                        fields[name] = archive[name]
        except Exception as error:  # numpy and zipfile raise anything on a mangled archive
            raise RegionError(f"{file}: cannot be read as .npz ({error})") from error
        return region_tokens(fields, str(file), labels)


class Hdf5Regions(_Closing):
    """An HDF5 file with one group per picture, as VOLTA writes it."""

    def __init__(self, path: Path, file: Any) -> None:
        """Take over an open file."""
        self.path, self._file = path, file
        try:
            self.keys: tuple[str, ...] = tuple(file)
        except Exception as error:  # HDF5 raises anything on a mangled file
            raise RegionError(f"{path}: cannot be read as HDF5 ({error})") from error

    def read(self, key: str, labels: int = 1) -> VisualTokens:
        """See `Regions.read`."""
        where = f"{self.path}:{key}"
        try:
            group = self._file[key]
            fields = {name: group[name][()] for name in group if name in READ_FIELDS}
        except Exception as error:  # HDF5 raises anything on a mangled file
            raise RegionError(f"{where}: cannot be read ({error})") from error
        return region_tokens(fields, where, labels)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def region_tokens(fields: Mapping[str, Any], where: str, labels: int) -> VisualTokens:
    """Build visual tokens from the named arrays of any layout."""
    features = _numbers(fields, "features", where)
    if features is None or features.ndim != 2 or not np.isfinite(features).all():
        raise RegionError(f"{where}: expected 'features' to be one vector of numbers per region")
    features = features.astype(np.float32, copy=False)
    count = len(features)
    return VisualTokens(
        features=features,
        boxes=_boxes(fields, count, where),
        global_feature=features.mean(0) if count else np.zeros(features.shape[1], np.float32),
        spans=zero_spans(count),
        **_labels(fields, count, where, labels),
    )


def _boxes(fields: Mapping[str, Any], count: int, where: str) -> NDArray[np.float32]:
    boxes = _numbers(fields, "unit_boxes", where)
    if boxes is not None and boxes.ndim == 2 and boxes.shape[1] >= 4:
        boxes = boxes[:, :4]  # UNITER appends width and height
    else:
        boxes = _numbers(fields, "boxes", where)
        sides = [_numbers(fields, side, where) for side in ("width", "height")]
        if boxes is None or boxes.shape[1:] != (4,):
            raise RegionError(f"{where}: expected 'boxes' to be four numbers per region")
        if any(side is None or side.size != 1 or not side.item() > 0 for side in sides):
            raise RegionError(f"{where}: expected the picture's width and height in pixels")
        boxes = boxes / np.array([side.item() for side in sides if side is not None] * 2)
    if len(boxes) != count or not np.isfinite(boxes).all():
        raise RegionError(f"{where}: expected a box for each of the {count} regions")
    # Detectors overshoot the edge by a pixel; boxes in pixels would be far outside.
    if count and (boxes.min() < -0.1 or boxes.max() > 1.1):
        raise RegionError(f"{where}: boxes lie outside the picture")
    return boxes.clip(0, 1).astype(np.float32)


def _labels(
    fields: Mapping[str, Any], count: int, where: str, labels: int
) -> dict[str, NDArray[Any]]:
    ids: NDArray[Any] = np.zeros((count, 0))
    probs: NDArray[Any] = np.zeros((count, 0))
    distribution = _numbers(fields, "distribution", where)
    label = _numbers(fields, "label", where)
    if distribution is not None:
        if distribution.ndim != 2 or len(distribution) != count:
            raise RegionError(f"{where}: expected a distribution over classes for each region")
        ids = np.argsort(-distribution, axis=1, kind="stable")[:, :labels]
        probs = np.take_along_axis(distribution, ids, axis=1)
    elif label is not None and labels:
        confidence = _numbers(fields, "confidence", where)
        ids = label.reshape(-1, 1)
        probs = np.ones(ids.shape) if confidence is None else confidence.reshape(-1, 1)
    if len(ids) != count or len(probs) != count or not np.isfinite(probs).all():
        raise RegionError(f"{where}: expected a label for each of the {count} regions")
    if ids.size and (ids.min() < 0 or ids.max() > 65535):
        raise RegionError(f"{where}: expected labels from 0 to 65535")
    return {"label_ids": ids.astype(np.uint16), "label_probs": probs.clip(0, 1).astype(np.float16)}


def _numbers(fields: Mapping[str, Any], name: str, where: str) -> NDArray[Any] | None:
    for alias in _ALIASES[name]:
        if alias in fields:
            array = np.asarray(fields[alias])
            if array.dtype.kind not in "iuf":
                raise RegionError(f"{where}: expected {alias!r} to be numbers")
            return array.astype(np.float32) if array.dtype.kind == "f" else array
    return None


def _lines(file: Any) -> Iterator[tuple[bytes, int]]:
    start = 0
    for line in file:
        yield line, start
        start += len(line)

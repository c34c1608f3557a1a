"""The feature store: visual tokens on disk, memory-mapped, addressed by key.

A folder with

- ``store.json``: the settings it was made with and its layout (`StoreInfo`);
- ``shards/00000.safetensors`` and so on: a fixed number of items each, in the
  order of the keys, written whole or not at all (`polyglance.vision.shards`);
- ``bad.txt``: the items that could not be read, and why, if there are any.

A shard depends on its items alone and the store holds no time stamps, so a store
finished in several runs equals, byte for byte, one made in a single run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import UPGRADE_HINT
from polyglance.vision.shards import Shard, allow_open_files, read_shard
from polyglance.vision.tokens import Floats, VisualTokens, feature_key, published_keys

StoredDtype = Literal["int8", "float16"]
VERSION = 1

_TOKEN_ARRAYS = ("features", "scales", "boxes", "spans", "label_ids", "label_probs")
ITEM_ARRAYS = ("wholes", "whole_scales")
_FIELDS = {"wholes": "global_features", "whole_scales": "global_scales"}
"""Names on disk of the `PackedTokens` fields that are called differently here."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The contents of ``store.json``."""

    made_by: Mapping[str, Any]
    """The settings it was made with; extraction refuses to continue a store under others."""
    width: int
    dtype: StoredDtype
    labels: int
    """Number of most likely classes kept per token."""
    shard_size: int
    items: int
    """Number of keys, including items that could not be read."""
    keys_sha256: str
    version: int = VERSION


@dataclass(frozen=True, slots=True, eq=False)
class PackedTokens:
    """The tokens of several items, concatenated, in the dtype of the store."""

    lengths: NDArray[np.int64]
    """(items,): number of tokens of each item."""
    features: NDArray[np.int8] | NDArray[np.float16]
    """(tokens, width)."""
    scales: NDArray[np.float32]
    """(tokens,): factors of the features; all 1 in a float16 store."""
    boxes: NDArray[np.float32]
    spans: NDArray[np.float32]
    label_ids: NDArray[np.uint16]
    label_probs: NDArray[np.float16]
    global_features: NDArray[np.int8] | NDArray[np.float16]
    """(items, width): one vector per item."""
    global_scales: NDArray[np.float32]

    def dense(self) -> NDArray[np.float32]:
        """Return the features in float32, (tokens, width), as extracted up to rounding."""
        return self.features * self.scales[:, None]

    def dense_global(self) -> NDArray[np.float32]:
        """Return the global features in float32, (items, width)."""
        return self.global_features * self.global_scales[:, None]


class FeatureStore:
    """A finished store: ``store["images/1.jpg"]``, or many items at once with `gather`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.info = read_info(self.path)
        self.bad: dict[str, str] = {}
        """Why items could not be read, by key."""
        keys: list[str] = []
        shards: list[Shard] = []
        allow_open_files(shard_count(self.info))
        for number in range(shard_count(self.info)):
            file = shard_path(self.path, number)
            if not file.is_file():
                raise DataError(
                    f"{self.path} is not finished: {file.name} is missing; run the same"
                    " extraction again to continue where it stopped"
                )
            shard = read_shard(file)
            _check(file, shard, self.info)
            shards.append(shard)
            keys += shard.metadata["keys"]
            self.bad |= shard.metadata["bad"]
        self.keys: tuple[str, ...] = tuple(keys)
        self._items = {key: item for item, key in enumerate(keys)}
        # Of each item: its shard's arrays, its row in the shard and the end of its tokens there.
        self._arrays = [shard.arrays for shard in shards for _ in shard.metadata["keys"]]
        self._row = [row for shard in shards for row in range(len(shard.metadata["keys"]))]
        counts = [shard.arrays["lengths"] for shard in shards]
        self._length: list[int] = [length for count in counts for length in count.tolist()]
        self._end: list[int] = [end for count in counts for end in count.cumsum().tolist()]

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def __reduce__(self) -> tuple[type[FeatureStore], tuple[Path]]:
        # Unpickling maps the files again instead of copying their contents.
        return FeatureStore, (self.path,)

    def __getitem__(self, key: str) -> VisualTokens:
        """Return the tokens of one item: views of the file, or copies where int8 is rescaled."""
        item = self._item(key)
        arrays, end = self._arrays[item], self._end[item]
        rows, row = slice(end - self._length[item], end), self._row[item]
        features: Floats = arrays["features"][rows]
        global_feature: Floats = arrays["wholes"][row]
        if self.info.dtype == "int8":
            features = features * arrays["scales"][rows, None]
            global_feature = global_feature * arrays["whole_scales"][row]
        return VisualTokens(
            features,
            arrays["boxes"][rows],
            global_feature,
            arrays["label_ids"][rows],
            arrays["label_probs"][rows],
            arrays["spans"][rows],
        )

    def lengths(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each item."""
        return np.array([self._length[self._item(key)] for key in keys], np.int64)

    def gather(self, keys: Sequence[str]) -> PackedTokens:
        """Return the tokens of many items, concatenated in the order of ``keys``."""
        items = [self._item(key) for key in keys]
        lengths = np.array([self._length[item] for item in items], np.int64)
        total = int(lengths.sum())
        out = {
            name: np.empty((total if name in _TOKEN_ARRAYS else len(items), *shape), dtype)
            for name, (shape, dtype) in shard_layout(self.info).items()
            if name != "lengths"
        }
        start = 0
        # An item's tokens are contiguous: copying the slice is several times faster than indexing
        # by row.
        for position, item in enumerate(items):
            arrays, end, length = self._arrays[item], self._end[item], self._length[item]
            for name in _TOKEN_ARRAYS:
                out[name][start : start + length] = arrays[name][end - length : end]
            for name in ITEM_ARRAYS:
                out[name][position] = arrays[name][self._row[item]]
            start += length
        fields = {_FIELDS.get(name, name): array for name, array in out.items()}
        return PackedTokens(lengths=lengths, **fields)

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Return those of ``keys`` that the store does not hold."""
        return [key for key in keys if key not in self._items]

    def find(self, record: Record) -> str | None:
        """Return the key of a record's picture or clip, or None if the store lacks it.

        Imported regions are stored under an id, the file name without its suffix, or what the
        published regions of the dataset call it; these are tried after the record's own key.
        """
        return find_key(record, self._items)

    def _item(self, key: str) -> int:
        try:
            return self._items[key]
        except KeyError:
            reason = self.bad.get(key)
            why = f"could not be read at extraction: {reason}" if reason else "is not in the store"
            raise PolyglanceError(f"{self.path} has no features of {key!r}: it {why}") from None


def find_key(record: Record, keys: Container[str]) -> str | None:
    """Return which of a store's keys a record's picture or clip has; see `FeatureStore.find`."""
    stem = PurePosixPath(record.image or record.video or "").stem
    for key in (feature_key(record), record.id, stem, *published_keys(stem)):
        if key and key in keys:
            return key
    return None


def read_info(path: Path) -> StoreInfo:
    """Read and validate ``store.json``."""
    file = path / "store.json"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} is not a feature store: it has no store.json") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from error
    return parse_info(text, str(file))


def parse_info(text: str, file: str) -> StoreInfo:
    """Parse and validate the text of a ``store.json``."""
    try:
        fields = parse_json(text)
    except ValueError as error:
        raise DataError(f"{file}: cannot be read ({error})") from error
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        version = fields.get("version") if isinstance(fields, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise DataError(f"{file} {UPGRADE_HINT}")
        raise DataError(f"{file}: is not version {VERSION}; extract the features again")
    try:
        info = StoreInfo(**fields)
        sound = info.dtype in get_args(StoredDtype) and info.shard_size > 0
        sound = sound and min(info.width, info.items, info.labels) >= 0
        sound = sound and isinstance(info.made_by, dict)
    except TypeError:
        sound = False
    if not sound:
        raise DataError(f"{file}: is damaged; extract the features again")
    return info


def hash_keys(keys: Iterable[str]) -> str:
    """Return a hash of a list of keys, to recognise a store of another list."""
    digest = hashlib.sha256()
    for key in keys:
        digest.update(json.dumps(key).encode() + b"\n")
    return digest.hexdigest()


def shard_count(info: StoreInfo) -> int:
    """Return the number of shards of a finished store."""
    return -(-info.items // info.shard_size)


def shard_path(path: Path, number: int) -> Path:
    """Return the path of a shard."""
    return path / "shards" / f"{number:05d}.safetensors"


def shard_layout(info: StoreInfo) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return the shape of one row and the dtype of each array of a shard."""
    vector = ((info.width,), np.dtype(info.dtype))
    scale = ((), np.dtype(np.float32))
    return {
        "features": vector,
        "scales": scale,
        "boxes": ((4,), np.dtype(np.float32)),
        "spans": ((2,), np.dtype(np.float32)),
        "label_ids": ((info.labels,), np.dtype(np.uint16)),
        "label_probs": ((info.labels,), np.dtype(np.float16)),
        "wholes": vector,
        "whole_scales": scale,
        "lengths": ((), np.dtype(np.int64)),
    }


def _check(file: Path, shard: Shard, info: StoreInfo) -> None:
    """Reject a shard whose arrays do not match ``store.json``, before anything reads it."""
    layout, arrays, notes = shard_layout(info), shard.arrays, shard.metadata
    fits = (
        set(arrays) == set(layout)
        and isinstance(notes.get("keys"), list)
        and isinstance(notes.get("bad"), dict)
    )
    if fits:
        rows = {name: len(notes["keys"]) for name in layout}
        rows |= dict.fromkeys(_TOKEN_ARRAYS, arrays["lengths"].sum())
        fits = all(
            arrays[name].shape == (rows[name], *shape) and arrays[name].dtype == dtype
            for name, (shape, dtype) in layout.items()
        )
    if not fits:
        raise DataError(f"{file}: does not fit store.json; move it away, and extract again")

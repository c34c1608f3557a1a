"""The feature store: visual tokens on disk, memory-mapped, looked up by key.

A folder with

- ``store.json``: what made it and how it is laid out (`StoreInfo`);
- ``shards/00000.safetensors`` and so on: a fixed number of items each, in the
  order of the keys, written whole or not at all (`polyglance.vision.shards`);
- ``bad.txt``: the items that could not be read, and why, if there are any.

A shard is a function of its items alone and nothing in the store tells the
time, so a store that was finished in several runs is equal, byte for byte, to
one made in one go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record
from polyglance.vision.shards import Shard, read_shard
from polyglance.vision.tokens import Floats, VisualTokens, feature_key

StoredDtype = Literal["int8", "float16"]
VERSION = 1

_TOKEN_ARRAYS = ("features", "scales", "boxes", "spans", "label_ids", "label_probs")
_ITEM_ARRAYS = ("wholes", "whole_scales")


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store holds; the contents of ``store.json``."""

    made_by: Mapping[str, Any]
    """The settings that made it. Other settings make another store."""
    width: int
    dtype: StoredDtype
    labels: int
    """Classes kept of each token's distribution."""
    shard_size: int
    items: int
    """Keys in all, those that could not be read included."""
    keys_sha256: str
    version: int = VERSION


@dataclass(frozen=True, slots=True, eq=False)
class PackedTokens:
    """The tokens of several items end to end, in the kind of number that the store keeps."""

    lengths: NDArray[np.int64]
    """How many tokens each item has."""
    features: NDArray[np.int8] | NDArray[np.float16]
    scales: NDArray[np.float32]
    """By what each token's features are multiplied; all one in a float16 store."""
    boxes: NDArray[np.float32]
    spans: NDArray[np.float32]
    label_ids: NDArray[np.uint16]
    label_probs: NDArray[np.float16]
    wholes: NDArray[np.int8] | NDArray[np.float16]
    """One vector an item."""
    whole_scales: NDArray[np.float32]

    def dense(self) -> NDArray[np.float32]:
        """The features as they were, up to rounding."""
        return self.features * self.scales[:, None]

    def dense_wholes(self) -> NDArray[np.float32]:
        """The vectors of the whole items as they were, up to rounding."""
        return self.wholes * self.whole_scales[:, None]


class FeatureStore:
    """A finished store: ``store["images/1.jpg"]``, or many at once with `gather`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.info = read_info(self.path)
        self.bad: dict[str, str] = {}
        """Why items are missing, by key."""
        keys: list[str] = []
        shards: list[Shard] = []
        for number in range(shard_count(self.info)):
            place = shard_path(self.path, number)
            if not place.is_file():
                raise DataError(
                    f"{self.path} is not finished: {place.name} is missing; run the same"
                    " extraction again to go on where it stopped"
                )
            shard = read_shard(place)
            _check(place, shard, self.info)
            shards.append(shard)
            keys += shard.notes["keys"]
            self.bad |= shard.notes["bad"]
        self.keys: tuple[str, ...] = tuple(keys)
        self._items = {key: item for item, key in enumerate(keys)}
        # Of each item: its shard's arrays, its place in the shard and the end of its tokens there.
        self._arrays = [shard.arrays for shard in shards for _ in shard.notes["keys"]]
        self._row = [row for shard in shards for row in range(len(shard.notes["keys"]))]
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
        # Another process maps the files again instead of receiving a copy of them.
        return FeatureStore, (self.path,)

    def __getitem__(self, key: str) -> VisualTokens:
        """The tokens of one item; views of the file except where they are scaled back from int8."""
        item = self._item(key)
        arrays, end = self._arrays[item], self._end[item]
        rows, row = slice(end - self._length[item], end), self._row[item]
        features: Floats = arrays["features"][rows]
        whole: Floats = arrays["wholes"][row]
        if self.info.dtype == "int8":
            features = features * arrays["scales"][rows, None]
            whole = whole * arrays["whole_scales"][row]
        return VisualTokens(
            features,
            arrays["boxes"][rows],
            whole,
            arrays["label_ids"][rows],
            arrays["label_probs"][rows],
            arrays["spans"][rows],
        )

    def lengths(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """How many tokens each of these items has."""
        return np.array([self._length[self._item(key)] for key in keys], np.int64)

    def gather(self, keys: Sequence[str]) -> PackedTokens:
        """The tokens of many items end to end, in the order asked for."""
        items = [self._item(key) for key in keys]
        lengths = np.array([self._length[item] for item in items], np.int64)
        total = int(lengths.sum())
        out = {
            name: np.empty((total if name in _TOKEN_ARRAYS else len(items), *shape), dtype)
            for name, (shape, dtype) in shard_layout(self.info).items()
            if name != "lengths"
        }
        start = 0
        # An item's tokens lie together: copying them as one piece is several times faster than
        # indexing by row.
        for place, item in enumerate(items):
            arrays, end, length = self._arrays[item], self._end[item], self._length[item]
            for name in _TOKEN_ARRAYS:
                out[name][start : start + length] = arrays[name][end - length : end]
            for name in _ITEM_ARRAYS:
                out[name][place] = arrays[name][self._row[item]]
            start += length
        return PackedTokens(lengths=lengths, **out)

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Which of ``keys`` the store does not hold."""
        return [key for key in keys if key not in self._items]

    def find(self, record: Record) -> str | None:
        """The key of a record's picture or clip, if it is here.

        Regions that were computed elsewhere go by an id or by the name of the
        picture's file without its suffix; these are tried after the record's own key.
        """
        place = record.image or record.video or ""
        for key in (feature_key(record), record.id, PurePosixPath(place).stem):
            if key and key in self._items:
                return key
        return None

    def _item(self, key: str) -> int:
        try:
            return self._items[key]
        except KeyError:
            reason = self.bad.get(key)
            why = f"could not be read when it was made: {reason}" if reason else "is not in it"
            raise PolyglanceError(f"{self.path} has no features of {key!r}: it {why}") from None


def read_info(path: Path) -> StoreInfo:
    """What ``store.json`` says."""
    place = path / "store.json"
    try:
        fields = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is not a feature store: it has no store.json") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{place}: cannot be read ({error})") from error
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        raise DataError(f"{place}: is not of version {VERSION}; make the store again")
    try:
        info = StoreInfo(**fields)
        sound = info.dtype in get_args(StoredDtype) and info.shard_size > 0
        sound = sound and min(info.width, info.items, info.labels) >= 0
        sound = sound and isinstance(info.made_by, dict)
    except TypeError:
        sound = False
    if not sound:
        raise DataError(f"{place}: is not what a feature store says of itself; make it again")
    return info


def hash_keys(keys: Iterable[str]) -> str:
    """A hash of a list of keys, to tell whether a store was made for another list."""
    digest = hashlib.sha256()
    for key in keys:
        digest.update(json.dumps(key).encode() + b"\n")
    return digest.hexdigest()


def shard_count(info: StoreInfo) -> int:
    """How many shards a finished store has."""
    return -(-info.items // info.shard_size)


def shard_path(path: Path, number: int) -> Path:
    """Where a shard lies."""
    return path / "shards" / f"{number:05d}.safetensors"


def shard_layout(info: StoreInfo) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """The arrays of a shard: the shape of one row, and the kind of number."""
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


def _check(place: Path, shard: Shard, info: StoreInfo) -> None:
    """A shard that another program wrote or that lost its end is found here, not later."""
    layout, arrays, notes = shard_layout(info), shard.arrays, shard.notes
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
        raise DataError(f"{place}: does not fit store.json; delete it and run the extraction again")

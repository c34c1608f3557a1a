"""Writing a feature store, shard by shard, so that it can be interrupted and gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from polyglance.errors import DataError, PolyglanceError, printable, reason
from polyglance.vision.shards import Array, read_shard, replacing_bytes, write_shard
from polyglance.vision.store import (
    StoredDtype,
    StoreInfo,
    read_info,
    shard_count,
    shard_layout,
    shard_path,
)
from polyglance.vision.tokens import Floats, VisualTokens


@dataclass(frozen=True, slots=True)
class Bad:
    """Why an item could not be read."""

    reason: str


class StoreWriter:
    """Writes the shards of a store that are not there yet or that can be mended."""

    def __init__(self, path: str | Path, info: StoreInfo, keys: Sequence[str]) -> None:
        if info.dtype not in get_args(StoredDtype):
            raise PolyglanceError(f"features are kept as int8 or float16, not {info.dtype!r}")
        if info.shard_size < 1:
            raise PolyglanceError(f"a shard holds one item or more, not {info.shard_size}")
        self.path, self.info, self.keys = Path(path), info, keys
        place = self.path / "store.json"
        try:
            begun, free = place.exists(), _is_free(self.path)
        except OSError as error:
            raise PolyglanceError(
                f"{printable(str(path))}: cannot be opened ({reason(error)}); give another folder"
            ) from error
        if begun:
            _compare(self.path, read_info(self.path), info)
        elif not free:
            raise PolyglanceError(f"{self.path} holds other files; give a new or an empty folder")
        else:
            text = json.dumps(asdict(info), indent=2, sort_keys=True) + "\n"
            with replacing_bytes(place) as out:
                out.write(text.encode())

    @property
    def pending(self) -> list[int]:
        """The numbers of the shards that are still to be written."""
        numbers = range(shard_count(self.info))
        return [number for number in numbers if not shard_path(self.path, number).exists()]

    def mended(self, again: Callable[[str], object]) -> list[int]:
        """The numbers of the shards there whose bad items are bad no longer.

        ``again`` tries to read an item: `Bad` says why it still cannot be. Another
        reason than before counts as well, so that ``bad.txt`` tells the truth.
        """
        return [
            number
            for number in range(shard_count(self.info))
            if shard_path(self.path, number).exists()
            and any(again(key) != Bad(why) for key, why in self._bad_of(number).items())
        ]

    def keys_of(self, number: int) -> Sequence[str]:
        """The keys of a shard's items."""
        size = self.info.shard_size
        return self.keys[number * size : (number + 1) * size]

    def write(self, number: int, items: Sequence[VisualTokens | Bad]) -> None:
        """Write a shard: what became of each of its keys, in their order."""
        pairs = list(zip(self.keys_of(number), items, strict=True))
        good = [(key, item) for key, item in pairs if isinstance(item, VisualTokens)]
        notes = {
            "keys": [key for key, _ in good],
            "bad": {key: item.reason for key, item in pairs if isinstance(item, Bad)},
        }
        arrays = _arrays([item for _, item in good], self.info)
        write_shard(shard_path(self.path, number), arrays, notes)

    def finish(self) -> dict[str, str]:
        """List the bad items in ``bad.txt`` and return them, once nothing is pending."""
        bad: dict[str, str] = {}
        for number in range(shard_count(self.info)):
            bad |= self._bad_of(number)
        place = self.path / "bad.txt"
        lines = (
            f"{key if key.isprintable() else repr(key)}\t{' '.join(why.split())}\n"
            for key, why in bad.items()
        )
        text = "".join(lines).encode()
        if not bad:
            place.unlink(missing_ok=True)
        elif not place.exists() or place.read_bytes() != text:
            with replacing_bytes(place) as out:
                out.write(text)
        return bad

    def _bad_of(self, number: int) -> dict[str, str]:
        place = shard_path(self.path, number)
        bad = read_shard(place).notes.get("bad")
        if not isinstance(bad, dict):
            raise DataError(f"{place}: is damaged; delete this file and run the extraction again")
        return bad

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from writing to this store; a killed one holds it no longer."""
        with (self.path / "store.json").open("rb") as file:
            if not _lock(file):
                raise PolyglanceError(
                    f"{self.path} is being written by another process; wait for it"
                )
            yield


def _is_free(path: Path) -> bool:
    """Whether there is nothing but what a process killed at its very start left behind."""
    if not path.exists():
        return True
    return path.is_dir() and all(entry.name == "store.json.partial" for entry in path.iterdir())


def quantise(vectors: Floats) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Each vector as int8 and the scale that takes its largest value to 127."""
    scales = np.abs(vectors).max(axis=-1, initial=0.0).astype(np.float32) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    return np.rint(vectors / safe[:, None]).astype(np.int8), scales


def _arrays(items: Sequence[VisualTokens], info: StoreInfo) -> dict[str, Array]:
    """The arrays of a shard, all there even if no item is."""
    layout = shard_layout(info)

    def joined(name: str, parts: list[Array], dtype: DTypeLike | None = None) -> Array:
        shape, kind = layout[name]
        return np.concatenate([np.zeros((0, *shape), dtype or kind), *parts])

    arrays = {
        "lengths": np.array([len(item) for item in items], np.int64),
        "boxes": joined("boxes", [item.boxes for item in items]),
        "spans": joined("spans", [item.spans for item in items]),
        "label_ids": joined("label_ids", [item.label_ids for item in items]),
        "label_probs": joined("label_probs", [item.label_probs for item in items]),
    }
    vectors = {
        "features": joined("features", [item.features for item in items], np.float32),
        "wholes": joined("wholes", [item.whole[None] for item in items], np.float32),
    }
    for (name, values), scales in zip(vectors.items(), ("scales", "whole_scales"), strict=True):
        if info.dtype == "int8":
            arrays[name], arrays[scales] = quantise(values)
        else:
            arrays[name], arrays[scales] = _halve(values), np.ones(len(values), np.float32)
    return arrays


def _halve(vectors: Floats) -> NDArray[np.float16]:
    limit = np.finfo(np.float16).max
    return vectors.clip(-limit, limit).astype(np.float16)


def _compare(path: Path, there: StoreInfo, wanted: StoreInfo) -> None:
    """Refuse to go on with a store that other settings made."""
    old, new = asdict(there), asdict(wanted)
    old |= {f"made_by.{name}": value for name, value in old.pop("made_by").items()}
    new |= {f"made_by.{name}": value for name, value in new.pop("made_by").items()}
    for name in sorted(old | new):
        if old.get(name) != new.get(name):
            what = name.removeprefix("made_by.")
            if what in ("items", "keys_sha256"):
                raise PolyglanceError(
                    f"{path} was made for another list of pictures; give another folder,"
                    " or delete this one to make it again"
                )
            raise PolyglanceError(
                f"{path} was made with {what} {old.get(name)!r}, not {new.get(name)!r}; give"
                " another folder, or delete this one to make it again"
            )


def _lock(file: IO[bytes]) -> bool:
    try:
        import fcntl
    except ModuleNotFoundError:  # no such locks on Windows: two runs at once waste time, no more
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True

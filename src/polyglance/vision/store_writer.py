"""Write a feature store shard by shard, so that an interrupted run can be continued."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from polyglance.errors import DataError, PolyglanceError, error_reason, printable
from polyglance.vision.shards import Array, atomic_write, read_shard, write_shard
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
class BadItem:
    """Why an item could not be read."""

    reason: str


class StoreWriter:
    """Writes the missing shards of a store, and those whose bad items became readable."""

    def __init__(self, path: str | Path, info: StoreInfo, keys: Sequence[str]) -> None:
        """Create the store in ``path``, or continue one made with the same settings and keys."""
        if info.dtype not in get_args(StoredDtype):
            raise PolyglanceError(f"dtype must be int8 or float16, not {info.dtype!r}")
        if info.shard_size < 1:
            raise PolyglanceError(f"shard_size must be 1 or more, not {info.shard_size}")
        self.path, self.info, self.keys = Path(path), info, keys
        file = self.path / "store.json"
        try:
            exists, is_free = file.exists(), _is_free(self.path)
        except OSError as error:
            raise PolyglanceError(
                f"{printable(str(path))}: cannot be opened ({error_reason(error)});"
                " give another folder"
            ) from error
        if exists:
            _compare(self.path, read_info(self.path), info)
        elif not is_free:
            raise PolyglanceError(f"{self.path} holds other files; give a new or an empty folder")
        else:
            text = json.dumps(asdict(info), indent=2, sort_keys=True) + "\n"
            with atomic_write(file) as out:
                out.write(text.encode())

    @property
    def pending(self) -> list[int]:
        """The numbers of the shards still to be written."""
        numbers = range(shard_count(self.info))
        return [number for number in numbers if not shard_path(self.path, number).exists()]

    def repairable(self, read: Callable[[str], object]) -> list[int]:
        """Return the numbers of the written shards whose bad items have changed.

        ``read`` tries an item by its key and returns a `BadItem` if it still cannot be
        read. A reason that differs from the stored one counts, so that ``bad.txt`` stays
        up to date.
        """
        return [
            number
            for number in range(shard_count(self.info))
            if shard_path(self.path, number).exists()
            and any(read(key) != BadItem(why) for key, why in self._bad_of(number).items())
        ]

    def keys_of(self, number: int) -> Sequence[str]:
        """Return the keys of a shard's items."""
        size = self.info.shard_size
        return self.keys[number * size : (number + 1) * size]

    def write(self, number: int, items: Sequence[VisualTokens | BadItem]) -> None:
        """Write a shard: the tokens of each of its keys, or why there are none, in order."""
        write_items(self.path, self.info, number, self.keys_of(number), items)

    def finish(self) -> dict[str, str]:
        """Write ``bad.txt`` and return the bad items, once no shard is pending."""
        bad: dict[str, str] = {}
        for number in range(shard_count(self.info)):
            bad |= self._bad_of(number)
        file = self.path / "bad.txt"
        lines = (
            f"{key if key.isprintable() else repr(key)}\t{' '.join(why.split())}\n"
            for key, why in bad.items()
        )
        text = "".join(lines).encode()
        if not bad:
            file.unlink(missing_ok=True)
        elif not file.exists() or file.read_bytes() != text:
            with atomic_write(file) as out:
                out.write(text)
        return bad

    def _bad_of(self, number: int) -> dict[str, str]:
        file = shard_path(self.path, number)
        bad = read_shard(file).metadata.get("bad")
        if not isinstance(bad, dict):
            raise DataError(f"{file}: is damaged; delete this file and run the extraction again")
        return bad

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the store's lock, so that no other process writes to it; killing releases it."""
        with (self.path / "store.json").open("rb") as file:
            if not _lock(file):
                raise PolyglanceError(
                    f"{self.path} is being written by another process; wait for it to finish"
                )
            yield


def write_items(
    store: Path,
    info: StoreInfo,
    number: int,
    keys: Sequence[str],
    items: Sequence[VisualTokens | BadItem],
) -> None:
    """Write a shard of a store.

    Args:
        store: The store's folder.
        info: Its description.
        number: Of the shard.
        keys: Of the shard's items.
        items: The tokens of each key, or why there are none.
    """
    pairs = list(zip(keys, items, strict=True))
    good = [(key, item) for key, item in pairs if isinstance(item, VisualTokens)]
    metadata = {
        "keys": [key for key, _ in good],
        "bad": {key: item.reason for key, item in pairs if isinstance(item, BadItem)},
    }
    arrays = _arrays([item for _, item in good], info)
    write_shard(shard_path(store, number), arrays, metadata)


def _is_free(path: Path) -> bool:
    """Whether the folder is empty but for what a process killed at its start left behind."""
    if not path.exists():
        return True
    return path.is_dir() and all(entry.name == "store.json.partial" for entry in path.iterdir())


def quantise(vectors: Floats) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return (n, width) vectors as int8 and the (n,) scales that map 127 to their maxima."""
    scales = np.abs(vectors).max(axis=-1, initial=0.0).astype(np.float32) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    return np.rint(vectors / safe[:, None]).astype(np.int8), scales


def _arrays(items: Sequence[VisualTokens], info: StoreInfo) -> dict[str, Array]:
    """Return the arrays of a shard; all exist even without items."""
    layout = shard_layout(info)

    def concatenate(name: str, parts: list[Array], dtype: DTypeLike | None = None) -> Array:
        shape, kind = layout[name]
        return np.concatenate([np.zeros((0, *shape), dtype or kind), *parts])

    arrays = {
        "lengths": np.array([len(item) for item in items], np.int64),
        "boxes": concatenate("boxes", [item.boxes for item in items]),
        "spans": concatenate("spans", [item.spans for item in items]),
        "label_ids": concatenate("label_ids", [item.label_ids for item in items]),
        "label_probs": concatenate("label_probs", [item.label_probs for item in items]),
    }
    vectors = {
        "features": concatenate("features", [item.features for item in items], np.float32),
        "wholes": concatenate("wholes", [item.global_feature[None] for item in items], np.float32),
    }
    for (name, values), scales in zip(vectors.items(), ("scales", "whole_scales"), strict=True):
        if info.dtype == "int8":
            arrays[name], arrays[scales] = quantise(values)
        else:
            arrays[name], arrays[scales] = _to_float16(values), np.ones(len(values), np.float32)
    return arrays


def _to_float16(vectors: Floats) -> NDArray[np.float16]:
    limit = np.finfo(np.float16).max
    return vectors.clip(-limit, limit).astype(np.float16)


def _compare(path: Path, existing: StoreInfo, requested: StoreInfo) -> None:
    """Refuse to continue a store that was made with other settings."""
    old, new = asdict(existing), asdict(requested)
    old |= {f"made_by.{name}": value for name, value in old.pop("made_by").items()}
    new |= {f"made_by.{name}": value for name, value in new.pop("made_by").items()}
    for name in sorted(old | new):
        if old.get(name) != new.get(name):
            setting = name.removeprefix("made_by.")
            if setting in ("items", "keys_sha256"):
                raise PolyglanceError(
                    f"{path} was made for another list of pictures; give another folder"
                )
            raise PolyglanceError(
                f"{path} was made with {setting} {old.get(name)!r}, not {new.get(name)!r}; give"
                " another folder"
            )


def _lock(file: IO[bytes]) -> bool:
    try:
        import fcntl
    except ModuleNotFoundError:  # not on Windows: two runs at once only waste time
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True

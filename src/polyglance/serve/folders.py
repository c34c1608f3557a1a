"""The folders of a library as a tree, with counts and covers, by their display names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from polyglance.search.scan import is_within
from polyglance.search.store import Ids


@dataclass(slots=True)
class Folder:
    """A folder, and what is in it at any depth."""

    name: str
    """The last part of its display name."""
    files: int = 0
    newest: int = -1
    """The rank of its newest item by date."""
    cover: int = 0
    """The id of that item."""
    children: set[str] = field(default_factory=set)
    """The display names of the folders directly in it."""


def folder_tree(
    labels: Mapping[str, str], paths: Iterable[tuple[int, str]], timeline: Ids
) -> dict[str, Folder]:
    """Return the folders that hold items, by display name, and those that were indexed.

    Args:
        labels: Display names of the indexed folders, by path.
        paths: Id and path of all items.
        timeline: The ids of all items, the newest first.

    Returns:
        The folders.
    """
    rank = np.full(int(timeline.max(initial=0)) + 1, len(timeline))
    rank[timeline] = np.arange(len(timeline))
    ranks = rank.tolist()
    # By strings, and only then by folder: there are many more files than folders.
    direct: dict[str, list[int]] = {}
    for item, path in paths:
        inside = direct.setdefault(path.rpartition("/")[0], [0, len(timeline), 0])
        inside[0] += 1
        if item < len(ranks) and ranks[item] < inside[1]:
            inside[1:] = ranks[item], item
    tree = {label: Folder(label) for label in labels.values()}
    for path, (files, newest, cover) in direct.items():
        for root, label in labels.items():
            if is_within(path or "/", root):
                parts = path[len(root.rstrip("/")) :].strip("/")
                _add(tree, label, parts.split("/") if parts else [], (files, newest, cover))
    return tree


def _add(
    tree: dict[str, Folder], label: str, parts: list[str], found: tuple[int, int, int]
) -> None:
    """Count what is directly in a folder for it and all that it lies in."""
    files, newest, cover = found
    name = label
    for part in [None, *parts]:
        if part is not None:
            tree[name].children.add(f"{name}/{part}")
            name = f"{name}/{part}"
        folder = tree.setdefault(name, Folder(part or label))
        folder.files += files
        if folder.newest < 0 or newest < folder.newest:
            folder.newest, folder.cover = newest, cover

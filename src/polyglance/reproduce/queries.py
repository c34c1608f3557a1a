"""Ranks of all test queries beside a target's table, by which verdicts can be checked again.

``queries.npz`` holds, of every run and seed, the ranks that the cells of the table are made of, as
``RUN|SEED|PLACE.ranks.text_to_image``: an image's share of a figure, which `image_shares` returns,
is all that `polyglance.evaluation.statistics.compare_queries` needs. Ranks behind the last that a
recall counts are one behind it, which makes the file small. What is the same in all runs, such as
the image of each caption, is stored once, as ``PLACE.ranks.image_ids``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyglance.evaluation.retrieval import RECALL_AT
from polyglance.evaluation.statistics import image_scores
from polyglance.recipes.run_folder import QUERIES
from polyglance.reproduce.runs import Job

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
_LAYOUT = ("image_ids", "num_images")
_RANKS = ("image_to_text", "text_to_image", *_LAYOUT)
_TO_TEXT = ("image_to_text", "visual_to_text")
"""Directions in which an image is the query."""


def write_queries(folders: Mapping[Job, Path], places: Collection[str], path: Path) -> Path | None:
    """Write the ranks of several runs into one file.

    Args:
        folders: of the runs.
        places: of figures in a report, such as ``test.de.mR``.
        path: the file.

    Returns:
        The path; None where no run has ranks.
    """
    metrics = [split_place(place)[2] for place in places]
    last = max(RECALL_AT + tuple(int(m[2:]) for m in metrics if m.startswith("R@")))
    wanted = {f"{place}.{name}" for place in {split_place(p)[0] for p in places} for name in _RANKS}
    found: dict[str, Array] = {}
    layouts: dict[str, Array] = {}
    for (run, seed), folder in folders.items():
        if not (folder / QUERIES).is_file():
            continue
        with np.load(folder / QUERIES) as arrays:
            for name in wanted & set(arrays.files):
                ranks = arrays[name]
                if not name.endswith(_LAYOUT):
                    ranks = np.minimum(ranks, last + 1)
                array = _compact(ranks)
                if name.endswith(_LAYOUT) and np.array_equal(
                    layouts.setdefault(name, array), array
                ):
                    continue
                found[f"{run}|{seed}|{name}"] = array
    if not found:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"partial-{path.name}")
    np.savez_compressed(partial, allow_pickle=False, **layouts, **found)
    os.replace(partial, path)
    return path


def read_queries(path: Path, job: Job) -> dict[str, Array]:
    """Return the ranks of one run from the file that `write_queries` wrote."""
    prefix = f"{job[0]}|{job[1]}|"
    with np.load(path) as arrays:
        shared = {name: arrays[name] for name in arrays.files if "|" not in name}
        own = {n.removeprefix(prefix): arrays[n] for n in arrays.files if n.startswith(prefix)}
    return {**shared, **own} if own else {}


def split_place(path: str) -> tuple[str, str, str]:
    """Return where the ranks of a figure are, its direction, if it has one, and its metric."""
    *above, metric = path.split(".")
    direction = above.pop() if metric.startswith("R@") and above else ""
    return ".".join([*above, "ranks"]), direction, metric


def query_scores(folder: Path, path: str) -> npt.NDArray[np.float64] | None:
    """Return `image_shares` of a figure by the ranks in the folder of a run, if it has any."""
    file = folder / QUERIES
    return _file_shares(file, file.stat().st_mtime_ns, path) if file.is_file() else None


@lru_cache(maxsize=4096)
def _file_shares(file: Path, modified: int, path: str) -> npt.NDArray[np.float64] | None:
    """Keep what was read: tables are written after every run, and rows are in several claims."""
    del modified
    with np.load(file) as arrays:
        return image_shares(arrays, path)


def image_shares(arrays: Arrays, path: str) -> npt.NDArray[np.float64] | None:
    """Return each image's share of a recall or of mR in percent, from a run's ranks.

    Args:
        arrays: ranks of a run by their names.
        path: the figure's place in the report, such as ``test.de.mR``.

    Returns:
        ``(images,)``; None where there are no ranks of it.
    """
    place, direction, metric = split_place(path)
    if f"{place}.image_ids" not in arrays or f"{place}.image_to_text" not in arrays:
        return None
    to_text, to_image, ids = (
        arrays[f"{place}.{name}"] for name in ("image_to_text", "text_to_image", "image_ids")
    )
    num_images = int(arrays[f"{place}.num_images"])
    if metric == "mR":
        return image_scores(to_text, to_image, ids, num_images)
    if not direction:
        return None
    k = int(metric.removeprefix("R@"))
    scores = np.zeros(num_images)
    if direction in _TO_TEXT:
        captioned = np.flatnonzero(np.bincount(ids, minlength=num_images) > 0)
        scores[captioned] = 100 * num_images / len(captioned) * (to_text <= k)
    else:
        np.add.at(scores, ids, 100 * num_images / len(ids) * (to_image <= k))
    return scores


def _compact(array: Array) -> Array:
    """Return whole numbers in the smallest type that holds them."""
    if array.size == 0 or array.dtype.kind not in "iu":
        return array
    return array.astype(np.min_scalar_type(int(array.max())) if array.min() >= 0 else array.dtype)

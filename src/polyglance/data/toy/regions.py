"""What a good detector would find in toy pictures, in files as published detectors write them.

One ``.npz`` per picture, named after it, as UNITER and UC2 publish regions: ``features``,
``norm_bb`` and ``soft_labels``. ``polyglance features regions FOLDER --out STORE`` makes a
feature store of them; label ids are the rows of ``labels.tsv``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.data.toy.items import Clip, Picture
from polyglance.data.toy.semantics import COLOURS, SHAPES, Thing

NOISE = 8
"""Feature dimensions that hold noise only."""
WIDTH = len(SHAPES) + len(COLOURS) + NOISE
LABELS = len(SHAPES) * len(COLOURS)
CONFIDENCE = 0.9
"""Probability of a region's own label; the rest is the next one's."""


def write_regions(
    folder: str | Path, pictures: Iterable[Picture], *, first_only: bool = False
) -> int:
    """Write the regions of pictures; return the number of files.

    Args:
        folder: where to write.
        pictures: what the detector sees.
        first_only: only the thing at the back, for pictures captioned by its name alone.

    Returns:
        How many files were written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for picture in pictures:
        things = [placed.thing for placed in picture.scene.things]
        boxes = [region.box for region in picture.regions()]
        number = 1 if first_only else len(things)
        rng = np.random.default_rng([*picture.seed, 9])
        features = np.stack([thing_features(thing, rng) for thing in things[:number]])
        corners = np.array(boxes[:number], np.float32)
        sides = corners[:, 2:] - corners[:, :2]
        np.savez(
            folder / f"{picture.key}.npz",
            features=features.astype(np.float16),
            norm_bb=np.concatenate([corners, sides], axis=1).astype(np.float32),
            soft_labels=np.stack([_label_probs(thing) for thing in things[:number]]),
        )
        count += 1
    return count


def thing_features(thing: Thing, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a region's features, ``(WIDTH,)``: shape and colour one-hot, in noise."""
    features = 0.1 * rng.standard_normal(WIDTH)
    features[SHAPES.index(thing.shape)] += 1
    features[len(SHAPES) + COLOURS.index(thing.true_colour)] += 1
    return features


def label_id(thing: Thing) -> int:
    """Return the row of a thing's name in ``labels.tsv``."""
    return COLOURS.index(thing.true_colour) * len(SHAPES) + SHAPES.index(thing.shape)


def clip_features(clip: Clip, *, size: int = 12, seconds: int = 4) -> NDArray[np.float32]:
    """Return a clip's features, ``(seconds, 3 * size * size)``: coarse pixels of each second."""
    frames = clip.frames(size=size, frames=seconds).reshape(seconds, -1)
    return np.asarray(frames / 127.5 - 1, np.float32)


def _label_probs(thing: Thing) -> NDArray[np.float16]:
    probabilities = np.zeros(LABELS, np.float16)
    probabilities[label_id(thing)] = CONFIDENCE
    probabilities[(label_id(thing) + 1) % LABELS] = 1 - CONFIDENCE
    return probabilities

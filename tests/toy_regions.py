"""The toy world as a detector sees it: a region a thing, with features, box and label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from polyglance.data.toy import Picture, dictionary
from polyglance.data.toy.meaning import COLOURS, SHAPES
from polyglance.records import Record
from polyglance.text.dictionaries import Dictionary
from polyglance.training.region_table import RegionTable

NOISE = 8
"""Entries of a feature that mean nothing."""
WIDTH = len(SHAPES) + len(COLOURS) + NOISE
LABELS = len(SHAPES) * len(COLOURS)


def region_table(pictures: Sequence[Picture], seed: int = 0) -> RegionTable:
    """What a good detector finds: shape and colour side by side, a little noise, the box."""
    generator = np.random.default_rng(seed)
    features, boxes, labels, lengths = [], [], [], []
    for picture in pictures:
        for placed, region in zip(picture.scene.things, picture.regions(), strict=True):
            shape = SHAPES.index(placed.thing.shape)
            colour = COLOURS.index(placed.thing.true_colour)
            row = 0.1 * generator.standard_normal(WIDTH)
            row[shape] += 1
            row[len(SHAPES) + colour] += 1
            features.append(row)
            boxes.append(region.box)
            labels.append(shape * len(COLOURS) + colour)
        lengths.append(len(picture.scene.things))
    return RegionTable(
        torch.tensor(np.array(features), dtype=torch.float32),
        torch.tensor(boxes, dtype=torch.float32),
        torch.tensor(labels),
        np.array(lengths),
    )


def only(pictures: Sequence[Picture], *languages: str) -> list[Record]:
    """The pictures' records with captions in these languages alone."""
    return [
        replace(record, captions={name: record.captions[name] for name in languages})
        for record in (picture.record() for picture in pictures)
    ]


def toy_dictionary(target: str) -> Dictionary:
    """From English; every inflection is a translation."""
    entries = dictionary("en", target)
    return Dictionary((word, there) for word, found in entries.items() for there in found)


def one_thing_each(pictures: Sequence[Picture], *languages: str) -> list[Record]:
    """The pictures described by their first thing alone, such as "red circle"."""
    return [
        Record(
            captions={name: (picture.regions(name)[0].label or "",) for name in languages},
            id=picture.key,
        )
        for picture in pictures
    ]


def first_regions(pictures: Sequence[Picture]) -> RegionTable:
    """The first thing of each picture alone."""
    whole = region_table(pictures)
    rows = torch.from_numpy(whole.starts)
    features, boxes, labels = whole.features[rows], whole.boxes[rows], whole.labels[rows]
    return RegionTable(features, boxes, labels, np.ones(len(rows), np.int64))

"""The toy dataset as detected regions: one per thing, with features, box and label.

`region_table` holds them in memory; `write_region_data` writes a whole corpus to disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

from helpers.text_encoder import save_text_encoder
from polyglance.batches.regions import RegionTable
from polyglance.data.toy import Picture, Thing, ToyDataset, dictionary
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.semantics import COLOURS, SHAPES
from polyglance.records import Record, write_manifest
from polyglance.text.dictionaries import Dictionary
from polyglance.vision.store import StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans

NOISE = 8
"""Feature dimensions that hold noise only."""
WIDTH = len(SHAPES) + len(COLOURS) + NOISE
LABELS = len(SHAPES) * len(COLOURS)


def region_table(pictures: Sequence[Picture], seed: int = 0) -> RegionTable:
    """Build what a good detector returns: noisy one-hot shape and colour, the box, the label."""
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


def records_in(pictures: Sequence[Picture], *languages: str) -> list[Record]:
    """Return the pictures' records with captions in these languages only."""
    return [
        replace(record, captions={name: record.captions[name] for name in languages})
        for record in (picture.record() for picture in pictures)
    ]


def toy_dictionary(target: str, source: str = "en") -> Dictionary:
    """Build a dictionary; every inflected form counts as a translation."""
    entries = dictionary(source, target)
    return Dictionary(
        (word, translation) for word, found in entries.items() for translation in found
    )


def first_region_records(pictures: Sequence[Picture], *languages: str) -> list[Record]:
    """Return records whose only caption is the label of the first thing, such as "red circle"."""
    return [
        Record(
            captions={name: (picture.regions(name)[0].label or "",) for name in languages},
            id=picture.key,
        )
        for picture in pictures
    ]


def first_regions(pictures: Sequence[Picture]) -> RegionTable:
    """Return the region of each picture's first thing only."""
    whole = region_table(pictures)
    rows = torch.from_numpy(whole.starts)
    features, boxes, labels = whole.features[rows], whole.boxes[rows], whole.labels[rows]
    return RegionTable(features, boxes, labels, np.ones(len(rows), np.int64))


def write_region_data(folder: Path, languages: Sequence[str], counts: Mapping[str, int]) -> None:
    """Write a manifest per split, a feature store, label names, dictionaries and a text encoder.

    ``folder`` gets ``{split}.jsonl``, ``regions/``, ``labels.tsv``, ``dictionaries/`` and
    ``encoder/``.
    """
    dataset = ToyDataset(seed=0, languages=languages, captions_per_language=1)
    pictures = {split: list(dataset.pictures(n, split)) for split, n in counts.items()}  # type: ignore[arg-type]
    all_pictures = [picture for some in pictures.values() for picture in some]
    for split, some in pictures.items():
        records = [
            replace(record, image=f"{record.id}.png", questions=(), regions=())
            for record in records_in(some, *languages)
        ]
        write_manifest(folder / f"{split}.jsonl", records)
    write_region_store(folder / "regions", all_pictures)
    things = [Thing(shape, colour) for shape, colour in product(SHAPES, COLOURS)]
    names = [[GRAMMARS[code].join(GRAMMARS[code].label(t)) for code in languages] for t in things]
    lines = ["\t".join(languages), *("\t".join(row) for row in names)]
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "dictionaries").mkdir()
    for code in languages[1:]:
        for source, target in ((code, languages[0]), (languages[0], code)):
            path = folder / "dictionaries" / f"{source}-{target}.tsv"
            toy_dictionary(target, source).save(path)
    captions = [
        text
        for r in records_in(all_pictures, *languages)
        for c in r.captions.values()
        for text in c
    ]
    save_text_encoder(folder / "encoder", [*captions, *(name for row in names for name in row)])


def write_region_store(folder: Path, pictures: Sequence[Picture]) -> None:
    """Write a feature store of detected regions, each with its two most probable labels."""
    keys = [picture.key for picture in pictures]
    info = StoreInfo({"backbone": "toy"}, WIDTH, "float16", 2, 16, len(keys), hash_keys(keys))
    table = region_table(pictures)
    tokens = {}
    for number, key in enumerate(keys):
        regions, labels = table.take(np.array([number]))
        features = regions.features.numpy()
        ids = np.stack([labels.numpy(), (labels.numpy() + 1) % LABELS], axis=1)
        tokens[key] = VisualTokens(
            features=features,
            boxes=regions.boxes.numpy(),
            global_feature=features.mean(0),
            label_ids=ids.astype(np.uint16),
            label_probs=np.tile(np.array([[0.9, 0.1]], np.float16), (len(features), 1)),
            spans=zero_spans(len(features)),
        )
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        writer.write(number, [tokens[key] for key in writer.keys_of(number)])
    writer.finish()

"""The toy world as a corpus of regions on disk: manifests, a feature store, names, an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from polyglance.data.toy import Picture, Thing, ToyWorld, dictionary
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.meaning import COLOURS, SHAPES
from polyglance.records import write_manifest
from polyglance.text.dictionaries import Dictionary
from polyglance.vision.store import StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, no_spans
from toy_corpus import make_encoder
from toy_regions import LABELS, WIDTH, only, region_table


def make_region_data(folder: Path, languages: Sequence[str], counts: Mapping[str, int]) -> None:
    """``train.jsonl`` and the like, ``regions``, ``labels.tsv``, ``dictionaries``, ``encoder``."""
    world = ToyWorld(seed=0, languages=languages, captions=1)
    pictures = {split: list(world.pictures(n, split)) for split, n in counts.items()}  # type: ignore[arg-type]
    everything = [picture for some in pictures.values() for picture in some]
    for split, some in pictures.items():
        records = [
            replace(record, image=f"{record.id}.png", questions=(), regions=())
            for record in only(some, *languages)
        ]
        write_manifest(folder / f"{split}.jsonl", records)
    write_regions(folder / "regions", everything)
    things = [Thing(shape, colour) for shape, colour in product(SHAPES, COLOURS)]
    names = [[GRAMMARS[code].join(GRAMMARS[code].label(t)) for code in languages] for t in things]
    lines = ["\t".join(languages), *("\t".join(row) for row in names)]
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "dictionaries").mkdir()
    for code in languages[1:]:
        for source, target in ((code, languages[0]), (languages[0], code)):
            entries = dictionary(source, target)
            Dictionary((word, other) for word, found in entries.items() for other in found).save(
                folder / "dictionaries" / f"{source}-{target}.tsv"
            )
    said = [text for r in only(everything, *languages) for c in r.captions.values() for text in c]
    make_encoder(folder / "encoder", [*said, *(name for row in names for name in row)])


def write_regions(folder: Path, pictures: Sequence[Picture]) -> None:
    """A feature store of what a detector finds, with its two likeliest labels."""
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
            whole=features.mean(0),
            label_ids=ids.astype(np.uint16),
            label_probs=np.tile(np.array([[0.9, 0.1]], np.float16), (len(features), 1)),
            spans=no_spans(len(features)),
        )
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        writer.write(number, [tokens[key] for key in writer.keys_of(number)])
    writer.finish()

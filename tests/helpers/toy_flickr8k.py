"""A toy Flickr8k as our own tables of M3P and UC2 read it.

Images are of twelve classes, such as red dogs, with two regions each and a caption in English and
in German.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.text_encoder import save_text_encoder
from polyglance.export import split_model
from polyglance.recipes import dictionaries
from polyglance.records import Record, write_manifest
from polyglance.vision import extraction
from polyglance.vision.store import StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans

COLOURS = {"red": "rot", "blue": "blau", "green": "grün", "white": "weiß"}
ANIMALS = {"dog": "hund", "cat": "katze", "bird": "vogel"}
CLASSES = [(colour, animal) for colour in COLOURS for animal in ANIMALS]


def write_toy_flickr8k(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Write ``data/flickr8k``, ``data/text`` and ``encoder``.

    The data has no features: they are written where they would be extracted.

    Args:
        folder: Where to write.
        monkeypatch: Replaces the extraction of features and the search for dictionaries.

    Returns:
        Changes to the recipes of UC2 and M3P that make every run short.
    """
    monkeypatch.setattr(dictionaries, "find_dictionaries", lambda _: {})  # to read: 10 s
    data = folder / "data" / "flickr8k"
    keys = []
    for split, count in {"train": 36, "val": 12, "test": 12}.items():
        records = [_record(f"{split}-{number}", *CLASSES[number % 12]) for number in range(count)]
        write_manifest(data / f"{split}.jsonl", records)
        keys += [str(record.image) for record in records]
    monkeypatch.setattr(extraction, "extract", lambda _, out, *a, **k: _write_regions(out, keys))
    monkeypatch.setattr(split_model, "split_model", _split_model)
    texts = [Record(captions=_record("", *kind).captions) for kind in CLASSES * 3]
    write_manifest(folder / "data" / "text" / "multi30k-parallel.jsonl.gz", texts)
    captions = [text for record in texts for some in record.captions.values() for text in some]
    save_text_encoder(folder / "encoder", captions)
    names = [f"{c} {a}\t{COLOURS[c]} {ANIMALS[a]}" for c, a in CLASSES]
    (data / "labels.tsv").write_text("\n".join(["en\tde", *names]) + "\n", encoding="utf-8")
    return (
        f"encoder={folder / 'encoder'}", "pretraining.batch=4", "pretraining.steps=2",
        "word_head={batch: 4, steps: 1}", "pretraining.itm_only_steps=0", "pretraining.warmup=0",
        "pretraining.learning_rate=1e-2", "fine_tuning.batch=4",
        "fine_tuning.hard_negative_pool=0", "loop.steps=2", "loop.learning_rate=1e-9",
        "loop.precision=float32",
    )  # fmt: skip


def _split_model(_: object, out: Path) -> split_model.SplitModel:
    """Write folders like those of the default model's two encoders."""
    for folder in (out / "text", out / "image_backbone"):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    return split_model.SplitModel(out / "text", out / "image_backbone", None)


def _record(name: str, colour: str, animal: str) -> Record:
    captions = {
        "en": (f"a {colour} {animal}",),
        "de": (f"ein {COLOURS[colour]} {ANIMALS[animal]}",),
    }
    return Record(image=f"images/{name}.png", captions=captions)


def _write_regions(folder: Path, keys: list[str]) -> None:
    """Write a feature store of two regions per image, which encode its class."""
    info = StoreInfo(
        {"backbone": "toy"}, len(CLASSES), "float16", 1, 16, len(keys), hash_keys(keys)
    )
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        writer.write(number, [_regions(key) for key in writer.keys_of(number)])
    writer.finish()


def _regions(key: str) -> VisualTokens:
    class_id = int(Path(key).stem.rpartition("-")[2]) % len(CLASSES)
    features = np.stack([np.eye(len(CLASSES))[class_id], np.ones(len(CLASSES))]).astype(np.float32)
    return VisualTokens(
        features=features,
        boxes=np.array([[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]], np.float32),
        global_feature=features.mean(0),
        label_ids=np.array([[class_id], [0]], np.uint16),
        label_probs=np.ones((2, 1), np.float16),
        spans=zero_spans(2),
    )

"""The benchmarks of M3P and UC2 as commands, on a small world whose folder nobody may write into.

Twelve kinds of pictures, such as red dogs, seen as two regions each, with a caption in
English and one in German.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from polyglance.export import split_model
from polyglance.recipes import dictionaries
from polyglance.records import Record, write_manifest
from polyglance.vision import extraction
from polyglance.vision.store import StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, no_spans
from toy_corpus import make_encoder

COLOURS = {"red": "rot", "blue": "blau", "green": "grün", "white": "weiß"}
ANIMALS = {"dog": "hund", "cat": "katze", "bird": "vogel"}
KINDS = [(colour, animal) for colour in COLOURS for animal in ANIMALS]


class PairCommand:
    """A benchmark at work."""

    def __init__(
        self,
        benchmark: Any,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        changes: Sequence[str] = (),
    ) -> None:
        """``changes`` in the recipe come beside those that make any run a short one."""
        self.benchmark, self.folder, self.monkeypatch = benchmark, folder, monkeypatch
        self.changes = (
            f"encoder={folder / 'encoder'}", "pretraining.batch=4", "pretraining.steps=2",
            "pretraining.matching_first=0", "pretraining.warmup=0",
            "pretraining.learning_rate=1e-2", "fine_tuning.batch=4",
            "fine_tuning.lookalikes=0", "loop.steps=2", "loop.learning_rate=1e-9",
            "loop.precision=float32", *changes,
        )  # fmt: skip
        monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
        monkeypatch.setattr(dictionaries, "find_dictionaries", lambda _: {})  # to read: 10 s
        data = folder / "data" / "flickr8k"
        keys = []
        for split, count in {"train": 36, "val": 12, "test": 12}.items():
            records = [_record(f"{split}-{number}", *KINDS[number % 12]) for number in range(count)]
            write_manifest(data / f"{split}.jsonl", records)
            keys += [str(record.image) for record in records]
        # Features are looked for in vain; to extract them is to write these.
        monkeypatch.setattr(
            extraction, "extract", lambda _, out, *a, **k: _write_regions(out, keys)
        )
        monkeypatch.setattr(split_model, "unpack", _unpack)
        texts = [Record(captions=_record("", *kind).captions) for kind in KINDS * 3]
        write_manifest(folder / "data" / "text" / "multi30k-parallel.jsonl.gz", texts)
        said = [text for record in texts for some in record.captions.values() for text in some]
        make_encoder(folder / "encoder", said)
        names = [f"{c} {a}\t{COLOURS[c]} {ANIMALS[a]}" for c, a in KINDS]
        (data / "labels.tsv").write_text("\n".join(["en\tde", *names]) + "\n", encoding="utf-8")
        document = benchmark.document.read_text(encoding="utf-8")
        (folder / "doc.md").write_text(document, encoding="utf-8")

    def __call__(self, *more: object) -> None:
        folder = self.folder
        options = [
            "--data", folder / "data", "--runs", folder / "runs", "--cache", folder / "cache",
            "--out", folder, "--document", folder / "doc.md", "--seeds", 0, "--test-on", 6,
            *(part for change in self.changes for part in ("--set", change)), *more,
        ]  # fmt: skip
        self.monkeypatch.setattr(sys, "argv", ["benchmark.py", *map(str, options)])
        self.benchmark.main()

    def written(self) -> dict[str, int]:
        """When the report of each run was written."""
        runs = self.folder / "runs"
        return {path.parts[-3]: path.stat().st_mtime_ns for path in runs.rglob("report.json")}

    def results(self) -> Any:
        """What is known of each run."""
        path = self.folder / f"{self.benchmark.results}.json"
        return json.loads(path.read_text(encoding="utf-8"))["runs"]

    def page(self) -> str:
        """The document as it was filled."""
        return (self.folder / "doc.md").read_text(encoding="utf-8")

    def weights(self, run: str, stage: str) -> dict[str, np.ndarray]:
        """What a stage ended with."""
        folder = self.folder / "runs" / run / "0" / stage
        return load_file(max(folder.rglob("model.safetensors")))


def _unpack(_: object, out: Path) -> split_model.Towers:
    """Folders as of the default model's towers; what is in them nobody reads."""
    for folder in (out / "text", out / "pictures"):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    return split_model.Towers(out / "text", out / "pictures", None)


def _record(name: str, colour: str, animal: str) -> Record:
    captions = {
        "en": (f"a {colour} {animal}",),
        "de": (f"ein {COLOURS[colour]} {ANIMALS[animal]}",),
    }
    return Record(image=f"images/{name}.png", captions=captions)


def _write_regions(folder: Path, keys: list[str]) -> None:
    """A feature store of two regions a picture, which tell colour and animal."""
    info = StoreInfo({"backbone": "toy"}, len(KINDS), "float16", 1, 16, len(keys), hash_keys(keys))
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        writer.write(number, [_regions(key) for key in writer.keys_of(number)])
    writer.finish()


def _regions(key: str) -> VisualTokens:
    kind = int(Path(key).stem.rpartition("-")[2]) % len(KINDS)
    features = np.stack([np.eye(len(KINDS))[kind], np.ones(len(KINDS))]).astype(np.float32)
    return VisualTokens(
        features=features,
        boxes=np.array([[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]], np.float32),
        whole=features.mean(0),
        label_ids=np.array([[kind], [0]], np.uint16),
        label_probs=np.ones((2, 1), np.float16),
        spans=no_spans(2),
    )

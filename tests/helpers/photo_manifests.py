"""Manifests of four photographs of the demo, with a caption and a question each."""

from __future__ import annotations

import json
from pathlib import Path

from polyglance.demo.photographs import FOLDER

TEXTS = ("a cup of coffee", "ein Hund am Strand", "a boat on the water", "一座桥")


def write_photo_manifests(folder: Path, *names: str) -> None:
    """Write ``NAME.jsonl`` for each name, with copies of the photographs of its own."""
    for name in names:  # images of tests are left out of training, by their names
        lines = []
        for path, text in zip(sorted(FOLDER.glob("*.webp"))[:4], TEXTS, strict=True):
            image = f"{name}-{path.name}"
            (folder / image).write_bytes(path.read_bytes())
            lines += [
                {"image": image, "captions": {"en": [text]}},
                {"image": image, "question": "what is it?", "answer": "cat", "language": "en"},
            ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))

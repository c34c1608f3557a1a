"""An encoder without a network whose pictures and captions find each other most of the time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyglance.encoders import Picture
from polyglance.encoders.inputs import open_picture
from polyglance.records import Record, write_manifest


class NoisyEncoder:
    """Encode pictures by the number in their pixels, and captions by the number in their words.

    A caption's vector is that of its picture with noise of its own, so that no two are equal.
    """

    name, width, fingerprint = "noisy", 8, "fingerprint of noisy vectors"

    def encode_texts(
        self, texts: Sequence[str], *, language: str | None = None
    ) -> NDArray[np.float32]:
        rows = []
        for text in texts:
            number, caption = map(int, re.findall(r"\d+", text))
            noise = np.random.default_rng([number, caption, len(text)]).normal(size=self.width)
            rows.append(_vector(number) + 0.8 * noise)
        return _normalise(rows)

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        pixels = [open_picture(picture).getpixel((0, 0)) for picture in pictures]
        return _normalise([_vector(pixel[0]) for pixel in pixels])  # type: ignore[index]


def write_captioned_pictures(folder: Path, count: int, captions: int = 2) -> Path:
    """Write numbered pictures with captions in English and German; return their manifest."""
    records = []
    for number in range(count):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
        texts = {
            "en": tuple(f"picture {number}, caption {n}" for n in range(captions)),
            "de": tuple(f"Bild {number}, Beschreibung {n}" for n in range(captions)),
        }
        records.append(Record(image=f"{number}.png", captions=texts))
    write_manifest(folder / "photos.jsonl", records)
    return folder / "photos.jsonl"


def _vector(number: int) -> NDArray[np.float64]:
    return np.random.default_rng(number).normal(size=NoisyEncoder.width)


def _normalise(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    table = np.array(rows, np.float32)
    unit: NDArray[np.float32] = table / np.linalg.norm(table, axis=1, keepdims=True)
    return unit

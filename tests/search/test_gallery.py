from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from polyglance.encoders import Picture
from polyglance.search import gallery
from polyglance.search.gallery import Gallery


class Colours:
    """Encodes an image as its mean colour."""

    name = "colours"
    width = 3
    fingerprint = "colours"

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [[float(text == colour) for colour in ("red", "green", "blue")] for text in texts]
        return np.array(rows, np.float32)

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        self.batch_sizes.append(len(pictures))
        rows = np.array([np.asarray(picture).mean((0, 1)) for picture in pictures], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def save(folder: Path, **colours: tuple[int, int, int]) -> list[Path]:
    paths = [folder / f"{name}.png" for name in colours]
    for path, colour in zip(paths, colours.values(), strict=True):
        Image.new("RGB", (20, 10), colour).save(path)
    return paths


def test_the_nearest_come_first_with_their_cosines(tmp_path: Path) -> None:
    paths = save(tmp_path, rose=(200, 150, 0), leaf=(0, 255, 0), brick=(255, 0, 0))
    encoder = Colours()
    opened = Gallery.encode(paths, encoder)
    [query] = encoder.encode_texts(["red"])
    results = opened.search(query, 2)
    assert [path.stem for path, _ in results] == ["brick", "rose"]
    assert [score for _, score in results] == pytest.approx([1.0, 0.8])
    assert len(opened.search(query, 10)) == 3


def test_equal_pictures_stay_in_their_order(tmp_path: Path) -> None:
    paths = save(tmp_path, a=(9, 9, 9), b=(9, 9, 9), c=(9, 9, 9))
    results = Gallery.encode(paths, Colours()).search(np.ones(3, np.float32), 3)
    assert [path for path, _ in results] == paths


def test_bad_files_are_named_and_the_others_keep_their_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "BATCH_SIZE", 2)
    paths = save(tmp_path, a=(255, 0, 0), b=(0, 255, 0), c=(0, 0, 255), d=(255, 0, 0))
    for name in ("x.jpg", "y.jpg"):
        (tmp_path / name).write_bytes(b"no picture")
    all_paths = [
        paths[0],
        tmp_path / "x.jpg",
        tmp_path / "gone.png",
        tmp_path / "y.jpg",
        *paths[1:],
    ]
    encoder = Colours()
    opened = Gallery.encode(all_paths, encoder)
    assert opened.paths == paths
    assert opened.vectors.argmax(1).tolist() == [0, 1, 2, 0]
    assert encoder.batch_sizes == [1, 2, 1]  # a batch of bad files is not encoded
    assert len(opened.bad) == 3
    for sentence, name in zip(opened.bad, ("x.jpg", "gone.png", "y.jpg"), strict=True):
        assert name in sentence


def test_a_gallery_without_files_is_empty(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"")
    opened = Gallery.encode([tmp_path / "x.jpg"], Colours())
    assert (opened.paths, len(opened.vectors), len(opened.bad)) == ([], 0, 1)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.errors import PolyglanceError
from polyglance.vision.extraction import extract
from polyglance.vision.pictures import Square
from polyglance.vision.shard_encoding import ExtractionSettings
from polyglance.vision.test_time_augmentation import crop_margin, crops

WHOLE = (0.0, 0.0, 1.0, 1.0)


def numbered(size: int) -> Square:
    pixels = np.arange(size * size * 3, dtype=np.int64) % 251
    return Square(pixels.reshape(size, size, 3).astype(np.uint8), WHOLE)


def test_ten_crops_are_corners_centre_and_their_mirror_images() -> None:
    assert crop_margin(14, "ten") == 2
    square = numbered(16)
    views = [view.pixels for view in crops(square, 14, "ten")]
    assert len(views) == 10
    for number, (top, left) in enumerate([(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]):
        crop = square.pixels[top : top + 14, left : left + 14]
        assert np.array_equal(views[2 * number], crop)
        assert np.array_equal(views[2 * number + 1], crop[:, ::-1])


def test_one_and_mirror_views() -> None:
    square = numbered(8)
    assert crops(square, 8, "one") == [square]
    first, second = crops(square, 8, "mirror")
    assert np.array_equal(first.pixels, square.pixels)
    assert np.array_equal(second.pixels[:, ::-1], square.pixels)


def test_several_views_are_averaged_into_one_vector(tmp_path: Path) -> None:
    settings = ExtractionSettings(views="ten", labels=0)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    with pytest.raises(PolyglanceError, match="set grid to 1 and labels to 0"):
        extract(tmp_path, tmp_path / "store", settings)
    wrong = ExtractionSettings(views="eleven", grid=1, labels=0)  # type: ignore[arg-type]
    with pytest.raises(PolyglanceError, match="views must be one or mirror or ten"):
        extract(tmp_path, tmp_path / "store", wrong)

"""Multi30K as in github.com/multi30k/dataset, and bottom-up attention's regions of its images.

Task 2 calls the 1,000 test images ``test_2016``, task 1 ``test_2016_flickr``. Task 2's image
lists are ``train_images.txt`` and the like, task 1's ``train.txt``. Captions are gzipped.
"""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

from helpers.published.sentences import rows, sentence

IMAGES = {
    "train": ("1000092795.jpg", "10002456.jpg", "1000268201.jpg", "1000344755.jpg"),
    "val": ("1018148011.jpg", "1029450589.jpg", "1029737941.jpg"),
    "test": ("1007129816.jpg", "1009434119.jpg", "101362133.jpg", "102617084.jpg"),
}
FLICKR_2017 = ("1002378.jpg", "1003478.jpg")
MSCOCO_2017 = ("COCO_val2014_000000157771.jpg#2282", "COCO_train2014_000000199602.jpg#1131")
WIDTH = 8


def write_multi30k(folder: Path) -> Path:
    """Write ``data/task1`` and ``data/task2`` below a folder, and return ``data``."""
    data = folder / "data"
    splits = {
        "train": IMAGES["train"],
        "val": IMAGES["val"],
        "test_2016_flickr": IMAGES["test"],
        "test_2017_flickr": FLICKR_2017,
        "test_2017_mscoco": MSCOCO_2017,
    }
    for split, images in splits.items():
        _write(data / "task1" / "image_splits" / f"{split}.txt", images)
        for language in ("en", "de", "fr", "cs"):
            if language != "cs" or "2017" not in split:  # Czech was added for 2016's and 2018's
                lines = [sentence(language, number) for number in range(len(images))]
                _write(data / "task1" / "raw" / f"{split}.{language}.gz", lines)
                _write(data / "task1" / "tok" / f"{split}.lc.norm.tok.{language}", lines)
    for split, images in (
        ("train", IMAGES["train"]),
        ("val", IMAGES["val"]),
        ("test_2016", IMAGES["test"]),
    ):
        _write(data / "task2" / "image_splits" / f"{split}_images.txt", images)
        for language in ("en", "de"):
            for caption in range(5):
                lines = [sentence(language, number + caption) for number in range(len(images))]
                _write(data / "task2" / "raw" / f"{split}.{caption + 1}.{language}.gz", lines)
                name = f"{split}.lc.norm.tok.{caption + 1}.{language}"
                _write(data / "task2" / "tok" / name, lines)
    _write(data / "task2" / "image_splits" / "test_2017_images.txt", FLICKR_2017)
    return data


def write_regions(path: Path, width: int = WIDTH) -> Path:
    """Write regions of all images as bottom-up attention publishes them: one TSV line an image."""

    def encoded(array: object) -> str:
        return base64.b64encode(array.tobytes()).decode()  # type: ignore[attr-defined]

    lines = []
    for image in (image for images in IMAGES.values() for image in images):
        boxes = rows(image, 3, 4)
        boxes[:, :2], boxes[:, 2:] = 10, 90
        fields = (image.removesuffix(".jpg"), "100", "100", "3")
        lines.append("\t".join([*fields, encoded(boxes), encoded(rows(image, 3, width))]))
    _write(path, lines)
    return path


def _write(path: Path, lines: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()  # type: ignore[attr-defined]
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)

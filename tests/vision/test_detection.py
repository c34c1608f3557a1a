from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from helpers.small_detector import package_weights, write_package
from polyglance import weights
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.detection import Detector, open_detector
from polyglance.vision.labels import object_names
from polyglance.weights.ssdlite import convert


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Detector:
    folder = tmp_path_factory.mktemp("detector")
    convert(write_package(folder / "p.tgz", package_weights()), folder)
    return open_detector(str(folder), min_score=0.05)


def iou(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Intersection over union of two boxes."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    intersection = max(across, 0) * max(down, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return float(intersection / (sum(areas) - intersection))


def reference_suppression(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], min_score: float, max_objects: int
) -> list[object]:
    """Non-maximum suppression in a loop: (class id, anchor) in decreasing order of score."""
    candidates = sorted(
        (
            (-float(scores[anchor, label]), anchor, label)
            for anchor, label in np.argwhere(scores >= min_score).tolist()
            if object_names()[label] is not None
        ),
    )
    selected: list[tuple[float, int, int]] = []
    for score, anchor, label in candidates:
        if all(k != label or iou(boxes[a], boxes[anchor]) <= 0.5 for _, a, k in selected):
            selected.append((score, anchor, label))
        if len(selected) == max_objects:
            break
    return [(label, anchor) for _, anchor, label in selected]


@torch.no_grad()
def test_detections_equal_non_maximum_suppression_in_a_loop(detector: Detector) -> None:
    pixels = np.random.default_rng(1).integers(256, size=(2, 300, 300, 3), dtype=np.uint8)
    detections = detector.detect(pixels)
    scaled = torch.from_numpy(pixels).float() / 127.5 - 1
    boxes, scores = detector.network(scaled.permute(0, 3, 1, 2))
    for number, objects in enumerate(detections):
        expected = reference_suppression(
            boxes[number].numpy(), scores[number].numpy(), 0.05, detector.max_objects
        )
        assert 3 < len(expected) < (scores[number] >= 0.05).sum()
        pairs = [
            (int(label), int(np.argmin(np.abs(boxes[number].numpy() - box).sum(1))))
            for label, box in zip(objects.class_ids, objects.boxes, strict=True)
        ]
        assert pairs == expected
        assert (np.diff(objects.scores) <= 0).all()
        assert len(objects) == len(objects.class_ids)


def test_class_names_are_those_of_coco(detector: Detector) -> None:
    assert len(detector.class_names) == 90
    assert sum(name is not None for name in detector.class_names) == 80
    assert [detector.class_names[label] for label in (0, 17, 23, 89)] == [
        "person", "dog", "zebra", "toothbrush",
    ]  # fmt: skip


def test_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="resnet-50 is not a detector"):
        open_detector("resnet-50")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="holds no readable weights"):
        open_detector(str(tmp_path))


@pytest.mark.real_data
def test_real_weights_detect_real_zebras() -> None:
    ready = {s.entry.name for s in weights.available() if s.state == "ready"}
    if "ssdlite-mobilenet-v2" not in ready or "POLYGLANCE_DATA" not in os.environ:
        pytest.skip("needs the converted detector, and research data")
    detector = open_detector(min_score=0.3)
    names = {}
    for name in ("000000000154", "000000000144", "000000000312"):
        picture = Image.open(Path(os.environ["POLYGLANCE_DATA"], "vqa/images", f"{name}.webp"))
        pixels = np.asarray(picture.convert("RGB").resize((300, 300)))[None]
        names[name] = [
            detector.class_names[label] for label in detector.detect(pixels)[0].class_ids
        ]
    assert names["000000000154"] == ["zebra"] * 3
    assert names["000000000144"] == ["giraffe"] * 2
    assert names["000000000312"] == ["elephant"] * 4

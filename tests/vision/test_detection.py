from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from polyglance import weights
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.detection import Detector, open_detector
from polyglance.vision.labels import object_names
from polyglance.weights.ssdlite import convert
from small_detectors import package_weights, write_package


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Detector:
    folder = tmp_path_factory.mktemp("detector")
    convert(write_package(folder / "p.tgz", package_weights()), folder)
    return open_detector(str(folder), least=0.05)


def share(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """What two boxes share of all that they cover."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    both = max(across, 0) * max(down, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return float(both / (sum(areas) - both))


def slowly(
    boxes: NDArray[np.float32], sure: NDArray[np.float32], least: float, most: int
) -> list[object]:
    """The surest first of what has a name, and none that overlaps with a surer one of its kind."""
    everything = sorted(
        (
            (-float(sure[place, kind]), place, kind)
            for place, kind in np.argwhere(sure >= least).tolist()
            if object_names()[kind] is not None
        ),
    )
    kept: list[tuple[float, int, int]] = []
    for score, place, kind in everything:
        if all(k != kind or share(boxes[p], boxes[place]) <= 0.5 for _, p, k in kept):
            kept.append((score, place, kind))
        if len(kept) == most:
            break
    return [(kind, place) for _, place, kind in kept]


@torch.no_grad()
def test_each_object_is_found_once(detector: Detector) -> None:
    pixels = np.random.default_rng(1).integers(256, size=(2, 300, 300, 3), dtype=np.uint8)
    found = detector.find(pixels)
    shares = torch.from_numpy(pixels).float() / 127.5 - 1
    boxes, sure = detector.network(shares.permute(0, 3, 1, 2))
    for number, objects in enumerate(found):
        expected = slowly(boxes[number].numpy(), sure[number].numpy(), 0.05, detector.most)
        assert 3 < len(expected) < (sure[number] >= 0.05).sum()
        places = [
            (int(kind), int(np.argmin(np.abs(boxes[number].numpy() - box).sum(1))))
            for kind, box in zip(objects.kinds, objects.boxes, strict=True)
        ]
        assert places == expected
        assert (np.diff(objects.scores) <= 0).all()
        assert len(objects) == len(objects.kinds)


def test_names_belong_to_kinds(detector: Detector) -> None:
    assert len(detector.names) == 90
    assert sum(name is not None for name in detector.names) == 80
    assert [detector.names[kind] for kind in (0, 17, 23, 89)] == [
        "person", "dog", "zebra", "toothbrush",
    ]  # fmt: skip


def test_what_is_no_detector_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="resnet-50 finds no objects"):
        open_detector("resnet-50")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="holds no weights that can be read"):
        open_detector(str(tmp_path))


@pytest.mark.real_data
def test_real_weights_find_real_zebras() -> None:
    ready = {s.entry.name for s in weights.available() if s.state == "ready"}
    if "ssdlite-mobilenet-v2" not in ready or "POLYGLANCE_DATA" not in os.environ:
        pytest.skip("needs the converted detector, and research data")
    detector = open_detector(least=0.3)
    found = {}
    for name in ("000000000154", "000000000144", "000000000312"):
        picture = Image.open(Path(os.environ["POLYGLANCE_DATA"], "vqa/images", f"{name}.webp"))
        pixels = np.asarray(picture.convert("RGB").resize((300, 300)))[None]
        found[name] = [detector.names[kind] for kind in detector.find(pixels)[0].kinds]
    assert found["000000000154"] == ["zebra"] * 3
    assert found["000000000144"] == ["giraffe"] * 2
    assert found["000000000312"] == ["elephant"] * 4

"""Object tags: a detector's classes and counts as words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.small_detector import package_weights, write_package
from polyglance.cross_encoders.object_tags import ObjectTagger, ObjectTagsConfig, append_tags
from polyglance.errors import PolyglanceError
from polyglance.vision.detection import Detections
from polyglance.weights.ssdlite import convert


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("detector")
    convert(write_package(path / "p.tgz", package_weights()), path)
    return str(path)


def detections(*objects: tuple[int, float]) -> Detections:
    class_ids, scores = zip(*objects, strict=True) if objects else ((), ())
    boxes = np.zeros((len(class_ids), 4), np.float32)
    return Detections(np.array(class_ids, np.int64), np.array(scores, np.float32), boxes)


def test_classes_have_counts_at_a_high_and_a_low_score(folder: str) -> None:
    tagger = ObjectTagger(ObjectTagsConfig(folder, high_score=0.5, low_score=0.2, max_classes=3))
    person, dog, zebra, cat = 0, 17, 23, 16
    objects = detections(
        (zebra, 0.9), (dog, 0.8), (zebra, 0.7), (zebra, 0.3), (dog, 0.6), (person, 0.4)
    )
    assert tagger.describe(objects) == "zebra 2 3, dog 2, person 1"
    many_classes = detections((cat, 0.9), (zebra, 0.8), (dog, 0.7), (person, 0.6))
    assert tagger.describe(many_classes) == "cat 1, zebra 1, dog 1"
    assert tagger.describe(detections((person, 0.3), (person, 0.25))) == "person 1 2"
    assert tagger.describe(detections()) == ""


def test_images_are_tagged_with_what_is_detected(folder: str, tmp_path: Path) -> None:
    tagger = ObjectTagger(ObjectTagsConfig(folder, high_score=0.3, low_score=0.05))
    pixels = np.random.default_rng(1).integers(256, size=(300, 300, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "image.png")
    (objects,) = tagger.detector.detect(pixels[None])
    expected = tagger.describe(objects)
    assert expected
    assert tagger.tag([tmp_path / "image.png", image]) == [expected, expected]


def test_tags_follow_the_question() -> None:
    assert append_tags("How many?", "dog 2") == "How many? dog 2"
    assert append_tags("How many?", "") == "How many?"


def test_contradictory_settings_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="low_score is above high_score"):
        ObjectTagsConfig(high_score=0.2, low_score=0.4)

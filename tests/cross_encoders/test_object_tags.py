"""What a detector found becomes words behind a question."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.cross_encoders.object_tags import ObjectTagger, ObjectTagsConfig, append_tags
from polyglance.errors import PolyglanceError
from polyglance.vision.detection import Detections
from polyglance.weights.ssdlite import convert
from helpers.small_detector import package_weights, write_package


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("detector")
    convert(write_package(path / "p.tgz", package_weights()), path)
    return str(path)


def found(*objects: tuple[int, float]) -> Detections:
    kinds, scores = zip(*objects, strict=True) if objects else ((), ())
    boxes = np.zeros((len(kinds), 4), np.float32)
    return Detections(np.array(kinds, np.int64), np.array(scores, np.float32), boxes)


def test_kinds_are_counted_surely_and_perhaps(folder: str) -> None:
    teller = ObjectTagger(ObjectTagsConfig(folder, sure=0.5, unsure=0.2, most=3))
    person, dog, zebra, cat = 0, 17, 23, 16
    seen = found((zebra, 0.9), (dog, 0.8), (zebra, 0.7), (zebra, 0.3), (dog, 0.6), (person, 0.4))
    assert teller.words(seen) == "zebra 2 3, dog 2, person 1"
    more = found((cat, 0.9), (zebra, 0.8), (dog, 0.7), (person, 0.6))
    assert teller.words(more) == "cat 1, zebra 1, dog 1"
    assert teller.words(found((person, 0.3), (person, 0.25))) == "person 1 2"
    assert teller.words(found()) == ""


def test_pictures_are_told_by_what_the_detector_finds(folder: str, tmp_path: Path) -> None:
    teller = ObjectTagger(ObjectTagsConfig(folder, sure=0.3, unsure=0.05))
    pixels = np.random.default_rng(1).integers(256, size=(300, 300, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "picture.png")
    (objects,) = teller.detector.detect(pixels[None])
    expected = teller.words(objects)
    assert expected
    assert teller.tag([tmp_path / "picture.png", picture]) == [expected, expected]


def test_a_question_is_read_with_it() -> None:
    assert append_tags("How many?", "dog 2") == "How many? dog 2"
    assert append_tags("How many?", "") == "How many?"


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="unsure is above sure"):
        ObjectTagsConfig(sure=0.2, unsure=0.4)

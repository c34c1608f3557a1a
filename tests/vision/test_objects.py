"""A detector's objects beside grid cells, from pixels to the tables that models read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from helpers.small_detector import package_weights, write_package
from polyglance.batches.regions import RegionTable
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.recipes.uc2.early_adaptation import SoftLabels
from polyglance.records import Record, write_manifest
from polyglance.vision import backbone as backbones
from polyglance.vision.detection import Detector, open_detector
from polyglance.vision.extraction import extract
from polyglance.vision.label_mentions import count_mentions, mentions
from polyglance.vision.labels import label_languages, label_names, object_names
from polyglance.vision.objects import DetectedBackbone, mean_over_boxes
from polyglance.vision.shard_encoding import ExtractionSettings
from polyglance.vision.store import FeatureStore
from polyglance.vision.store_reader import StoreReader
from polyglance.vision.tokens import UNLABELLED
from polyglance.vision.torch_backbone import TorchBackbone

SIZE, GRID = 64, 2


class Colours(TorchBackbone):
    """Its feature map is the picture itself, in squares of 16 pixels."""

    def __init__(self) -> None:
        self.network = nn.Sequential()
        self.network.classifier = nn.Linear(3, 5)
        self.mean, self.std = torch.zeros(3), torch.ones(3)
        self.name, self.size, self.threads, self.width, self.num_classes = "colours", SIZE, 1, 3, 5
        self.fingerprint, self.device = "none", torch.device("cpu")

    def build_network(self, config: object, state: object) -> nn.Module:
        raise NotImplementedError

    def feature_map(self, pictures: np.ndarray) -> Tensor:  # type: ignore[type-arg]
        pixels = torch.from_numpy(pictures.copy()).float().permute(0, 3, 1, 2)
        return nn.functional.avg_pool2d(pixels, 16).permute(0, 2, 3, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detector")
    convert_package(folder)
    return folder


def convert_package(folder: Path) -> None:
    from polyglance.weights.ssdlite import convert

    convert(write_package(folder / "p.tgz", package_weights()), folder)


@pytest.fixture(scope="module")
def detector(folder: Path) -> Detector:
    return open_detector(str(folder), min_score=0.05, max_objects=6)


def pictures(count: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(3).integers(256, size=(count, SIZE, SIZE, 3), dtype=np.uint8)


def test_an_objects_vector_is_the_mean_of_the_map_over_its_box() -> None:
    generator = np.random.default_rng(0)
    maps = torch.from_numpy(generator.normal(size=(2, 4, 5, 3)).astype(np.float32))
    boxes = np.array([[0.25, 0.1, 0.7, 0.95], [0, 0, 1, 1], [0.2, 0.5, 0.4, 0.75]], np.float32)
    fine = maps.repeat_interleave(50, 1).repeat_interleave(40, 2).numpy()  # 200 x 200
    none = np.zeros((0, 4), np.float32)
    first, second, last = mean_over_boxes(torch.cat([maps, maps[:1]]), [boxes, boxes[1:], none])
    for picture, some, means in ((0, boxes, first), (1, boxes[1:], second)):
        for (left, top, right, bottom), mean in zip(some * 200, means, strict=True):
            rows, columns = slice(round(top), round(bottom)), slice(round(left), round(right))
            expected = fine[picture, rows, columns].mean((0, 1))
            np.testing.assert_allclose(mean, expected, atol=1e-4)
    assert last.shape == (0, 3)
    thin = np.array([[0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1]], np.float32)
    (means,) = mean_over_boxes(maps[:1], [thin])
    np.testing.assert_allclose(means[1], maps[0, 3, 4].numpy(), atol=1e-5)
    assert np.isfinite(means).all()


def test_objects_follow_unlabelled_cells(detector: Detector) -> None:
    both, backbone = DetectedBackbone(Colours(), detector), Colours()
    images = pictures(3)
    found = detector.detect(images)
    assert sum(map(len, found)) > 3
    named = [name for name in object_names() if name is not None]
    cells = backbone.encode(images, grid=GRID, labels=0)
    for tokens, plain, objects in zip(
        both.encode(images, grid=GRID, labels=4), cells, found, strict=True
    ):
        np.testing.assert_array_equal(tokens.features[: GRID * GRID], plain.features)
        np.testing.assert_array_equal(tokens.global_feature, plain.global_feature)
        assert (tokens.label_ids[: GRID * GRID] == UNLABELLED).all()
        np.testing.assert_array_equal(tokens.boxes[GRID * GRID :], objects.boxes)
        own = [named[label] for label in tokens.label_ids[GRID * GRID :, 0]]
        assert own == [object_names()[label] for label in objects.class_ids]
        assert tokens.label_probs.shape == tokens.label_ids.shape == (len(tokens), 4)
        assert (tokens.label_probs.sum(1) <= 1.001).all()
        assert len(tokens.spans) == len(tokens)


def test_extracted_objects_reach_tables_in_memory_and_on_disk(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backbones.LOADERS, "colours", lambda *_: Colours())
    for number, pixels in enumerate(pictures(5)):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    settings = ExtractionSettings(
        backbone="colours", size=SIZE, grid=GRID, labels=3, detector=str(folder), min_score=0.05,
        objects=4, dtype="float16", batch_size=2, shard_size=2,
    )  # fmt: skip
    extract(tmp_path, tmp_path / "store", settings, threads=1, quiet=True)
    store = FeatureStore(tmp_path / "store")
    keys = list(store.keys)
    lengths = [len(store[key]) for key in keys]
    assert max(lengths) <= GRID * GRID + 4
    assert sum(lengths) > len(keys) * GRID * GRID
    table = RegionTable.from_store(store, keys, prepend_global=True)
    reader = StoreReader(tmp_path / "store", threads=1)
    images = np.arange(len(keys))
    for resident in (0, 1 << 20):
        streamed = StreamedRegions([(reader, images)], prepend_global=True, resident_bytes=resident)
        (_, labels), (_, expected) = streamed.take(images), table.take(images)
        assert torch.equal(labels, expected)
        assert streamed.max_label() == table.max_label() < 80
        ids, probabilities = streamed.soft_labels(images)
        assert ((ids[:, 0] == NO_LABEL) == (labels == NO_LABEL)).all()
        assert ((probabilities[:, 0] > 0) == (labels != NO_LABEL)).all()
        soft = SoftLabels.from_stores([(store, keys)], table)
        assert torch.equal(soft.labels, ids[soft.rows])
        assert torch.equal(soft.probabilities, probabilities[soft.rows])
        assert len(soft) == int((labels != NO_LABEL).sum())
    first = 0
    for length in lengths:  # the whole picture and its cells, then objects
        own = table.labels[first : first + length + 1]
        is_object = [False] * (1 + GRID * GRID) + [True] * (length - GRID * GRID)
        assert (own != NO_LABEL).tolist() == is_object
        first += length + 1
    with pytest.raises(PolyglanceError, match="leave out labels_by and views"):
        extract(
            tmp_path,
            tmp_path / "other",
            ExtractionSettings(detector=str(folder), labels_by="efficientnet-lite0"),
        )


def test_cocos_classes_have_names_in_25_languages() -> None:
    assert len(label_languages("coco")) == 25
    english = label_names("en", "coco")
    named = [name for name in object_names() if name is not None]
    assert all(name in names for name, names in zip(named, english, strict=True))
    for language in label_languages("coco"):
        names = label_names(language, "coco")
        assert len(names) == 80
        first = [some[0] for some in names]
        assert all(first)
        assert len(set(first)) == 80, language


@pytest.mark.parametrize(
    ("language", "text", "name", "expected"),
    [
        ("en", "Two dogs run.", "dog", True),
        ("en", "A dogged man", "dog", False),
        ("en", "The traffic lights are red", "traffic light", True),
        ("en", "Light traffic", "traffic light", False),
        ("de", "Drei Hunde am Strand", "Hund", True),
        ("cs", "Muž s kočkou", "kočka", True),
        ("zh", "一只白色的小狗", "狗", True),
        ("ar", "الكلب يجري", "كلب", True),
        ("fr", "Un chaton dort", "chat", False),
    ],
)
def test_words_mention_names_in_another_form(
    language: str, text: str, name: str, expected: bool
) -> None:
    assert mentions(text, [name], language) is expected


def test_captions_that_mention_a_label_are_counted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backbones.LOADERS, "colours", lambda *_: Colours())
    Image.fromarray(pictures(1)[0]).save(tmp_path / "a.png")
    settings = ExtractionSettings(
        backbone="colours", size=SIZE, grid=1, labels=1, detector=str(folder), min_score=0.05,
        objects=2, dtype="float16",
    )  # fmt: skip
    extract(tmp_path, tmp_path / "store", settings, threads=1, quiet=True)
    store = FeatureStore(tmp_path / "store")
    label = int(store["a.png"].label_ids[1, 0])
    captions = {
        "en": [f"Here is a {label_names('en', 'coco')[label][0]}.", "Nothing of it."],
        "de": [f"Das ist: {label_names('de', 'coco')[label][0]}"],
        "xx": ["no names in it"],
    }
    records = [
        Record(image="a.png", captions={code: tuple(some) for code, some in captions.items()}),
        Record(image="other.png", captions={"en": ("not stored",)}),
    ]
    counts = count_mentions(records, store)
    assert {code: (some.captions, some.mentioning) for code, some in counts.items()} == {
        "en": (2, 1),
        "de": (1, 1),
    }
    write_manifest(tmp_path / "captions.jsonl", records)
    arguments = ["features", "mentions", str(tmp_path / "store")]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "captions.jsonl")])
    assert result.exit_code == 0, result.output
    assert "en: 50.0% of 2 captions" in result.output
    write_manifest(tmp_path / "others.jsonl", records[1:])
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "others.jsonl")])
    assert result.exit_code == 1
    assert "has no caption of a picture" in result.output

"""A dataset on disk: every file exists, has the right content, and is reproducible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.data.toy import LANGUAGES, ToyDataset, label_names, write_dataset
from polyglance.errors import PolyglanceError
from polyglance.records import read_manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy")
    written = write_dataset(path, pictures=60, clips=10, seed=3, hard_groups=2)
    assert written == {
        "train.jsonl": 48,
        "val.jsonl": 6,
        "test.jsonl": 6,
        "hard.jsonl": 16,
        "clips/train.jsonl": 8,
        "clips/val.jsonl": 1,
        "clips/test.jsonl": 1,
    }
    return path


def test_manifests_name_images_with_the_right_pixels(folder: Path) -> None:
    dataset = ToyDataset(seed=3)
    for split, count in (("train", 48), ("val", 6), ("test", 6)):
        records = list(read_manifest(folder / f"{split}.jsonl"))
        for record, picture in zip(records, dataset.pictures(count, split), strict=True):
            assert record.image is not None
            assert record == picture.record(record.image)
            with Image.open(folder / record.image) as image:
                assert np.array_equal(np.asarray(image), picture.pixels())


def test_the_hard_set_is_written_in_groups(folder: Path) -> None:
    hard = [p for group in ToyDataset(seed=3).hard_set(2) for p in group]
    records = list(read_manifest(folder / "hard.jsonl"))
    assert [r.id for r in records] == [p.key for p in hard]
    assert all(r.image and (folder / r.image).is_file() for r in records)


def test_clips_have_manifests_of_their_own(folder: Path) -> None:
    for split in ("train", "val", "test"):
        for record in read_manifest(folder / "clips" / f"{split}.jsonl"):
            assert record.video is not None
            assert (folder / "clips" / record.video).stat().st_size > 500
            assert set(record.captions) == set(LANGUAGES)


def test_dictionaries_of_every_pair_are_in_muse_format(folder: Path) -> None:
    files = sorted((folder / "dictionaries").iterdir())
    assert len(files) == 8 * 7
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            assert len(line.split(" ")) == 2, line
    lines = (folder / "dictionaries" / "en-fr.txt").read_text("utf-8").splitlines()
    assert {"green vert", "green verte", "star étoile", "stars étoiles"} <= set(lines)


def test_alignments_index_the_words_of_the_parallel_text(folder: Path) -> None:
    assert len(list((folder / "parallel").glob("*.pharaoh"))) == 8 * 7 / 2
    for name in ("en-de", "en-ja", "cs-ar"):
        texts = (folder / "parallel" / f"{name}.txt").read_text("utf-8").splitlines()
        links = (folder / "parallel" / f"{name}.pharaoh").read_text("utf-8").splitlines()
        assert len(texts) == len(links) == 48 + 8
        for text, line in zip(texts, links, strict=True):
            source, target = (side.split() for side in text.split(" ||| "))
            pairs = [tuple(map(int, pair.split("-"))) for pair in line.split()]
            assert len(pairs) >= 5
            assert all(i < len(source) and j < len(target) for i, j in pairs)


def test_labels_are_parallel(folder: Path) -> None:
    head, *rows = (
        line.split("\t") for line in (folder / "labels.tsv").read_text("utf-8").splitlines()
    )
    assert head == list(LANGUAGES)
    assert len(rows) == len(label_names("en")) == 48
    assert dict(zip(head, rows[0], strict=True))["de"] == "roter Kreis"
    assert ["red star", "roter Stern"] in [row[:2] for row in rows]


def test_the_same_seed_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path, pictures=60, clips=10, seed=3, hard_groups=2)
    files = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    for file in files:
        assert (folder / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_invalid_targets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="must be 0 or more"):
        write_dataset(tmp_path, pictures=-1)
    (tmp_path / "file").touch()
    with pytest.raises(PolyglanceError, match="cannot be written"):
        write_dataset(tmp_path / "file", pictures=1)

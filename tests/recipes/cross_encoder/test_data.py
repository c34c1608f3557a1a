"""Splits of captioned images, and the regions of their images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.toy_questions import save_image_backbone
from helpers.toy_regions import write_region_data
from polyglance.batches.order import Streaming
from polyglance.batches.regions import RegionTable
from polyglance.batches.streamed_pixels import PixelRegions
from polyglance.cross_encoders.regions import ImageBackboneConfig
from polyglance.data.tar_writer import write_tars
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.config import CaptionedImages
from polyglance.recipes.cross_encoder.data import SplitReader, bert_masking, store_keys
from polyglance.recipes.cross_encoder.streaming import StreamingConfig
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.vision.store import FeatureStore


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_region_data(folder, ("en", "de"), {"train": 6})
    return folder


@pytest.fixture(scope="module")
def tokenizer(data: Path) -> Tokenizer:
    return open_tokenizer(str(data / "encoder"))


def test_split_has_regions_and_captions_of_the_same_images(
    data: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    records = list(read_manifest(data / "train.jsonl"))
    some = [
        replace(records[0], captions={}),
        *records[1:],
        Record(captions={"en": ("no picture",)}),
    ]
    write_manifest(data / "some.jsonl", some)
    reader = SplitReader(data, tokenizer, max_text_tokens=6, max_regions=2, prepend_global=True)
    split = reader.read_eval(CaptionedImages("some.jsonl", "regions"), limit=4)
    assert split is not None
    assert len(split.records) == len(split.regions) == split.captions.num_records == 4
    # The first image has no caption and is a candidate only.
    assert set(split.captions.record_ids.tolist()) == {1, 2, 3}
    assert split.regions.lengths.tolist() == [2] * 4
    assert max(split.captions.gather(split.captions.rows_in_language("de"))[1]) <= 6
    assert "regions: 4 of 4 images have more than 2 regions" in capsys.readouterr().err
    replace(reader, max_regions=99).read_eval(CaptionedImages("some.jsonl", "regions"))
    assert not capsys.readouterr().err


def test_images_without_regions_are_named(data: Path) -> None:
    store = FeatureStore(data / "regions")
    known = next(iter(read_manifest(data / "train.jsonl")))
    with pytest.raises(PolyglanceError, match=r"no regions for 1 images, such as 'other\.png'"):
        store_keys(store, [known, Record(image="other.png", captions={})])


def test_special_tokens_never_replace_a_word(tokenizer: Tokenizer) -> None:
    masking = bert_masking(tokenizer, "toy")
    special = {tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id}
    assert masking.mask_id == tokenizer.mask_id
    assert not (special | {tokenizer.mask_id}) & set(range(*masking.words))
    assert masking.words[1] - masking.words[0] > 100


def test_image_backbone_encodes_images_of_tars_in_memory_or_while_training(
    data: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    save_image_backbone(tmp_path / "image_backbone", 64)
    records = [Record(image=f"{n}.png", captions={"en": (f"picture {n}",)}) for n in range(5)]
    for number, record in enumerate(records):
        shade = (50 * number, 20, 90)
        Image.new("RGB", (40, 30), shade).save(tmp_path / str(record.image))
    write_manifest(tmp_path / "pictures.jsonl", records)
    write_tars(tmp_path / "pictures.jsonl", tmp_path / "tars" / "p", max_images=2)
    reader = SplitReader(
        tmp_path, tokenizer, max_text_tokens=9, max_regions=99, prepend_global=True,
        image_backbone=ImageBackboneConfig(str(tmp_path / "image_backbone"), size=64, views=2),
    )  # fmt: skip
    files = CaptionedImages("pictures.jsonl")
    tars = replace(files, tars="tars/p-{000000..000002}.tar")
    on_disk = replace(reader, streaming=StreamingConfig(regions_memory=0, decode_workers=0))
    known = reader.read_train(files)
    assert isinstance(known.regions, RegionTable)
    numbers = np.array([4, 0, 3])
    expected = known.regions.take(numbers)[0]
    for split in (reader.read_train(tars), on_disk.read_train(files, tars)):
        assert torch.equal(split.regions.take(numbers)[0].features, expected.features)
        assert split.captions.token_ids[:9].tolist() == known.captions.token_ids[:9].tolist()
    assert isinstance(split.regions, PixelRegions)
    assert len(split.regions) == split.captions.num_records == 10
    # The second corpus follows the first, and both have the same images.
    assert torch.equal(split.regions.take(numbers + 5)[0].features, expected.features)
    assert split.streaming(4, seed=1) == Streaming(4, 1)
    assert known.streaming(4) is None

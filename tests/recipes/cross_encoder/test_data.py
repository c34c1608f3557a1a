from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.toy_questions import save_image_backbone
from helpers.toy_regions import write_region_data
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.data import (
    CaptionedImages,
    ImageBackboneConfig,
    SplitReader,
    encode_regions,
    encode_regions_tta,
    open_image_backbone,
    store_keys,
    word_masking,
)
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


def test_a_split_has_regions_and_captions_of_the_same_pictures(
    data: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    records = list(read_manifest(data / "train.jsonl"))
    bare = [
        replace(records[0], captions={}),
        *records[1:],
        Record(captions={"en": ("no picture",)}),
    ]
    write_manifest(data / "some.jsonl", bare)
    reader = SplitReader(data, tokenizer, max_text_tokens=6, max_regions=2, prepend_global=True)
    split = reader.read_eval(CaptionedImages("some.jsonl", "regions"), most=4)
    assert split is not None
    assert len(split.records) == len(split.regions) == split.captions.num_records == 4
    assert set(split.captions.record_ids.tolist()) == {1, 2, 3}  # the first is a candidate alone
    assert split.regions.lengths.tolist() == [2] * 4
    assert max(split.captions.gather(split.captions.rows_in_language("de"))[1]) <= 6
    assert "regions: 4 of 4 pictures have more than 2 regions" in capsys.readouterr().err
    replace(reader, longest_regions=99).read_eval(CaptionedImages("some.jsonl", "regions"))
    assert not capsys.readouterr().err


def test_pictures_are_looked_at_again_mirrored_and_larger(tmp_path: Path) -> None:
    save_image_backbone(tmp_path / "eyes", 64)
    eyes = open_image_backbone(once := ImageBackboneConfig(str(tmp_path / "eyes"), size=64, grid=2))
    noise = np.random.default_rng(0).integers(0, 255, (2, 70, 90, 3), dtype=np.uint8)
    pictures = [Image.fromarray(picture) for picture in noise]
    again = replace(once, looks=(96,))
    seen = encode_regions_tta(pictures, eyes, again)
    assert (seen.views, len(seen), set(seen.lengths.tolist())) == (4, 2, {5})
    assert encode_regions_tta(pictures, eyes, once).views == 1

    def view(number: int) -> torch.Tensor:
        return seen.take(np.array([1]), view=number)[0].features

    mirrored = [picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for picture in pictures]
    for number, shown, size in ((0, pictures, 64), (1, mirrored, 64), (3, mirrored, 96)):
        alone = (
            encode_regions(shown, eyes, replace(once, size=size)).take(np.array([1]))[0].features
        )
        torch.testing.assert_close(view(number), alone, atol=0.05, rtol=0.05)
    assert (view(0) - view(1)).abs().max() > 0.1
    with pytest.raises(PolyglanceError, match="need a grid"):
        ImageBackboneConfig(tta_sizes=(96,))


def test_pictures_without_regions_are_named(data: Path) -> None:
    store = FeatureStore(data / "regions")
    known = next(iter(read_manifest(data / "train.jsonl")))
    with pytest.raises(PolyglanceError, match=r"no regions of 1 pictures, such as 'other\.png'"):
        store_keys(store, [known, Record(image="other.png", captions={})])


def test_signs_are_never_drawn_in_place_of_a_word(tokenizer: Tokenizer) -> None:
    masking = word_masking(tokenizer, "toy")
    signs = {tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id}
    assert masking.mask_id == tokenizer.mask_id
    assert not (signs | {tokenizer.mask_id}) & set(range(*masking.words))
    assert masking.words[1] - masking.words[0] > 100

"""The parts of a split model compute what the whole model computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.small_mmp import MEAN, STD, TEXTS, small_model, tokenizer
from polyglance.encoders.model_folder import ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.export.split_model import SplitModel, split_model
from polyglance.export.to_torch import load_torch
from polyglance.models.projection_heads import load_projection_heads
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.text import open_tokenizer
from polyglance.vision.backbone import open_backbone


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model().export(tmp_path_factory.mktemp("split") / "model")


@pytest.fixture(scope="module")
def split(folder: Path) -> SplitModel:
    return split_model(folder, folder.parent / "split")


def test_the_text_encoder_computes_the_same(folder: Path, split: SplitModel) -> None:
    encoder, part = load_torch(folder).encoder, load_encoder(split.text)
    ids = open_tokenizer(split.text).encode_batch(TEXTS[:5], max_length=40)
    assert ids == tokenizer().encode_batch(TEXTS[:5], max_length=40)
    flat = torch.tensor([number for text in ids for number in text])
    packing = Packing.of([len(text) for text in ids])
    with torch.no_grad():
        torch.testing.assert_close(part(flat, packing), encoder(flat, packing))


def test_the_image_backbone_computes_the_same(folder: Path, split: SplitModel) -> None:
    network = load_torch(folder).image_backbone
    assert isinstance(network, torch.nn.Module)
    backbone = open_backbone(str(split.image_backbone), size=64)
    pixels = np.random.default_rng(0).integers(256, size=(2, 64, 64, 3), dtype=np.uint8)
    tokens = backbone.encode(pixels, grid=2, labels=0)
    with torch.no_grad():
        scaled = (torch.from_numpy(pixels).float() - torch.tensor(MEAN)) / torch.tensor(STD)
        expected = network(scaled.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1, 2)
    features = np.stack([token.features for token in tokens])
    np.testing.assert_allclose(features, expected.numpy(), atol=1e-4)


@torch.no_grad()
def test_the_projection_heads_compute_the_same(tmp_path: Path) -> None:
    folder = small_model(text_pooling="mean").export(tmp_path / "model")
    text, _, heads_folder = split_model(folder, tmp_path / "split")
    assert heads_folder is not None
    model, heads = load_torch(folder), load_projection_heads(heads_folder)
    assert heads.config.model == ModelFolder.open(folder).description.fingerprint
    ids = open_tokenizer(text).encode_batch(TEXTS[:5], max_length=40)
    flat = torch.tensor([number for text_ids in ids for number in text_ids])
    packing = Packing.of([len(text_ids) for text_ids in ids])
    rows = load_encoder(text)(flat, packing)
    expected = model.encode_text(flat, packing)
    torch.testing.assert_close(heads.encode_texts(rows, packing), expected)
    features, visuals = torch.randn(6, model.config.visual_width), Packing.of([2, 4])
    expected = model.encode_visual(features, visuals)
    torch.testing.assert_close(heads.encode_images(features, visuals), expected)


def test_other_pooling_heads_are_not_written(split: SplitModel) -> None:
    assert split.projection_heads is None
    assert not (split.text.parent / "projection_heads").exists()


def test_a_folder_without_a_backbone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    # It could be a vision model of transformers, which says how it takes pictures.
    with pytest.raises(PolyglanceError, match="does not say how pictures are normalised"):
        open_backbone(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PolyglanceError, match="no backbone called"):
        open_backbone(str(tmp_path))

"""A model taken apart acts as it did whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from polyglance.encoders.folder import ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.export.reading import load_torch
from polyglance.export.towers import Towers, unpack
from polyglance.models.meeting import read_meeting
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.text import open_tokenizer
from polyglance.vision.backbone import open_backbone
from small_models import MEAN, STD, TEXTS, small_model, tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model().export(tmp_path_factory.mktemp("towers") / "model")


@pytest.fixture(scope="module")
def towers(folder: Path) -> Towers:
    return unpack(folder, folder.parent / "towers")


def test_sentences_are_read_as_before(folder: Path, towers: Towers) -> None:
    whole, apart = load_torch(folder).encoder, load_encoder(towers.text)
    ids = open_tokenizer(towers.text).encode_batch(TEXTS[:5], max_length=40)
    assert ids == tokenizer().encode_batch(TEXTS[:5], max_length=40)
    flat = torch.tensor([number for text in ids for number in text])
    packing = Packing.of([len(text) for text in ids])
    with torch.no_grad():
        torch.testing.assert_close(apart(flat, packing), whole(flat, packing))


def test_pictures_are_seen_as_before(folder: Path, towers: Towers) -> None:
    eyes = load_torch(folder).eyes
    assert isinstance(eyes, torch.nn.Module)
    backbone = open_backbone(str(towers.pictures), size=64)
    pixels = np.random.default_rng(0).integers(256, size=(2, 64, 64, 3), dtype=np.uint8)
    tokens = backbone.encode(pixels, grid=2, labels=0)
    with torch.no_grad():
        scaled = (torch.from_numpy(pixels).float() - torch.tensor(MEAN)) / torch.tensor(STD)
        expected = eyes(scaled.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1, 2)
    found = np.stack([token.features for token in tokens])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


@torch.no_grad()
def test_they_meet_as_before(tmp_path: Path) -> None:
    folder = small_model(text_pooling="mean").export(tmp_path / "model")
    text, _, place = unpack(folder, tmp_path / "towers")
    assert place is not None
    whole, meeting = load_torch(folder), read_meeting(place)
    assert meeting.config.model == ModelFolder.open(folder).description.fingerprint
    ids = open_tokenizer(text).encode_batch(TEXTS[:5], max_length=40)
    flat = torch.tensor([number for some in ids for number in some])
    packing = Packing.of([len(some) for some in ids])
    read = load_encoder(text)(flat, packing)
    expected = whole.encode_text(flat, packing)
    torch.testing.assert_close(meeting.sentences(read, packing), expected)
    features, visuals = torch.randn(6, whole.config.visual_width), Packing.of([2, 4])
    seen = whole.encode_visual(features, visuals)
    torch.testing.assert_close(meeting.pictures(features, visuals), seen)


def test_towers_that_meet_otherwise_are_written_without(towers: Towers) -> None:
    assert towers.meeting is None
    assert not (towers.text.parent / "meeting").exists()


def test_a_folder_that_is_no_backbone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(PolyglanceError, match="no backbone called"):
        open_backbone(str(tmp_path))

"""A model taken apart acts as it did whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.export.reading import load_torch
from polyglance.export.towers import unpack
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.text import open_tokenizer
from polyglance.vision.backbone import open_backbone
from small_models import MEAN, STD, TEXTS, small_model, tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model().export(tmp_path_factory.mktemp("towers") / "model")


@pytest.fixture(scope="module")
def towers(folder: Path) -> tuple[Path, Path]:
    return unpack(folder, folder.parent / "towers")


def test_sentences_are_read_as_before(folder: Path, towers: tuple[Path, Path]) -> None:
    whole, apart = load_torch(folder).encoder, load_encoder(towers[0])
    ids = open_tokenizer(towers[0]).encode_batch(TEXTS[:5], max_length=40)
    assert ids == tokenizer().encode_batch(TEXTS[:5], max_length=40)
    flat = torch.tensor([number for text in ids for number in text])
    packing = Packing.of([len(text) for text in ids])
    with torch.no_grad():
        torch.testing.assert_close(apart(flat, packing), whole(flat, packing))


def test_pictures_are_seen_as_before(folder: Path, towers: tuple[Path, Path]) -> None:
    eyes = load_torch(folder).eyes
    assert isinstance(eyes, torch.nn.Module)
    backbone = open_backbone(str(towers[1]), size=64)
    pixels = np.random.default_rng(0).integers(256, size=(2, 64, 64, 3), dtype=np.uint8)
    tokens = backbone.encode(pixels, grid=2, labels=0)
    with torch.no_grad():
        scaled = (torch.from_numpy(pixels).float() - torch.tensor(MEAN)) / torch.tensor(STD)
        expected = eyes(scaled.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1, 2)
    found = np.stack([token.features for token in tokens])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_a_folder_that_is_no_backbone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(PolyglanceError, match="no backbone called"):
        open_backbone(str(tmp_path))

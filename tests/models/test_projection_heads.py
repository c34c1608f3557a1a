"""Projection heads extracted from a model give the same vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from polyglance.errors import DataError, PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.models.projection_heads import (
    ProjectionHeadsConfig,
    extract_projection_heads,
    load_projection_heads,
    save_projection_heads,
)
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packing import Packing

ENCODER = EncoderConfig(
    vocab_size=20,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=20,
)


def mmp(**changes: object) -> MMP:
    torch.manual_seed(0)
    settings = {"text_layer": None, "frozen_layers": 0, "visual_width": 5, "width": 16,
                "text_pooling": "mean"}  # fmt: skip
    return MMP(MMPConfig(encoder=ENCODER, **(settings | changes))).eval()  # type: ignore[arg-type]


@torch.no_grad()
def test_extracted_heads_give_the_models_vectors(tmp_path: Path) -> None:
    model = mmp()
    torch.nn.init.normal_(model.text_pooling.linear.weight)  # type: ignore[arg-type]
    extracted = extract_projection_heads(model)
    assert extracted is not None
    save_projection_heads(extracted, tmp_path / "heads")
    heads = load_projection_heads(tmp_path / "heads")
    features, visuals = torch.randn(7, 5), Packing.of([3, 4])
    torch.testing.assert_close(
        heads.encode_images(features, visuals), model.encode_visual(features, visuals)
    )
    ids, sentences = torch.tensor([1, 5, 2, 1, 7, 8, 2]), Packing.of([3, 4])
    rows = model.encoder(ids, sentences)
    expected = model.encode_text(ids, sentences)
    torch.testing.assert_close(heads.encode_texts(rows, sentences), expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"text_pooling": "transformer"},
        {"text_layer": 1},
        {"width": 8},
        {"share_pooling": True},
    ],
)
def test_models_with_other_heads_have_none_to_extract(changes: dict[str, object]) -> None:
    assert extract_projection_heads(mmp(**changes)) is None


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'polyglance weights split' writes them"):
        load_projection_heads(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(DataError, match="it holds other weights"):
        load_projection_heads(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "projection_heads", "width": 4}')
    with pytest.raises(DataError, match="visual_width"):
        load_projection_heads(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(DataError, match="does not hold projection heads"):
        load_projection_heads(tmp_path)


def test_other_backbones_and_encoders_are_refused() -> None:
    config = ProjectionHeadsConfig(5, 16, 1, 2, image_backbone="abc")
    config.check_compatible(5, "abc", 16)
    with pytest.raises(PolyglanceError, match="a different image backbone"):
        config.check_compatible(6, "abc")
    with pytest.raises(PolyglanceError, match="a different image backbone"):
        config.check_compatible(5, "def")
    with pytest.raises(PolyglanceError, match="a different encoder"):
        config.check_compatible(5, "abc", 8)

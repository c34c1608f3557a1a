"""Starting from a model that was trained before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from polyglance.errors import DataError, PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.pretrained import model_tensors
from polyglance.recipes.mmp.initialise import initialise_from


def make(seed: int, *, features: int = 6, width: int = 16, shared: bool = False) -> MMP:
    torch.manual_seed(seed)
    encoder = EncoderConfig(
        vocab_size=20,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
        dropout=0.0,
    )
    return MMP(
        MMPConfig(
            encoder=encoder, text_layer=None, frozen_layers=0, visual_width=features, width=width,
            pooling_layers=1, dropout=0.0, share_pooling=shared,
        )
    )  # fmt: skip


def save(model: MMP, folder: Path) -> None:
    folder.mkdir(parents=True)
    save_file(model_tensors(model), folder / "model.safetensors")


def equal(one: MMP, other: MMP) -> dict[str, bool]:
    theirs = other.state_dict()
    return {name: torch.equal(value, theirs[name]) for name, value in one.state_dict().items()}


@pytest.mark.parametrize("shared", [False, True])
def test_all_weights_are_loaded_from_the_same_shape(
    tmp_path: Path, shared: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = make(0, shared=shared), make(1, shared=shared)
    save(old, tmp_path / "run" / "latest")
    initialise_from(new, tmp_path / "run")
    assert all(equal(new, old).values())
    assert capsys.readouterr().err == ""


def test_best_checkpoint_is_preferred_to_the_latest(tmp_path: Path) -> None:
    best, latest, new = make(0), make(1), make(2)
    save(best, tmp_path / "best")
    save(latest, tmp_path / "latest")
    initialise_from(new, tmp_path)
    assert all(equal(new, best).values())
    initialise_from(new, tmp_path / "latest")
    assert all(equal(new, latest).values())


def test_features_of_another_width_get_a_new_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video, image = make(0), make(1, features=9)
    own = {name: value.clone() for name, value in image.visual_input.state_dict().items()}
    save(video, tmp_path / "best")
    initialise_from(image, tmp_path)
    assert "the layer on features is initialised anew" in capsys.readouterr().err
    same = equal(image, video)
    assert {name for name in same if not same[name]} == {"visual_input.weight", "visual_input.bias"}
    for name, value in image.visual_input.state_dict().items():
        assert torch.equal(value, own[name])


def test_image_backbone_of_a_photo_run_is_ignored(tmp_path: Path) -> None:
    old, new = make(0), make(1)
    tensors = model_tensors(old) | {"image_backbone.stem.weight": torch.zeros(3)}
    (tmp_path / "best").mkdir()
    save_file(tensors, tmp_path / "best" / "model.safetensors")
    initialise_from(new, tmp_path)
    assert all(equal(new, old).values())


def test_mismatched_weights_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="no trained model here"):
        initialise_from(make(0), tmp_path)
    save(make(0, width=32), tmp_path / "wide")
    save(make(0, shared=True), tmp_path / "shared")
    for name in ("wide", "shared"):
        with pytest.raises(PolyglanceError, match="a model of another shape"):
            initialise_from(make(1), tmp_path / name)
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read as weights"):
        initialise_from(make(1), tmp_path)

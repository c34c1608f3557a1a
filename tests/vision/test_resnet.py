from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file

from polyglance.errors import DataError
from polyglance.vision.pictures import read_square
from polyglance.vision.resnet import Network, ResNet50

STAGES = (3, 4, 6, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, small enough that nothing explodes."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("resnet")
    names = {"reduce": "narrow", "spatial": "look", "expand": "widen"}  # as the converter writes
    state = {}
    for name, value in Network().state_dict().items():
        state[".".join(names.get(part, part) for part in name.split("."))] = value.half()
    save_file(state, path / "model.safetensors")
    config = {"mean": [0.4, 0.45, 0.5], "std": [1 / 255] * 3}
    (path / "config.json").write_text(json.dumps(config))
    return path


def reference(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """He et al. 2015, Table 1, layer by layer."""

    def conv(name: str, x: torch.Tensor, **options: int) -> torch.Tensor:
        return F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], **options)

    x = F.max_pool2d(F.relu(conv("stem", x, stride=2, padding=3)), 3, 2, 1)
    for stage, blocks in enumerate(STAGES):
        for block in range(blocks):
            name, stride = f"stages.{stage}.{block}", 2 if stage and not block else 1
            y = F.relu(conv(f"{name}.reduce", x, stride=stride))
            y = conv(f"{name}.expand", F.relu(conv(f"{name}.spatial", y, padding=1)))
            x = F.relu(y + (x if block else conv(f"{name}.shortcut", x, stride=stride)))
    return x


def test_network_equals_the_paper_layer_by_layer(folder: Path) -> None:
    backbone = ResNet50(folder, "resnet-50", 64, threads=1)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    x = torch.from_numpy(pixels).float() - torch.tensor([0.4, 0.45, 0.5]) * 255
    expected = reference(backbone.network.state_dict(), x.permute(0, 3, 1, 2))
    tokens = backbone.encode(pixels, grid=2, labels=3)
    assert (backbone.width, backbone.num_classes) == (2048, 1000)
    for token, cells in zip(tokens, expected, strict=True):
        features = torch.from_numpy(token.features).T.reshape(2048, 2, 2)
        torch.testing.assert_close(features, cells, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(torch.from_numpy(token.global_feature), cells.mean((1, 2)))


def test_read_only_and_mirrored_pixels_are_accepted(
    folder: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    Image.fromarray(np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)).save(
        tmp_path / "a.png"
    )
    backbone = ResNet50(folder, "resnet-50", 64, threads=1)
    pixels = read_square(tmp_path / "a.png", 64).pixels
    assert not pixels.flags.writeable
    plain = backbone.feature_map(pixels[None])
    mirrored = backbone.feature_map(pixels[None, :, ::-1])
    copied = backbone.feature_map(np.ascontiguousarray(pixels[None, :, ::-1]))
    torch.testing.assert_close(mirrored, copied)
    assert not torch.equal(plain, mirrored)
    assert not recwarn.list


def test_other_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    save_file({"stem.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="does not hold the weights of resnet-50"):
        ResNet50(tmp_path, "resnet-50", 64)

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from polyglance.weights import efficientnet


@pytest.mark.parametrize(("variant", "size"), [(0, 224), (1, 240), (2, 260)])
def test_checkpoint_keeps_names_and_values(tmp_path: Path, variant: int, size: int) -> None:
    generator = torch.Generator().manual_seed(variant)
    kernel = torch.randn(8, 3, 3, 3, generator=generator)
    state = {
        "_conv_stem.weight": kernel.contiguous(memory_format=torch.channels_last),
        "_bn0.num_batches_tracked": torch.tensor(7),
        "_fc.bias": torch.randn(10, generator=generator),
    }
    source = tmp_path / f"efficientnet-lite{variant}-0123abcd.pth"
    torch.save(state, source)
    efficientnet.convert(source, tmp_path)
    loaded = load_file(tmp_path / "model.safetensors")
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["variant"], config["image_size"]) == (variant, size)
    # (pixel - 127) / 128, as the networks were trained: black is -127/128, white is 1
    mean, std = config["mean"][0], config["std"][0]
    assert (0 - mean) / std == pytest.approx(-127 / 128)
    assert (1 - mean) / std == pytest.approx(1)

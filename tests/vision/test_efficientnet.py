"""EfficientNet-Lite against a layer-by-layer reference, and on photographs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import skimage.data
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file

from polyglance import weights
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.backbone import Backbone, open_backbone
from polyglance.vision.efficientnet import EfficientNetLite, Network
from polyglance.vision.pictures import to_square

ESPRESSO, CATS = 967, {281, 282, 283, 284, 285}
PARAMETERS = [4_652_008, 5_416_680, 6_092_072, 8_197_096, 13_006_568]
"""Of Lite0 to Lite4, as published (4.7, 5.4, 6.1, 8.2 and 13.0 million)."""
WIDTHS = [1.0, 1.0, 1.1, 1.2, 1.4]
DEPTHS = [1.0, 1.1, 1.2, 1.4, 1.8]


def random_state(variant: int) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Random weights of the published architecture, and the stride of every block."""
    generator = torch.Generator().manual_seed(variant)
    state: dict[str, torch.Tensor] = {}

    def width(channels: float) -> int:
        scaled = channels * WIDTHS[variant]
        rounded = max(8, int(scaled + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * scaled else rounded

    def conv(name: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        shape = (outputs, inputs, kernel, kernel)
        scale = (2 / (inputs * kernel * kernel)) ** 0.5
        state[f"{name}.weight"] = scale * torch.randn(shape, generator=generator)
        for part in ("weight", "bias", "running_mean", "running_var"):
            state[f"{norm}.{part}"] = 0.1 * torch.randn(outputs, generator=generator)
        state[f"{norm}.weight"] += 1
        state[f"{norm}.running_var"] = 1 + state[f"{norm}.running_var"].abs()

    conv("_conv_stem", "_bn0", 32, 3, 3)
    strides, inputs = [], 32
    table = [(1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80),
             (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)]  # fmt: skip
    for stage, (repeats, kernel, stride, expansion, outputs) in enumerate(table):
        if stage not in (0, 6):
            repeats = math.ceil(repeats * DEPTHS[variant])
        for repeat in range(repeats):
            name, middle = f"_blocks.{len(strides)}", inputs * expansion
            if expansion > 1:
                conv(f"{name}._expand_conv", f"{name}._bn0", middle, inputs, 1)
            conv(f"{name}._depthwise_conv", f"{name}._bn1", middle, 1, kernel)
            conv(f"{name}._project_conv", f"{name}._bn2", width(outputs), middle, 1)
            strides.append(stride if repeat == 0 else 1)
            inputs = width(outputs)
    conv("_conv_head", "_bn1", 1280, inputs, 1)
    state["_fc.weight"] = 0.03 * torch.randn(1000, 1280, generator=generator)
    state["_fc.bias"] = 0.03 * torch.randn(1000, generator=generator)
    return state, strides


def slow_map(state: dict[str, torch.Tensor], strides: list[int], x: torch.Tensor) -> torch.Tensor:
    """Compute the feature map step by step: pad, convolve, normalise."""

    def conv(x: torch.Tensor, name: str, norm: str, stride: int = 1) -> torch.Tensor:
        weight = state[f"{name}.weight"]
        kernel, groups = weight.shape[-1], x.shape[1] // weight.shape[1]
        margins = []
        for length in (x.shape[3], x.shape[2]):
            total = max((math.ceil(length / stride) - 1) * stride + kernel - length, 0)
            margins += [total // 2, total - total // 2]
        x = F.conv2d(F.pad(x, margins), weight, stride=stride, groups=groups)
        parts = [state[f"{norm}.{p}"] for p in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(x, *parts, training=False, eps=1e-3)

    x = conv(x, "_conv_stem", "_bn0", 2).clamp(0, 6)
    for number, stride in enumerate(strides):
        name, y = f"_blocks.{number}", x
        if f"{name}._expand_conv.weight" in state:
            y = conv(y, f"{name}._expand_conv", f"{name}._bn0").clamp(0, 6)
        y = conv(y, f"{name}._depthwise_conv", f"{name}._bn1", stride).clamp(0, 6)
        y = conv(y, f"{name}._project_conv", f"{name}._bn2")
        x = x + y if stride == 1 and x.shape == y.shape else y
    return conv(x, "_conv_head", "_bn1").clamp(0, 6)


@pytest.mark.parametrize("variant", range(5))
def test_network_equals_the_published_one_layer_by_layer(variant):
    state, strides = random_state(variant)
    trained = [t for name, t in state.items() if "running" not in name]
    assert sum(tensor.numel() for tensor in trained) == PARAMETERS[variant]
    # In double precision, because many random layers amplify rounding.
    state = {name: tensor.double() for name, tensor in state.items()}
    network = Network(state, variant).eval()
    # Not square, and odd somewhere on the way down, so that all margins differ.
    x = torch.randn(1, 3, 38, 64, generator=torch.Generator().manual_seed(0)).double()
    with torch.inference_mode():
        fast, slow = network(x), slow_map(state, strides, x)
    assert fast.shape == slow.shape == (1, 1280, 2, 2)
    assert slow.std() > 0.1
    assert (fast - slow).abs().max() < 1e-9


def pattern(size: int) -> np.ndarray:
    y, x = np.mgrid[:size, :size] / size
    channels = [127 + 100 * np.sin(9 * x + 4 * y), 127 + 100 * np.cos(7 * y), 255 * x * y]
    return np.stack(channels, -1).round().astype(np.uint8)


# Every 125th logit of efficientnet_lite_pytorch 0.1.0 for that pattern with its own weights, at
# the size each network was trained at.
ANSWERS = {
    ("efficientnet-lite0", 224): "-0.7494 -0.2933 -1.3403 1.1775 -1.8473 -1.3702 -1.0386 0.1003",
    ("efficientnet-lite2", 260): "-0.5672 -0.6154 -1.2949 0.4953 -1.1253 -1.1771 -0.9810 -0.6246",
}


@pytest.mark.parametrize(("name", "size"), ANSWERS)
def test_published_weights_give_the_published_logits(name, size):
    backbone = open_backbone(name, size=size)
    assert isinstance(backbone, EfficientNetLite)
    with torch.inference_mode():
        pooled = backbone.feature_map(pattern(size)[None]).mean((1, 2))
        logits = backbone.network.classifier(pooled)[0]
    expected = [float(number) for number in ANSWERS[name, size].split()]
    assert logits[::125].tolist() == pytest.approx(expected, abs=2e-4)


@pytest.fixture(scope="module")
def lite2() -> EfficientNetLite:
    # On one thread, because other test workers run at the same time.
    backbone: Backbone = open_backbone("efficientnet-lite2", threads=1)
    assert isinstance(backbone, EfficientNetLite)
    return backbone


@pytest.fixture(scope="module")
def photos() -> np.ndarray:
    """Coffee and Chelsea the cat, which come with scikit-image."""
    pictures = [skimage.data.coffee(), skimage.data.chelsea()]
    return np.stack([to_square(Image.fromarray(picture), 224).pixels for picture in pictures])


def test_photographs_are_recognised(lite2, photos):
    coffee, cat = lite2.encode(photos, grid=1, labels=5)
    assert coffee.label_ids[0, 0] == ESPRESSO
    assert cat.label_ids[0, 0] in CATS
    assert set(cat.label_ids[0, :3].tolist()) <= CATS
    assert coffee.label_probs[0, 0] > 0.5


def test_labels_of_cells_agree_with_those_of_the_picture_when_pooled(lite2, photos):
    coffee, cat = lite2.encode(photos, grid=7, labels=1000)
    for tokens, expected in ((coffee, {ESPRESSO}), (cat, CATS)):
        pooled = np.zeros(1000)
        for ids, probs in zip(tokens.label_ids, tokens.label_probs, strict=True):
            pooled[ids] += probs
        assert int(pooled.argmax()) in expected
        assert pooled.sum() == pytest.approx(49, rel=1e-2)


def test_labels_of_cells_depend_on_position(lite2, photos):
    """In coffee's photograph the cup is in the middle: the corners are less espresso."""
    coffee = lite2.encode(photos, grid=7, labels=1000)[0]
    espresso = np.zeros(49)
    rows, places = np.nonzero(coffee.label_ids == ESPRESSO)
    espresso[rows] = coffee.label_probs[rows, places]
    cells = espresso.reshape(7, 7)
    assert cells[2:5, 2:5].mean() > 5 * cells[[0, 0, -1, -1], [0, -1, 0, -1]].mean()


@pytest.mark.parametrize("grid", [1, 3, 7, 10])
def test_the_mean_of_the_cells_is_the_global_feature_on_every_grid(lite2, photos, grid):
    for tokens in lite2.encode(photos, grid=grid, labels=0):
        assert tokens.features.shape == (grid * grid, 1280)
        assert np.allclose(tokens.features.mean(0), tokens.global_feature, atol=1e-4)
        with torch.inference_mode():
            cells = lite2.network.classifier(torch.from_numpy(tokens.features))
            pooled = lite2.network.classifier(torch.from_numpy(tokens.global_feature))
        assert torch.allclose(cells.mean(0), pooled, atol=1e-3)


def test_a_grid_coarser_than_the_map_is_the_mean_of_its_cells(lite2, photos):
    fine = lite2.encode(photos, grid=14, labels=0)[0].features.reshape(7, 2, 7, 2, 1280)
    native = lite2.encode(photos, grid=7, labels=0)[0].features.reshape(7, 7, 1280)
    assert np.allclose(fine.mean((1, 3)), native, atol=1e-5)


def test_tokens_have_all_fields_in_order(lite2, photos):
    tokens = lite2.encode(photos, grid=7, labels=10)[0]
    assert tokens.boxes.shape == (49, 4)
    assert tokens.label_ids.dtype == np.uint16
    assert (np.diff(tokens.label_probs.astype(float), axis=1) <= 0).all()
    assert not tokens.spans.any()
    assert len(tokens) == 49


def test_thread_count_is_restored_and_results_are_repeatable(lite2, photos):
    before = torch.get_num_threads()
    lite2.threads = before + 1
    first = lite2.encode(photos, grid=7, labels=10)
    assert torch.get_num_threads() == before
    again = lite2.encode(photos, grid=7, labels=10)
    assert all(np.array_equal(a.features, b.features) for a, b in zip(first, again, strict=True))
    lite2.threads = 1


def test_other_weights_raise_a_data_error(tmp_path):
    folder = weights.folder("efficientnet-lite0")
    with pytest.raises(DataError, match="no readable weights"):
        EfficientNetLite(tmp_path, "mine", 224)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DataError, match="no readable weights"):
        EfficientNetLite(tmp_path, "mine", 224)
    state = load_file(folder / "model.safetensors")
    del state["_blocks.3._bn1.bias"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"_blocks\.3\._bn1\.bias"):
        EfficientNetLite(tmp_path, "mine", 224)


def test_an_unavailable_device_raises_a_polyglance_error():
    with pytest.raises(PolyglanceError, match="device"):
        open_backbone("efficientnet-lite0", device="no such device")

"""Vision models of transformers as image backbones: extracted, trained along and exported."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from helpers.small_mmp import cosines, pixel_values
from helpers.vision_models import MEAN, VISION_MODELS, save_tower_folder
from polyglance.cross_encoders.model_folder import copy_weights
from polyglance.cross_encoders.regions import (
    ImageBackboneConfig,
    encode_regions,
    open_image_backbone,
)
from polyglance.encoders.model_folder import ImagePreprocessing
from polyglance.encoders.torch_graph import TorchSession
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.convolutions import feature_map
from polyglance.export.graph import GraphWriter
from polyglance.export.inputs import pixels_input
from polyglance.vision.backbone import open_backbone
from polyglance.vision.transformers_backbone import (
    TransformersBackbone,
    TransformersNetwork,
    save_tower,
)


def rounded(network: TransformersNetwork) -> TransformersNetwork:
    """Round the matrices as they are stored."""
    network = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(parameter.half().float())
    return network


@pytest.mark.parametrize("kind", VISION_MODELS)
def test_an_exported_tower_computes_as_torch_does(kind: str, tmp_path: Path) -> None:
    size = VISION_MODELS[kind][1]
    backbone = open_backbone(str(save_tower_folder(kind, tmp_path / kind)), size=size)
    assert isinstance(backbone, TransformersBackbone)
    assert backbone.mean.tolist() == pytest.approx([255 * value for value in MEAN])
    pixels = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    mean, std = (tuple(part.tolist()) for part in (backbone.mean, backbone.std))
    settings = ImagePreprocessing(size, mean, std)
    graph = GraphWriter({})
    graph.output(
        feature_map(graph, pixels_input(graph, settings), backbone.network, "image_backbone"),
        "map", "float32", ("batch", "channels", "rows", "columns"),
    )  # fmt: skip
    content = graph.build("tower").SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    values = pixel_values(pixels, settings)
    [exported] = session.run(None, {"pixel_values": values})
    with torch.no_grad():
        expected = rounded(backbone.network)(torch.from_numpy(values)).numpy()
    cells = {"convnext": size // 32, "dinov2": size // 14}.get(kind, size // 16)
    assert exported.shape == (3, 32, cells, cells)
    np.testing.assert_allclose(exported, expected, atol=1e-4)
    if kind not in ("vit-interpolated", "dinov2"):  # which resize positions
        [on_torch] = TorchSession(content, "cpu").run(None, {"pixel_values": values})
        np.testing.assert_allclose(on_torch, expected, atol=1e-4)
    # Rounding the matrices changes little.
    whole = backbone.feature_map(pixels).permute(0, 3, 1, 2).numpy()
    assert cosines(whole.reshape(3, -1), exported.reshape(3, -1)).min() > 0.9999
    assert cosines(whole.reshape(3, -1)[:2], whole.reshape(3, -1)[1:]).max() < 0.9999


def test_a_tower_is_saved_and_opened_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = save_tower_folder("vit", tmp_path / "vit")
    capfd.readouterr()
    backbone = open_backbone(str(source), size=64)
    assert isinstance(backbone, TransformersBackbone)
    save_tower(backbone, tmp_path / "saved")  # without the pooler, which transformers misses
    pixels = np.zeros((1, 64, 64, 3), dtype=np.uint8)
    again = open_backbone(str(tmp_path / "saved"), size=64)
    assert torch.equal(again.feature_map(pixels), backbone.feature_map(pixels))
    assert capfd.readouterr() == ("", "")


def test_what_is_no_tower_is_refused(tmp_path: Path) -> None:
    folder = save_tower_folder("dinov2", tmp_path / "tower")
    with pytest.raises(PolyglanceError, match="patches of 14 pixels, which do not divide a size"):
        open_backbone(str(folder), size=64)
    weights = load_file(folder / "model.safetensors")
    lost = {name: value for name, value in weights.items() if "layer.1." not in name}
    assert len(lost) < len(weights)
    save_file(lost, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match="of its model's weights, such as"):
        open_backbone(str(folder), size=56)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(DataError, match="does not say how pictures are normalised"):
        open_backbone(str(folder), size=56)


def test_a_tower_computes_regions_and_features_and_is_copied(tmp_path: Path) -> None:
    folder = save_tower_folder("siglip-vision", tmp_path / "tower")
    config = ImageBackboneConfig(backbone=str(folder), size=64)
    backbone = open_image_backbone(config)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    table = encode_regions([Image.fromarray(pixels)], backbone, config)
    expected = backbone.feature_map(pixels[None])[0].reshape(16, 32)
    assert table.lengths.tolist() == [17]
    assert torch.allclose(table.features[1:].float(), expected, atol=1e-2)
    [tokens] = backbone.encode(pixels[None], grid=2, labels=0)
    assert tokens.features.shape == (4, 32)
    np.testing.assert_allclose(tokens.global_feature, expected.mean(0), atol=1e-5)
    copy_weights(str(folder), tmp_path / "copy")  # into the folder of a cross-encoder
    copied = open_backbone(str(tmp_path / "copy"), size=64)
    assert copied.fingerprint == backbone.fingerprint

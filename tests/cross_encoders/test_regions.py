"""Regions of images computed by an image backbone, with test-time augmentation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from helpers.small_mmp import MEAN, STD, small_model
from helpers.toy_questions import save_image_backbone
from polyglance.batches.inputs import PixelTable, read_pixels
from polyglance.cross_encoders.regions import (
    ImageBackboneConfig,
    encode_regions,
    encode_regions_tta,
    open_image_backbone,
    tta_image_vectors,
)
from polyglance.errors import PolyglanceError
from polyglance.export.split_model import split_model
from polyglance.export.to_torch import load_torch
from polyglance.models.projection_heads import load_projection_heads


def test_images_are_encoded_mirrored_and_in_several_sizes(tmp_path: Path) -> None:
    save_image_backbone(tmp_path / "image_backbone", 64)
    single = ImageBackboneConfig(str(tmp_path / "image_backbone"), size=64, grid=2)
    backbone = open_image_backbone(single)
    noise = np.random.default_rng(0).integers(0, 255, (2, 70, 90, 3), dtype=np.uint8)
    images = [Image.fromarray(pixels) for pixels in noise]
    regions = encode_regions_tta(images, backbone, replace(single, tta_sizes=(96,)))
    assert (regions.views, len(regions), set(regions.lengths.tolist())) == (4, 2, {5})
    assert encode_regions_tta(images, backbone, single).views == 1

    def view(number: int) -> torch.Tensor:
        return regions.take(np.array([1]), view=number)[0].features

    mirrored = [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for image in images]
    for number, some, size in ((0, images, 64), (1, mirrored, 64), (3, mirrored, 96)):
        table = encode_regions(some, backbone, replace(single, size=size))
        alone = table.take(np.array([1]))[0].features
        torch.testing.assert_close(view(number), alone, atol=0.05, rtol=0.05)
    assert (view(0) - view(1)).abs().max() > 0.1
    with pytest.raises(PolyglanceError, match="needs a grid"):
        ImageBackboneConfig(tta_sizes=(96,))


@torch.no_grad()
def test_tta_vectors_are_the_dual_encoder_s_mean_over_sizes_and_mirroring(tmp_path: Path) -> None:
    folder = small_model(text_pooling="mean").export(tmp_path / "model")
    _, backbone, heads_folder = split_model(folder, tmp_path / "split")
    assert heads_folder is not None
    files = []
    for number in range(3):
        pixels = np.random.default_rng(number).integers(256, size=(50, 40, 3), dtype=np.uint8)
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(files[-1])
    config = ImageBackboneConfig(str(backbone), size=64, grid=1, tta_sizes=(96,))
    heads = load_projection_heads(heads_folder)
    vectors = tta_image_vectors(heads, files, open_image_backbone(config), config)

    dual = load_torch(folder)
    dual.eval()
    views = []
    for size in (64, 96):
        pixels_of_size = read_pixels(files, size)
        for pixels_of_view in (pixels_of_size, pixels_of_size.flip(2)):
            table = PixelTable(
                pixels_of_view,
                dual.image_backbone,  # type: ignore[arg-type]
                torch.tensor(MEAN),
                torch.tensor(STD),
            )
            views.append(dual.encode_visual(*table.rows(np.arange(3), None)))
    mean = F.normalize(torch.stack(views).mean(0), dim=1)
    np.testing.assert_allclose(vectors, mean.numpy(), atol=2e-3)  # features are float16
    # The sizes give different vectors, or this would show nothing.
    assert float(F.cosine_similarity(views[0], views[2]).max()) < 0.999

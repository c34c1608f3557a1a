"""Pictures looked at more closely have the vectors that the dual encoder itself would give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from polyglance.batches.inputs import PixelTable, read_pixels
from polyglance.cross_encoders.image_vectors import tta_image_vectors
from polyglance.export.split_model import split_model
from polyglance.export.to_torch import load_torch
from polyglance.models.projection_heads import load_projection_heads
from polyglance.recipes.cross_encoder.data import ImageBackboneConfig, open_image_backbone
from helpers.small_mmp import MEAN, STD, small_model


@torch.no_grad()
def test_they_are_the_mean_over_sizes_plain_and_mirrored(tmp_path: Path) -> None:
    folder = small_model(text_pooling="mean").export(tmp_path / "model")
    _, pictures, place = split_model(folder, tmp_path / "towers")
    assert place is not None
    files = []
    for number in range(3):
        colours = np.random.default_rng(number).integers(256, size=(50, 40, 3), dtype=np.uint8)
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(colours).save(files[-1])
    settings = ImageBackboneConfig(str(pictures), size=64, grid=1, tta_sizes=(96,))
    meeting = load_projection_heads(place)
    found = tta_image_vectors(meeting, files, open_image_backbone(settings), settings)

    dual = load_torch(folder)
    dual.eval()
    expected = []
    for size in (64, 96):
        pixels = read_pixels(files, size)
        for seen in (pixels, pixels.flip(2)):
            table = PixelTable(seen, dual.eyes, torch.tensor(MEAN), torch.tensor(STD))  # type: ignore[arg-type]
            expected.append(dual.encode_visual(*table.rows(np.arange(3), None)))
    mean = F.normalize(torch.stack(expected).mean(0), dim=1)
    np.testing.assert_allclose(found, mean.numpy(), atol=2e-3)  # features are kept in halves
    # Other looks are other vectors, or this would show nothing.
    assert float(F.cosine_similarity(expected[0], expected[2]).max()) < 0.999

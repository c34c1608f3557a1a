"""open_clip models, with the package where it can be imported, else with a fake of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import polyglance
from helpers.clip_models import TEXTS, perturb, pictures, save_clip
from polyglance.encoders import Encoder
from polyglance.encoders.open_clip_encoder import OpenClipEncoder
from polyglance.errors import DataError, PolyglanceError

FAKES = Path(__file__).parents[1] / "helpers" / "fakes"
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
MODEL = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 40, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    try:
        import open_clip
    except Exception:  # not installed, or its torchvision does not fit torch
        monkeypatch.syspath_prepend(FAKES)
        import open_clip
    return open_clip


@pytest.fixture
def model(package: Any) -> Any:
    return perturb(package.CLIP(**MODEL))


@pytest.fixture
def folder(model: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-open-clip"
    folder.mkdir()
    config = {"model_cfg": MODEL, "preprocess_cfg": {"mean": MEAN, "std": STD}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    return polyglance.load(folder, threads=1)


def units(rows: list[torch.Tensor]) -> np.ndarray:
    return torch.nn.functional.normalize(torch.cat(rows), dim=1).numpy()


def test_the_format_is_detected_by_its_config(encoder: Encoder) -> None:
    assert isinstance(encoder, OpenClipEncoder)
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.width) == ("tiny-open-clip", 12)


@torch.inference_mode()
def test_text_vectors_agree_with_the_package(
    encoder: Encoder, folder: Path, model: Any, package: Any
) -> None:
    tokenizer = package.get_tokenizer(f"local-dir:{folder}")
    texts = ["", *TEXTS, " ".join(TEXTS)] * 3  # several batches
    expected = units([model.encode_text(tokenizer([text])) for text in texts])
    np.testing.assert_allclose(encoder.encode_texts(texts), expected, atol=1e-5)


@torch.inference_mode()
def test_picture_vectors_agree_with_the_package(encoder: Encoder, model: Any) -> None:
    """Shorter side to 32 with Pillow's bicubic filter, centre crop, normalised."""
    rows = []
    for picture in pictures():
        width, height = picture.size
        shorter = min(width, height)
        size = (32 * width // shorter, 32 * height // shorter)
        small = picture.resize(size, Image.Resampling.BICUBIC)
        left, top = round((size[0] - 32) / 2), round((size[1] - 32) / 2)
        pixels = np.asarray(small.crop((left, top, left + 32, top + 32)), np.float32) / 255
        normal = (pixels - np.float32(MEAN)) / np.float32(STD)
        rows.append(model.encode_image(torch.from_numpy(normal).permute(2, 0, 1)[None]))
    np.testing.assert_allclose(encoder.encode_pictures(pictures()), units(rows), atol=1e-5)


def test_a_pickle_is_never_opened(folder: Path, tmp_path: Path) -> None:
    """The package would prefer a pickle to a model.safetensors."""
    (folder / "open_clip_pytorch_model.bin").write_bytes(b"anything")
    assert polyglance.load(folder).width == 12
    (folder / "open_clip_model.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(PolyglanceError, match=r"open_clip_pytorch_model\.bin, a pickle"):
        polyglance.load(folder)


def test_transformers_weights_are_preferred(folder: Path) -> None:
    save_clip(folder)
    encoder = polyglance.load(folder)
    assert type(encoder).__name__ == "TransformersEncoder"
    (folder / "model.safetensors").unlink()
    assert isinstance(polyglance.load(folder), OpenClipEncoder)


def test_a_damaged_config_is_refused(folder: Path) -> None:
    (folder / "open_clip_config.json").write_text('{"model_cfg": {}}')
    with pytest.raises(DataError, match="cannot be opened by open_clip"):
        polyglance.load(folder).encode_texts(["a dog"])

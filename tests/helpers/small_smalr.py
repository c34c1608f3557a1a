"""Small SMALR models with random weights, to export and compare with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from helpers.sentences import SENTENCES
from helpers.small_mmp import MEAN, STD, WIDTH, image_backbone_state
from polyglance.encoders.model_folder import ImagePreprocessing
from polyglance.export.smalr import ImageBackbone, export_smalr
from polyglance.models.smalr import SMALR, SMALRConfig, latent_vocabulary, word_table
from polyglance.models.smalr_folder import FeatureInfo, SMALRFolder, load_smalr, save_smalr
from polyglance.nn.packing import Packing
from polyglance.text.lexicon import Lexicon
from polyglance.vision.efficientnet import EfficientNetLite, Network

LANGUAGES = ("en", "de", "ar", "zh", "ja")
SIZE = 64
SHAPE = SMALRConfig(
    own_words=30,
    own_width=8,
    latent_tokens=0,
    universal_width=32,
    gru_width=24,
    visual_width=WIDTH,
    visual_hidden=48,
    width=16,
)


def lexicon(languages: tuple[str, ...] = LANGUAGES) -> Lexicon:
    """The words of the first eight sentences of each language; the last two have others."""
    return Lexicon.from_texts({code: SENTENCES[code][:8] for code in languages})


def untrained(config: SMALRConfig, words: Lexicon, *, seed: int = 0) -> SMALR:
    """A model with random weights, running means and all, so large that every part counts.

    Words beyond the commonest share eleven latent tokens.
    """
    torch.manual_seed(seed)
    shared = replace(config, latent_tokens=11)
    vectors = torch.randn(len(words), 24)
    latent = latent_vocabulary(shared, vectors)
    nn.init.normal_(latent.latent)
    table = word_table(
        shared,
        vectors,
        torch.from_numpy(words.language_ids),
        torch.from_numpy(words.frequency_ranks),
        latent,
    )
    model = SMALR(config, table, num_languages=len(words.languages)).eval()
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if name.startswith(("sentences.", "pictures.")) and value.dim() == 1:
            nn.init.normal_(value, std=0.3)
            value.data.add_(1 if "running_var" in name or "layers.1.weight" in name else 0).abs_()
    return model


def word_model(folder: Path, *, config: SMALRConfig = SHAPE, **changes: Any) -> SMALRFolder:
    """Save a small model as training does, and load it."""
    words = changes.pop("lexicon", None) or lexicon()
    save_smalr(
        untrained(config, words, **changes), words, folder, feature_info=FeatureInfo("small", SIZE)
    )
    return load_smalr(folder)


def small_backbone() -> ImageBackbone:
    """Return a narrow EfficientNet-Lite0 with random weights."""
    torch.manual_seed(1)
    network = Network(image_backbone_state(), 0).eval().requires_grad_(False)
    return ImageBackbone(network, ImagePreprocessing(SIZE, MEAN, STD))


def export(
    model: SMALRFolder, folder: Path, backbone: ImageBackbone | None = None, **changes: Any
) -> Path:
    """Export the model with a small backbone by default."""
    settings = {"max_length": 20, "name": "small words"} | changes
    export_smalr(model, backbone or small_backbone(), folder, **settings)
    return folder


def backbone_loader(folder: Path) -> Any:
    """Save the small backbone and return its loader for `LOADERS`."""
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    save_file(image_backbone_state(), folder / "model.safetensors")
    config = {"variant": 0, "mean": [m / 255 for m in MEAN], "std": [s / 255 for s in STD]}
    (folder / "config.json").write_text(json.dumps(config))
    return lambda name, size, threads, device: EfficientNetLite(folder, name, size, threads, device)


@torch.inference_mode()
def torch_words(model: SMALRFolder, numbers: list[list[int]]) -> NDArray[np.float32]:
    """Encode texts in torch, by the ids of the lexicon."""
    flat = torch.tensor([number for one in numbers for number in one], dtype=torch.int64)
    return model.text.encode_text(flat, Packing.of([len(one) for one in numbers])).numpy()


@torch.inference_mode()
def torch_pictures(
    model: SMALRFolder, backbone: ImageBackbone, pixels: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Encode pictures in torch: the branch on the mean of the feature map."""
    mean, std = torch.tensor(backbone.preprocessing.mean), torch.tensor(backbone.preprocessing.std)
    x = ((torch.from_numpy(pixels).float() - mean) / std).permute(0, 3, 1, 2)
    return model.image_branch(backbone.network(x).mean((2, 3))).numpy()

"""A small MMP model of the toy dataset, trained from nothing, for tests of learning."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from helpers.small_convnet import SmallConvNet
from helpers.text_encoder import unigram_tokenizer
from polyglance.batches.inputs import PixelTable
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Picture
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.recipes.mmp.tasks import MMPTask
from polyglance.text.tokenizer import Tokenizer
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

SIZE, WIDTH = 32, 64


@dataclass(frozen=True)
class ToyModel:
    """A model of the toy dataset with what it needs to read and to see."""

    model: MMP
    backbone: SmallConvNet
    tokenizer: Tokenizer

    def table(self, pictures: Sequence[Picture]) -> PixelTable:
        """Pictures as the model takes them; never mirrored, since left is not right."""
        pixels = torch.from_numpy(np.stack([picture.pixels(SIZE) for picture in pictures]))
        half = torch.full((3,), 127.5)
        return PixelTable(pixels, self.backbone, half, half, min_crop_area=1.0, mirror=False)

    @torch.no_grad()
    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """A unit vector for each picture."""
        self.model.eval()
        table = self.table(pictures)
        blocks = np.array_split(np.arange(len(pictures)), 1 + len(pictures) // 256)
        vectors = [self.model.encode_visual(*table.rows(block, None)) for block in blocks]
        return torch.cat(vectors).numpy()

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A unit vector for each sentence, whatever its language."""
        self.model.eval()
        ids = self.tokenizer.encode_batch(texts)
        flat = torch.tensor([number for sentence in ids for number in sentence])
        return self.model.encode_text(flat, Packing.of([len(s) for s in ids])).numpy()


def make_toy_model(pictures: Sequence[Picture], seed: int = 0) -> ToyModel:
    """An untrained model whose vocabulary is that of the pictures' captions."""
    tokenizer = unigram_tokenizer(
        [text for p in pictures for texts in p.record().captions.values() for text in texts]
    )
    torch.manual_seed(seed)
    encoder = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=WIDTH,
        num_layers=1,
        num_heads=4,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=66,
        activation="relu",
        dropout=0.0,
    )
    config = MMPConfig(
        encoder=encoder,
        text_layer=None,
        frozen_layers=0,
        visual_width=WIDTH,
        width=WIDTH,
        pooling_layers=1,
        dropout=0.0,
    )
    model, backbone = MMP(config), SmallConvNet(WIDTH)
    model.add_module("image_backbone", backbone)
    return ToyModel(model, backbone, tokenizer)


def train_toy_model(
    toy: ToyModel,
    pictures: Sequence[Picture],
    *,
    steps: int,
    batch: int = 128,
    quiet: bool = False,
) -> float:
    """Train on pictures and their captions; returns the seconds it took."""
    captions = CaptionTable.build((p.record() for p in pictures), toy.tokenizer)
    objective = MMPObjective(negatives="symmetric", temperature=0.05, intra=False)
    task = MMPTask(
        toy.model, toy.table(pictures), captions, objective, batch=batch, captions_per_image=1
    )
    config = LoopConfig(
        steps=steps, learning_rate=3e-3, schedule="cosine", warmup=steps // 10, grad_clip=1.0
    )
    # One thread: layers this small gain little from a second, and lose much where cores are shared.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = train_loop(
                toy.model, Mixture({"captions": task}), config, Path(folder), quiet=quiet
            )
    finally:
        torch.set_num_threads(threads)
    return run.seconds

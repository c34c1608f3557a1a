"""A cross-encoder that encodes images and captions separately learns which match."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.steps import losses_of
from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.cross_encoder.contrastive import (
    ContrastiveTask,
    embed_separately,
    embed_texts,
)
from polyglance.records import Record
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture

COLOURS, THINGS = 5, 6
ENCODER = EncoderConfig(
    vocab_size=40,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    intermediate_size=64,
    max_position_embeddings=40,
    dropout=0.0,
)
ALL = [(colour, thing) for colour in range(COLOURS) for thing in range(THINGS)]
HELD_OUT = [(colour, (2 * colour + 1) % THINGS) for colour in range(COLOURS)]
"""Combinations that training never shows, though it shows each part with others."""
TRAIN = [pair for pair in ALL if pair not in HELD_OUT]


class Words:
    """A letter is a word; English and German have different letters."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[0, *(ord(letter) - ord("a") + 4 for letter in text), 2] for text in texts]


def captions(pairs: list[tuple[int, int]]) -> CaptionTable:
    def caption(colour: int, thing: int, first: str) -> tuple[str, ...]:
        return (chr(ord(first) + colour) + chr(ord(first) + COLOURS + thing),)

    return CaptionTable.build(
        [Record(captions={"en": caption(c, t, "a"), "de": caption(c, t, "n")}) for c, t in pairs],
        Words(),
    )


def images(pairs: list[tuple[int, int]]) -> RegionTable:
    """Build images of two regions: the colour and the thing."""
    features = torch.zeros(2 * len(pairs), COLOURS + THINGS)
    for number, (colour, thing) in enumerate(pairs):
        features[2 * number, colour] = features[2 * number + 1, COLOURS + thing] = 3.0
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(len(features), 1)
    labels = torch.zeros(len(features), dtype=torch.int64)
    return RegionTable(features, boxes, labels, np.full(len(pairs), 2))


def build_model(system: str) -> CrossEncoderModel:
    torch.manual_seed(0)
    if system == "uc2":
        return UC2(UC2Config(ENCODER, COLOURS + THINGS))
    return M3P(M3PConfig(ENCODER, ("de", "en"), visual_width=COLOURS + THINGS, num_labels=1))


def accuracy(model: CrossEncoderModel, pairs: list[tuple[int, int]]) -> float:
    """Return how often the nearest of these images is a caption's own."""
    table = captions(pairs)
    visual, textual = embed_separately(model, images(pairs), table, np.arange(len(table)))
    assert visual.norm(dim=1).numpy() == pytest.approx(1, abs=1e-5)
    return float(((textual @ visual.T).argmax(1).numpy() == table.record_ids).mean())


@pytest.mark.parametrize("system", ["m3p", "uc2"])
def test_matching_images_are_found_in_both_languages(system: str, tmp_path: Path) -> None:
    model = build_model(system)
    task = ContrastiveTask(model, images(TRAIN), captions(TRAIN), batch=16)
    assert accuracy(model, HELD_OUT) < 0.5
    loop = LoopConfig(steps=100, learning_rate=4e-3, save_every=0)
    train_loop(model, Mixture({"contrastive": task}), loop, tmp_path, quiet=True)
    assert accuracy(model, TRAIN) > 0.95
    assert accuracy(model, HELD_OUT) > 0.85  # by chance one of five


def test_images_of_a_batch_are_distinct_and_have_their_own_caption() -> None:
    sampled: list[np.ndarray] = []

    class Recorded(RegionTable):
        def select(self, images, draws=None, *, view=0):  # type: ignore[no-untyped-def]
            sampled.append(images)
            return super().select(images, draws, view=view)

    table = images(TRAIN)
    recorded = Recorded(table.features, table.boxes, table.labels, table.lengths)
    task = ContrastiveTask(build_model("uc2"), recorded, captions(TRAIN), batch=1000)
    losses = losses_of(task, np.random.default_rng(0))
    assert sorted(sampled[0]) == list(range(len(TRAIN)))
    assert losses["contrastive"].item() > 0
    with pytest.raises(PolyglanceError, match="at least two images with captions"):
        ContrastiveTask(build_model("uc2"), images(TRAIN[:1]), captions(TRAIN[:1]), batch=8)


def test_text_vector_is_the_mean_of_its_words_encoded_alone() -> None:
    model, table = build_model("uc2").eval(), captions(TRAIN)
    with torch.no_grad():
        several = embed_texts(model, pack_captions(table, np.array([3, 8])))
        alone = model.encoder(
            torch.from_numpy(table.gather(np.array([8]))[0].astype(np.int64)),
            pack_captions(table, np.array([8])).packing,
        )
    assert several[1].numpy() == pytest.approx(alone.mean(0).numpy(), abs=1e-5)

"""An encoder that reads pictures and sentences apart learns which belong together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from polyglance.recipes.cross_encoder.image_text_contrastive import (
    ContrastiveTask,
    embed_separately,
    sentence_vectors,
)

from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.cross_encoder.captions import pack_captions
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
NEW = [(colour, (2 * colour + 1) % THINGS) for colour in range(COLOURS)]
"""Never seen together in training, though each was with others."""
KNOWN = [pair for pair in ALL if pair not in NEW]


class Words:
    """A colour and a thing: the same words in English and German but for the letter's case."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[0, *(ord(letter) - ord("a") + 4 for letter in text), 2] for text in texts]


def captions(pairs: list[tuple[int, int]]) -> CaptionTable:
    def said(colour: int, thing: int, first: str) -> tuple[str, ...]:
        return (chr(ord(first) + colour) + chr(ord(first) + COLOURS + thing),)

    return CaptionTable.build(
        [Record(captions={"en": said(c, t, "a"), "de": said(c, t, "n")}) for c, t in pairs], Words()
    )


def pictures(pairs: list[tuple[int, int]]) -> RegionTable:
    """Two regions each, of the colour and of the thing."""
    features = torch.zeros(2 * len(pairs), COLOURS + THINGS)
    for number, (colour, thing) in enumerate(pairs):
        features[2 * number, colour] = features[2 * number + 1, COLOURS + thing] = 3.0
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(len(features), 1)
    labels = torch.zeros(len(features), dtype=torch.int64)
    return RegionTable(features, boxes, labels, np.full(len(pairs), 2))


def model(kind: str) -> M3P | UC2:
    torch.manual_seed(0)
    if kind == "uc2":
        return UC2(UC2Config(ENCODER, COLOURS + THINGS))
    return M3P(M3PConfig(ENCODER, ("de", "en"), visual_width=COLOURS + THINGS, num_labels=1))


def numbers(kind: str, table: CaptionTable) -> np.ndarray | None:
    return (
        np.array([("de", "en").index(name) for name in table.language_codes])
        if kind == "m3p"
        else None
    )


def found(reader: M3P | UC2, kind: str, pairs: list[tuple[int, int]]) -> float:
    """How often the nearest of these pictures is a caption's own."""
    table = captions(pairs)
    rows = np.arange(len(table))
    seen, read = embed_separately(reader, pictures(pairs), table, rows, numbers(kind, table))
    assert seen.norm(dim=1).numpy() == pytest.approx(1, abs=1e-5)
    return float(((read @ seen.T).argmax(1).numpy() == table.record_ids).mean())


@pytest.mark.parametrize("kind", ["m3p", "uc2"])
def test_what_belongs_together_is_found_in_both_languages(kind: str, tmp_path: Path) -> None:
    reader, table = model(kind), captions(KNOWN)
    task = ContrastiveTask(reader, pictures(KNOWN), table, batch=16, languages=numbers(kind, table))
    assert found(reader, kind, NEW) < 0.5
    loop = LoopConfig(steps=200, learning_rate=2e-3, save_every=0)
    train_loop(reader, Mixture({"alignment": task}), loop, tmp_path, quiet=True)
    assert found(reader, kind, KNOWN) > 0.95
    assert found(reader, kind, NEW) > 0.85  # one of five is chance


def test_no_picture_is_drawn_twice_and_a_caption_is_its_own() -> None:
    drawn: list[np.ndarray] = []

    class Watched(RegionTable):
        def take(self, items, generator=None):  # type: ignore[no-untyped-def]
            drawn.append(items)
            return super().take(items, generator)

    some = pictures(KNOWN)
    watched = Watched(some.features, some.boxes, some.labels, some.lengths)
    task = ContrastiveTask(model("uc2"), watched, captions(KNOWN), batch=1000)
    losses = task.losses(np.random.default_rng(0))
    assert sorted(drawn[0]) == list(range(len(KNOWN)))
    assert losses["alignment"].item() > 0
    with pytest.raises(PolyglanceError, match="two pictures with captions"):
        ContrastiveTask(model("uc2"), pictures(KNOWN[:1]), captions(KNOWN[:1]), batch=8)


def test_a_sentence_s_vector_is_the_mean_of_its_words_read_alone() -> None:
    reader, table = model("uc2").eval(), captions(KNOWN)
    with torch.no_grad():
        several = sentence_vectors(reader, pack_captions(table, np.array([3, 8])))
        alone = reader.encoder(
            torch.from_numpy(table.gather(np.array([8]))[0].astype(np.int64)),
            pack_captions(table, np.array([8])).packing,
        )
    assert several[1].numpy() == pytest.approx(alone.mean(0).numpy(), abs=1e-5)

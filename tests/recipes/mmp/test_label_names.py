"""Labels of pictures and their names in many languages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.steps import losses_of
from polyglance.batches.inputs import PixelTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.nn.packing import Packing
from polyglance.recipes.mmp.label_names import (
    LabelNameTask,
    label_loss,
    label_name_records,
)
from polyglance.records import Record
from polyglance.vision.labels import label_table


def test_the_loss_equals_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 7, generator=generator) * 3
    labels = torch.rand(5, 7, generator=generator) < 0.4
    terms = []
    for row in range(5):
        absent = [float(scores[row, k].exp()) for k in range(7) if not labels[row, k]]
        for column in range(7):
            if labels[row, column]:
                own = float(scores[row, column].exp())
                terms.append(-math.log(own / (own + sum(absent))))
    assert float(label_loss(scores, labels)) == pytest.approx(sum(terms) / len(terms), rel=1e-5)
    every = torch.ones(1, 3, dtype=torch.bool)  # nothing to tell apart
    assert float(label_loss(torch.randn(1, 3), every)) == 0


def test_labels_and_names_are_in_the_same_order() -> None:
    records = label_name_records(["en", "de"])
    table = label_table([("dog", "sports ball"), ()])
    assert table.shape == (2, len(records)) == (2, 80)
    shown = [records[row].captions for row in np.flatnonzero(table[0])]
    assert [names["de"][0] for names in shown] == ["Hund", "Ball"]
    assert not table[1].any()
    with pytest.raises(PolyglanceError, match="'unicorn' is none of COCO's classes"):
        label_table([("dog", "unicorn")])


class _Letters:
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) - ord("a") for letter in text] for text in texts]


class _Model(nn.Module):
    """Encodes sentences and images as means, through one layer each."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.cells = nn.Embedding(26, 16), nn.Linear(3, 16)

    def encode_text(self, ids: Tensor, sentences: Packing) -> Tensor:
        return nn.functional.normalize(sentences.mean(self.letters(ids)), dim=1)

    def encode_visual(self, features: Tensor, visuals: Packing) -> Tensor:
        return nn.functional.normalize(self.cells(visuals.mean(features)), dim=1)


def test_pictures_move_to_the_names_of_their_labels_in_every_language() -> None:
    torch.manual_seed(0)
    pixels = torch.zeros(24, 4, 4, 3, dtype=torch.uint8)
    labels = np.zeros((24, 3), bool)
    for number in range(24):  # a colour each, or two
        for colour in {number % 3, (number // 6) % 3}:
            pixels[number, :, :, colour] = 250
            labels[number, colour] = number < 18  # the last have no labels
    names = CaptionTable.build(
        [Record(captions={"en": (word,), "de": (word + "en",)}) for word in ("ab", "cd", "ef")],
        _Letters(),
    )
    model = _Model()
    table = PixelTable(pixels, nn.Identity(), torch.zeros(3), torch.full((3,), 250.0))
    task = LabelNameTask(model, [table], [labels], names, batch=9, temperature=0.1)  # type: ignore[arg-type]
    batch = task.sample(np.random.default_rng(0))
    assert batch.labels.any(1).all()
    assert batch.counts() == {"labels": int(batch.labels.sum())}
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    generator = np.random.default_rng(0)
    before = losses_of(task, generator)["labels"].item()
    for _ in range(60):
        optimiser.zero_grad()
        losses_of(task, generator)["labels"].backward()
        optimiser.step()
    assert losses_of(task, generator)["labels"].item() < 0.3 * before
    features, packing = table.rows(np.arange(24), None)
    images = model.encode_visual(features, packing)
    for language in ("en", "de"):
        rows = names.rows_in_language(language)
        ids, lengths = names.gather(rows)
        texts = model.encode_text(torch.from_numpy(ids).long(), Packing.of(lengths.tolist()))
        best = (images @ texts.T).argmax(1).tolist()
        assert all(pixels[n, 0, 0, k] == 250 for n, k in enumerate(best))


def test_a_corpus_without_labels_is_refused() -> None:
    names = CaptionTable.build([Record(captions={"en": ("ab",)})], _Letters())
    with pytest.raises(PolyglanceError, match="no image has labels"):
        LabelNameTask(_Model(), [None], [np.zeros((3, 1), bool)], names)  # type: ignore[arg-type, list-item]

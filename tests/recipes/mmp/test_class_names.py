"""Classes and their names: features recovered from a classifier, and what is learned of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from helpers.steps import losses_of
from polyglance.batches.inputs import PixelTable
from polyglance.data.captions import CaptionTable
from polyglance.nn.packing import Packing
from polyglance.recipes.mmp.class_names import ClassNameTask, class_features, class_statistics
from polyglance.records import Record


def test_features_of_classes_are_recovered_from_a_classifier() -> None:
    """Weights of linear discriminant analysis lead back to the means that they came from."""
    torch.manual_seed(0)
    classes, width = 12, 24
    means = 3 + 2 * torch.rand(classes, width)
    shape = torch.randn(width, width) / width**0.5
    label = torch.randint(classes, (6000,))
    within = torch.randn(6000, width) @ shape
    features = (means[label] + within).clamp(min=0)
    weights = torch.linalg.solve(shape.T @ shape + 0.1 * torch.eye(width), means.T).T
    found = class_features(features, weights)
    assert (found >= 0).all()
    assert found.norm(dim=1).mean() < 1.4 * features.norm(dim=1).mean()
    centred, expected = found - found.mean(0), means - means.mean(0)
    similarity = torch.cosine_similarity(centred[:, None], expected[None], dim=2)
    assert (similarity.argmax(1) == torch.arange(classes)).all()
    assert similarity.diagonal().mean() > 0.8


class _Letters:
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) - ord("a") for letter in text] for text in texts]


class _Model(nn.Module):
    """Encodes sentences and images as means, through one layer each."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.letters, self.cells = nn.Embedding(26, 16), nn.Linear(channels, 16)

    def encode_text(self, ids: Tensor, sentences: Packing) -> Tensor:
        return nn.functional.normalize(sentences.mean(self.letters(ids)), dim=1)

    def encode_visual(self, features: Tensor, visuals: Packing) -> Tensor:
        return nn.functional.normalize(self.cells(visuals.mean(features)), dim=1)


def make_task() -> tuple[_Model, PixelTable, ClassNameTask]:
    """Return a model, images of one colour each, and the task of their three classes."""
    torch.manual_seed(0)
    pixels = torch.zeros(30, 4, 4, 3, dtype=torch.uint8)
    for number in range(30):
        pixels[number, :, :, number % 3] = 250
    backbone = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU())
    table = PixelTable(pixels, backbone, torch.zeros(3), torch.full((3,), 250.0))
    with torch.no_grad():
        whole, _ = table.rows(np.arange(3), None)
        one = whole.view(3, -1, 8)[:, 0]
        classifier = nn.Linear(8, 3, bias=False)
        classifier.weight.copy_(20 * torch.linalg.pinv(one).T)
    names = CaptionTable.build(
        [
            Record(captions={"en": (a,), "de": (b,)})
            for a, b in (("r", "s"), ("g", "h"), ("b", "c"))
        ],
        _Letters(),
    )
    model = _Model(8)
    return model, table, ClassNameTask(
        model, [table], names, class_statistics([table], classifier), batch=12  # type: ignore[arg-type]
    )  # fmt: skip


def test_targets_are_the_backbone_s_predictions() -> None:
    _, _, task = make_task()
    (probabilities,) = task.statistics.probabilities
    assert probabilities.shape == (30, 3)
    assert (probabilities.argmax(1) == torch.arange(30) % 3).all()
    assert torch.allclose(probabilities.sum(1), torch.ones(30))


def test_images_and_classes_move_to_their_names() -> None:
    model, table, task = make_task()
    generator = np.random.default_rng(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    first = last = 0.0
    for _ in range(60):
        losses = losses_of(task, generator)
        assert set(losses) == {"images", "classes"}
        total = losses["images"] + losses["classes"]
        optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        first, last = first or float(total.detach()), float(total.detach())
    assert last < first / 3
    pictures = model.encode_visual(*table.rows(np.arange(30), None))
    for letters in ("rgb", "shc"):  # English and German names
        ids = torch.tensor([ord(letter) - ord("a") for letter in letters])
        found = (pictures @ model.encode_text(ids, Packing.of([1, 1, 1])).T).argmax(1)
        assert (found == torch.arange(30) % 3).all()


def test_languages_are_drawn_by_their_weights() -> None:
    _, _, task = make_task()
    task.weights = {"de": 1.0}
    drawn = task.names.sample(np.arange(3), np.random.default_rng(0), weights=task.weights)
    assert {task.names.language_codes[task.names.language_ids[row]] for row in drawn} == {"de"}

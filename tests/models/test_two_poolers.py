"""mUNITER and xUNITER: the product of two poolers represents a pair."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing

ENCODER = EncoderConfig(
    vocab_size=20,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=20,
)
CONFIG = UC2Config(
    ENCODER, 3, variant="reference", pooling="relu", image_pooler=True, pooler_size=24
)
TEXT = Text(torch.tensor([1, 5, 2, 1, 7, 8, 2]), Packing.of([3, 4]))
REGIONS = Regions(
    torch.rand(5, 3, generator=torch.Generator().manual_seed(0)),
    torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.1, 0.2, 0.4, 0.9]] * 2 + [[0.5, 0.5, 0.7, 0.8]]),
    Packing.of([2, 3]),
)


@pytest.fixture(scope="module")
def model() -> UC2:
    torch.manual_seed(0)
    built = UC2(CONFIG).eval().requires_grad_(False)
    for parameter in (*built.pooler.parameters(), *built.match.parameters()):
        torch.nn.init.normal_(parameter)
    return built


def slow_pooled(model: UC2) -> Tensor:
    """Pool each pair by itself."""
    pooled, first_word, first_region = [], 0, 0
    output = model(TEXT, REGIONS)
    for words, regions in zip(TEXT.packing.lengths, REGIONS.packing.lengths, strict=True):
        text = (model.pooler.text.weight @ output.text[first_word]) + model.pooler.text.bias
        image = (model.pooler.image.weight @ output.regions[first_region]) + model.pooler.image.bias
        pooled.append(text.clamp(min=0) * image.clamp(min=0))
        first_word, first_region = first_word + int(words), first_region + int(regions)
    return torch.stack(pooled)


def test_pairs_match_by_the_product_of_both_first_vectors(model: UC2) -> None:
    classes = slow_pooled(model) @ model.match.weight.T + model.match.bias
    assert classes.shape == (2, 2)
    assert (classes[0] - classes[1]).abs().max() > 1e-3
    images = model.embed_regions(REGIONS)
    pooled = model.encode_pair(TEXT, images)
    torch.testing.assert_close(pooled, model(TEXT, REGIONS).pooled)
    torch.testing.assert_close(model.match_logits(pooled), classes[:, 1] - classes[:, 0])
    torch.testing.assert_close(model.score(TEXT, images), classes[:, 1])


def test_text_alone_is_encoded_without_an_image_to_pool(model: UC2) -> None:
    output = model(TEXT, None)
    assert output.pooled.shape == (2, 32)
    assert not output.pooled[:, 16:].any()


def test_answers_are_read_from_the_product(model: UC2) -> None:
    answering = VQAModel(model, 4, head_width=10, answer_embeddings=False).eval()
    with torch.no_grad():
        torch.testing.assert_close(answering(TEXT, REGIONS), answering.head(slow_pooled(model)))


def test_the_papers_variant_has_no_pooler_to_multiply() -> None:
    with pytest.raises(PolyglanceError, match="of the reference variant"):
        UC2Config(ENCODER, 3, image_pooler=True)

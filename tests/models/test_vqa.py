"""The three terms of VQA logits: classes, answer embeddings, image similarity."""

from __future__ import annotations

import torch
from torch import Tensor

from polyglance.models.projection_heads import ProjectionHeads, ProjectionHeadsConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing

ENCODER = EncoderConfig(
    vocab_size=20,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=20,
)
MEANINGS = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)) + 5.0


def answering() -> VQAModel:
    torch.manual_seed(0)
    return VQAModel(UC2(UC2Config(ENCODER, 3)), 4).eval()


def asked(model: VQAModel) -> Tensor:
    text = Text(torch.tensor([1, 5, 2, 1, 7, 8, 2]), Packing.of([3, 4]))
    regions = Regions(
        torch.ones(3, 3), torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 3), Packing.of([1, 2])
    )
    logits: Tensor = model(text, regions)
    return logits


@torch.no_grad()
def test_answers_with_the_same_embedding_share_evidence() -> None:
    model = answering()
    alike = MEANINGS.clone()
    alike[2] = alike[0]
    worth = torch.full((4,), 0.25)
    model.initialise_head(worth, alike)
    model.head[-1].weight.zero_()  # type: ignore[operator]
    torch.nn.init.normal_(model.answer_projection.weight)
    logits = asked(model)
    torch.testing.assert_close(logits[:, 0], logits[:, 2])
    assert (logits[:, 0] - logits[:, 1]).abs().min() > 0.01


@torch.no_grad()
def test_initialise_head_sets_centred_embeddings_and_mean_targets() -> None:
    model = answering()
    model.initialise_head(torch.tensor([0.5, 0.1, 0.1, 0.1]), MEANINGS)
    # All answers lie far from the origin, in different directions from their mean.
    cosines = model.answer_embeddings @ model.answer_embeddings.T
    assert cosines.diagonal().sub(1).abs().max() < 1e-5
    assert cosines.fill_diagonal_(-1).max() < 0.7
    assert asked(model).softmax(1)[:, 0].min() > 0.6
    plain = answering()
    plain.initialise_head(torch.tensor([0.5, 0.1, 0.1, 0.1]))
    assert not plain.answer_embeddings.any()


HEADS = ProjectionHeadsConfig(visual_width=3, width=16, pooling_layers=1, pooling_heads=2)


def seeing() -> tuple[VQAModel, Tensor]:
    """Build a model with answer similarity, and the features of five images."""
    torch.manual_seed(0)
    model = VQAModel(UC2(UC2Config(ENCODER, 3)), 4, similarity=HEADS).eval()
    heads = ProjectionHeads(HEADS).eval()
    regions = torch.randn(10, 3)
    images = heads.encode_images(regions, Packing.of([2] * 5))
    assert model.similarity is not None
    model.similarity.initialise(heads, images[:4], images)
    return model, regions


@torch.no_grad()
def test_similarity_is_normalised_per_answer() -> None:
    model, regions = seeing()
    assert model.similarity is not None
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 10)
    similarity = model.similarity(Regions(regions, boxes, Packing.of([2] * 5)))
    # Answer vectors equal image vectors: each is nearest to its own image.
    assert similarity[:4].argmax(0).tolist() == [0, 1, 2, 3]
    # In standard deviations from an answer's mean similarity.
    torch.testing.assert_close(similarity.mean(0), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(similarity.std(0, correction=0), torch.ones(4), atol=1e-4, rtol=0)


@torch.no_grad()
def test_the_question_weights_the_similarity() -> None:
    model, regions = seeing()
    assert model.similarity is not None
    text = Text(torch.tensor([1, 5, 2]), Packing.of([3]))
    one = Regions(regions[:2], torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2), Packing.of([2]))
    similarity = model.similarity(one)
    model.similarity_weight.bias.zero_()
    blind = model(text, one)
    model.similarity_weight.bias.fill_(2.0)
    torch.testing.assert_close(model(text, one), blind + 2 * similarity)


def test_similarity_is_frozen() -> None:
    model, regions = seeing()
    text = Text(torch.tensor([1, 5, 2]), Packing.of([3]))
    one = Regions(regions[:2], torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2), Packing.of([2]))
    model(text, one).sum().backward()
    assert model.similarity is not None
    assert all(parameter.grad is None for parameter in model.similarity.parameters())
    assert model.similarity_weight.weight.grad is not None


@torch.no_grad()
def test_similarity_is_computed_in_full_precision_under_autocast() -> None:
    model, regions = seeing()
    assert model.similarity is not None
    one = Regions(regions[:2], torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2), Packing.of([2]))
    plain = model.similarity(one)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model.similarity(one), plain)


@torch.no_grad()
def test_similarity_of_a_single_image_has_a_bounded_scale() -> None:
    model, regions = seeing()
    assert model.similarity is not None
    heads = model.similarity.projection_heads
    image = heads.encode_images(regions[:2], Packing.of([2]))
    model.similarity.initialise(heads, model.similarity.answer_vectors.clone(), image)
    one = Regions(regions[:2], torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2), Packing.of([2]))
    torch.testing.assert_close(model.similarity(one), torch.zeros(1, 4), atol=1e-3, rtol=0)


@torch.no_grad()
def test_folded_answer_embeddings_give_the_same_logits() -> None:
    model = answering()
    model.initialise_head(torch.full((4,), 0.25), MEANINGS)
    before = asked(model)
    model.fold_answer_embeddings()
    assert model.answer_projection is None
    assert "answer_embeddings" not in model.state_dict()
    torch.testing.assert_close(asked(model), before)
    model.fold_answer_embeddings()  # a second time changes nothing
    torch.testing.assert_close(asked(model), before)

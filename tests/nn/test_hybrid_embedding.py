from __future__ import annotations

import numpy as np
import pytest
import torch

from polyglance.nn.hybrid_embedding import HybridEmbedding, Projection, principal_components

# Two specials, four words of the first language, three of the second.
LANGUAGE_OF = torch.tensor([-1, -1, 0, 0, 0, 0, 1, 1, 1])
RANKS = torch.tensor([-1, -1, 0, 1, 2, 3, 0, 1, 2])
VECTORS = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
TOKENS = torch.tensor([0, 0, 8, 8, 5, 9, 8, 8, 5])
LATENT = torch.randn(10, 4, generator=torch.Generator().manual_seed(1))


def build(projection: Projection = "language", own_words: int | None = 2) -> HybridEmbedding:
    torch.manual_seed(0)
    return HybridEmbedding.build(
        VECTORS, LANGUAGE_OF, RANKS, own_words=own_words, own_width=3, width=4,
        projection=projection, tokens=TOKENS, latent=LATENT,
    )  # fmt: skip


def test_frequent_words_have_own_vectors_and_rare_words_share_tokens() -> None:
    words = build()
    rows = words(torch.arange(9))
    # Words 4 and 8 share token 5 across languages; word 5 has token 9. Token 8 is unused.
    torch.testing.assert_close(rows[[4, 5, 8]], LATENT[[5, 9, 5]])
    assert words.latent.shape == (2, 4)
    for language, numbers in enumerate([[2, 3], [6, 7]]):
        in_language = language == LANGUAGE_OF
        own = principal_components(VECTORS[in_language], 3)[:2]
        torch.testing.assert_close(rows[numbers], words.projections[language](own))
    assert not rows[0].any()
    torch.testing.assert_close(rows[1], words.mask[0])


@pytest.mark.parametrize(
    ("projection", "own_words", "parameters"),
    [
        ("language", 2, 4 + 2 * 4 + 4 * 3 + 2 * (3 * 4 + 4)),
        ("shared", 2, 4 + 2 * 4 + 4 * 3 + (3 * 4 + 4)),
        ("language", 0, 4 + 3 * 4),  # the mask and all three tokens
        ("language", None, 4 + 7 * 3 + 2 * (3 * 4 + 4)),
    ],
)
def test_parameter_count_is_that_of_the_table(
    projection: Projection, own_words: int | None, parameters: int
) -> None:
    words = build(projection, own_words)
    assert sum(p.numel() for p in words.parameters()) == parameters
    words(torch.arange(9)).sum().backward()
    assert all(p.grad is not None for p in words.parameters() if p.numel())


def test_without_a_projection_vectors_are_unchanged() -> None:
    words = HybridEmbedding.build(
        VECTORS, LANGUAGE_OF, RANKS, own_words=None, own_width=6, width=6, projection="none"
    )
    torch.testing.assert_close(words(torch.arange(2, 9)), VECTORS[2:])
    with pytest.raises(ValueError, match="own vectors of size 3 need a projection to 4"):
        build("none")


def test_gradients_reach_only_words_of_the_batch() -> None:
    words = build()
    words(torch.tensor([3, 5])).sum().backward()
    grads = [p.grad for p in (words.own[0], words.own[1], words.latent)]
    assert [g is not None and g.any(1).tolist() for g in grads] == [
        [False, True],
        [False, False],
        [False, True],
    ]


def test_drift_is_the_squared_distance_from_initial_vectors() -> None:
    words = build()
    assert words.drift().item() == 0
    with torch.no_grad():
        words.own[0][1, 2] += 3
        words.own[1][0, 0] -= 4
    assert words.drift().item() == pytest.approx(25, abs=1e-4)


@pytest.mark.parametrize("projection", ["language", "shared"])
def test_only_an_added_language_is_trainable(projection: Projection) -> None:
    words = build(projection)
    before = words(torch.arange(9)).detach()
    own = torch.randn(2, 3)
    words.add_language(own, torch.tensor([1, -1]))
    rows = words(torch.arange(13))
    assert torch.equal(rows[:9], before)
    layer = words.projections[2 if projection == "language" else 0]
    torch.testing.assert_close(rows[9:11], layer(own))
    torch.testing.assert_close(rows[11:], torch.stack([words.latent[1], torch.zeros(4)]))
    learned = sum(p.numel() for p in words.parameters() if p.requires_grad)
    assert learned == 2 * 3 + (3 * 4 + 4 if projection == "language" else 0)


def test_principal_components_keep_the_most_variance() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(50, 6)) * [5, 1, 3, 0.1, 0.1, 0.1] + 7
    reduced = principal_components(torch.from_numpy(vectors), 2)
    _, spread, axes = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    expected = (vectors - vectors.mean(0)) @ axes[:2].T
    np.testing.assert_allclose(np.abs(reduced.numpy()), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(reduced.numpy(), axis=0), spread[:2], atol=1e-9)
    again = principal_components(torch.from_numpy(vectors[::-1].copy()), 2).flip(0)
    torch.testing.assert_close(again, reduced)

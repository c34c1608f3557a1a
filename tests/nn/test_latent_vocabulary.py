from __future__ import annotations

import pytest
import torch

from polyglance.nn.latent_vocabulary import ChoiceGradient, LatentVocabulary

WORDS, TOKENS, CANDIDATES = 4000, 30, 5


def make(gradient: ChoiceGradient = "straight-through", explore: float = 0.2) -> LatentVocabulary:
    torch.manual_seed(0)
    model = LatentVocabulary(
        torch.randn(WORDS, 8), tokens=TOKENS, width=TOKENS, explore=explore,
        candidates=CANDIDATES, gradient=gradient,
    )  # fmt: skip
    with torch.no_grad():
        model.latent.copy_(torch.eye(TOKENS))  # the vector identifies the token
    return model


def test_exploration_draws_a_candidate_at_the_given_rate() -> None:
    model = make().train()
    chosen = model(torch.arange(WORDS)).argmax(1)
    scores = model.scores(model.features)
    rank = (scores > scores.gather(1, chosen[:, None])).sum(1)
    assert rank.max() == CANDIDATES - 1
    # One random choice in five is the best candidate.
    assert (rank > 0).float().mean().item() == pytest.approx(0.2 * 4 / 5, abs=0.02)
    others = torch.bincount(rank, minlength=CANDIDATES)[1:] / WORDS
    torch.testing.assert_close(others, torch.full((4,), 0.04), atol=0.012, rtol=0)


def test_a_word_has_one_token_per_batch() -> None:
    rows = make(explore=1.0).train()(torch.tensor([7, 3, 7, 7, 3]))
    assert torch.equal(rows[0], rows[2])
    assert torch.equal(rows[0], rows[3])
    assert torch.equal(rows[1], rows[4])


@pytest.mark.parametrize("gradient", ["straight-through", "weighted"])
def test_in_evaluation_every_word_has_its_best_token(gradient: ChoiceGradient) -> None:
    model = make(gradient, explore=1.0).eval()
    best = model.scores(model.features).argmax(1)
    assert torch.equal(model(torch.arange(WORDS)).argmax(1), best)
    assert torch.equal(model.assign(), best)


def test_added_words_get_one_of_the_remaining_tokens() -> None:
    model = make()
    later = torch.randn(50, 8)
    scores = model.scores(later)
    chooser = model.chooser()
    assert torch.equal(chooser(later, block=7), scores.argmax(1))
    left = torch.tensor([3, 11, 12, 29])
    assert torch.equal(chooser.only(left)(later), scores[:, left].argmax(1))
    assert list(chooser.parameters()) == []


@pytest.mark.parametrize("gradient", ["straight-through", "weighted"])
def test_vectors_and_gradients_agree_with_the_definition(gradient: ChoiceGradient) -> None:
    model = make(gradient).eval()
    torch.nn.init.normal_(model.latent)
    weight = torch.randn(TOKENS)
    rows = model(torch.tensor([5]))
    (rows @ weight).sum().backward()
    with torch.no_grad():
        scores, tokens = model.scores(model.features[5]).topk(CANDIDATES)
        share = scores.softmax(0)
        chosen = model.latent[tokens[0]]
        values = model.latent[tokens] @ weight
        if gradient == "weighted":
            torch.testing.assert_close(rows[0], share[0] * chosen)
            slope = values[0] * share[0] * (torch.eye(CANDIDATES)[0] - share)
            on_vector = share[0] * weight
        else:
            torch.testing.assert_close(rows[0], chosen)
            slope = share * (values - (share * values).sum())
            on_vector = weight
    assert model.scores.bias.grad is not None
    assert model.latent.grad is not None
    torch.testing.assert_close(model.scores.bias.grad[tokens], slope, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(model.latent.grad[tokens[0]], on_vector)
    assert model.latent.grad.any(1).sum() == 1

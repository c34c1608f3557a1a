from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.config import dump, load
from polyglance.errors import PolyglanceError
from polyglance.models.smalr import (
    SMALR,
    CaptionGrid,
    SMALRConfig,
    SMALRObjective,
    latent_vocabulary,
    smalr_losses,
    word_table,
)
from polyglance.nn.hybrid_embedding import HybridEmbedding, principal_components
from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.language_adversary import language_adversary
from polyglance.objectives.masked_cross_language import mclm_loss
from polyglance.objectives.top_triplets import TripletRule, matching_triplets, neighbour_triplets

# Three languages of ten words each after the two specials.
LANGUAGE_OF = torch.tensor([-1, -1] + [0] * 10 + [1] * 10 + [2] * 10)
RANKS = torch.tensor([-1, -1, *range(10), *range(10), *range(10)])
VECTORS = torch.randn(32, 12, generator=torch.Generator().manual_seed(0))
CONFIG = SMALRConfig(
    own_words=4, own_width=5, latent_tokens=20, candidates=3, universal_width=8, gru_width=7,
    visual_width=6, visual_hidden=9, width=10, dropout=0.0,
)  # fmt: skip


def make(config: SMALRConfig = CONFIG) -> SMALR:
    torch.manual_seed(0)
    latent = latent_vocabulary(config, VECTORS)
    words = word_table(config, VECTORS, LANGUAGE_OF, RANKS, latent)
    return SMALR(config, words, num_languages=3, steps=10).eval()


# Four images with two sentences per language; the second language has none for image 3.
PRESENT = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool).repeat(1, 2)
LENGTHS = [3, 1, 4, 2, 5, 3, 2, 2, 6, 1, 2, 3, 3, 4, 2, 1, 2, 5, 4, 3, 2, 4]


def grid() -> CaptionGrid:
    generator = torch.Generator().manual_seed(1)
    languages = torch.arange(3).repeat_interleave(PRESENT.sum(1))
    words = languages.repeat_interleave(torch.tensor(LENGTHS))
    ids = 2 + 10 * words + torch.randint(10, words.shape, generator=generator)
    return CaptionGrid(
        ids, Packing.of(LENGTHS), languages, PRESENT.flatten().nonzero().flatten(), PRESENT,
        torch.arange(4).repeat(2), ItemDraws.of(0, len(LENGTHS)),
    )  # fmt: skip


FEATURES = torch.randn(7, 6, generator=torch.Generator().manual_seed(2))
PICTURES = Packing.of([1, 3, 1, 2])


def one_by_one(model: SMALR, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return each sentence's mean word vector and final vector, computed alone, as grids."""
    universal, final = torch.zeros(24, 8), torch.zeros(24, 10)
    for place, words in zip(grid().grid_positions, ids.split(LENGTHS), strict=True):
        universal[place] = model.words(words).mean(0)
        final[place] = model.encode_text(words, Packing.of([len(words)]))[0]
    return universal.view(3, 8, 8), final.view(3, 8, 10)


def test_losses_are_equation_4() -> None:
    model = make().requires_grad_(False)
    captions = grid()
    model.reversal_schedule.steps_taken += 3
    assert isinstance(model.words, HybridEmbedding)
    model.words.own[0][1, 2] += 3  # for a drift of 9 + 16
    model.words.own[2][3, 0] -= 4
    # With every word masked, the result does not depend on the draw.
    losses = smalr_losses(model, FEATURES, PICTURES, captions, SMALRObjective(mask_rate=1.0))
    pictures = torch.cat([
        model.encode_visual(part.mean(0, keepdim=True), Packing.of([1]))
        for part in FEATURES.split([1, 3, 1, 2])
    ])  # fmt: skip
    universal, final = one_by_one(model, captions.ids)
    masked_universal, masked_final = one_by_one(model, torch.ones_like(captions.ids))
    about = captions.image_ids
    flat = universal.flatten(0, 1)[captions.grid_positions]
    assert model.language_classifier is not None
    # Losses are compared before weighting: small weights would hide errors.
    weights = {
        "match": 1.0, "match_masked": 1.0, "masked": 1e-4, "neighbours": 5e-2,
        "adversary": 1e-6, "drift": 5e-7,
    }  # fmt: skip
    expected = {
        "match": matching_triplets(pictures, final, PRESENT, about),
        "match_masked": matching_triplets(pictures, masked_final, PRESENT, about),
        "masked": mclm_loss(masked_universal, universal, PRESENT, model.mclm_layers[0])
        + mclm_loss(masked_final, final, PRESENT, model.mclm_layers[1]),
        "neighbours": neighbour_triplets(universal, PRESENT, about)
        + neighbour_triplets(final, PRESENT, about),
        "adversary": language_adversary(flat, captions.languages, model.language_classifier, 1.0),
        "drift": torch.tensor(25.0),
    }
    assert set(losses) == set(expected)
    for name, value in expected.items():
        actual = losses[name] / weights[name]
        torch.testing.assert_close(actual, value, atol=1e-6, rtol=1e-5, msg=name)
    masked = masked_universal.flatten(0, 1)[captions.grid_positions]
    of_masked = language_adversary(masked, captions.languages, model.language_classifier, 1.0)
    assert abs(of_masked - expected["adversary"]) > 1e-2
    assert losses["match"] > 0
    assert losses["masked"] > 0


@pytest.mark.parametrize("reversal", [1.0, 0.25])
def test_the_adversary_learns_languages_and_words_learn_to_hide_them(reversal: float) -> None:
    model = make()
    model.reversal_schedule.steps_taken += 4  # of ten steps
    strength = reversal * (2 / (1 + math.exp(-10 * 0.4)) - 1)
    captions = grid()
    assert isinstance(model.words, HybridEmbedding)
    assert model.language_classifier is not None
    learners = [model.words.own[0], model.words.latent, model.language_classifier.weight]
    objective = SMALRObjective(adversary_weight=0.1, reversal=reversal)
    losses = smalr_losses(model, FEATURES, PICTURES, captions, objective)
    actual = torch.autograd.grad(losses["adversary"], learners)
    averages = captions.packing.mean(model.words(captions.ids))
    guessed = F.cross_entropy(model.language_classifier(averages), captions.languages)
    plain = torch.autograd.grad(0.1 * guessed, learners)
    for words, towards in zip(actual[:2], plain[:2], strict=True):
        assert towards.abs().max() > 1e-4
        torch.testing.assert_close(words, -strength * towards)
    torch.testing.assert_close(actual[2], plain[2])


def test_every_parameter_gets_gradients_and_parts_are_optional() -> None:
    model = make().train()
    losses = smalr_losses(model, FEATURES, PICTURES, grid(), SMALRObjective(mask_rate=0.5))
    torch.stack(list(losses.values())).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    plain = replace(CONFIG, masked_modelling=False, adversary=False)
    objective = SMALRObjective(match_masked=False, neighbour_weight=0.0, drift_weight=0.0)
    assert set(smalr_losses(make(plain), FEATURES, PICTURES, grid(), objective)) == {"match"}


def test_folding_keeps_sentence_vectors() -> None:
    model = make()
    captions = grid()
    folded = model.fold()
    torch.testing.assert_close(
        folded.encode_text(captions.ids, captions.packing),
        model.encode_text(captions.ids, captions.packing),
    )
    used = word_table_rows(model)
    assert folded.table.shape == (used, 8)
    remaining = sum(p.numel() for p in folded.parameters())
    pictures = sum(p.numel() for p in model.image_branch.parameters())
    assert remaining + pictures == model.num_test_time_parameters()


def word_table_rows(model: SMALR) -> int:
    assert isinstance(model.words, HybridEmbedding)
    return 2 + len(model.words.latent) + 3 * 4


def test_unused_tokens_are_dropped_and_assignments_kept() -> None:
    torch.manual_seed(0)
    latent = latent_vocabulary(CONFIG, VECTORS)
    words = word_table(CONFIG, VECTORS, LANGUAGE_OF, RANKS, latent)
    rare = RANKS >= 4
    tokens = latent.assign()
    assert len(words.latent) == len(tokens[rare].unique()) < 20
    ids = torch.arange(32)[rare]
    torch.testing.assert_close(words(ids), latent.latent[tokens[rare]])
    before = words.slots.clone()
    words(ids).sum().backward()
    torch.optim.Adam(words.parameters()).step()
    assert torch.equal(words.slots, before)
    same = tokens[rare][:, None] == tokens[rare]
    assert torch.equal((words.slots[ids][:, None] == words.slots[ids]), same)


def test_parameter_counts_at_the_papers_shape() -> None:
    config = SMALRConfig()
    own = [torch.zeros(5000, 50)] * 10
    words = HybridEmbedding(torch.zeros(2, dtype=torch.int64), own, torch.zeros(14_000, 512))
    model = SMALR(config, words, num_languages=10)
    table = 10 * 5000 * 50 + 10 * (50 * 512 + 512) + 512 + 14_000 * 512
    sentences = 3 * (512 * 512 + 512 * 512 + 2 * 512) + 512 * 512 + 512
    pictures = 2048 * 2048 + 2048 + 2 * 2048 + 2048 * 512 + 512
    training_only = 2 * (1024 * 1024 + 1024) + 512 * 10 + 10
    assert model.num_trainable_parameters() == table + sentences + pictures + training_only
    assert model.num_trainable_parameters() < 20_000_000
    assert model.num_test_time_parameters() == sentences + pictures == 7_088_128  # the paper: 7.1M


NEWCOMER = torch.randn(9, 12, generator=torch.Generator().manual_seed(3))
"""Vectors of the nine words of a fourth language."""


def scores_of(model: SMALR, captions: CaptionGrid) -> Tensor:
    sentences = model.eval().encode_text(captions.ids, captions.packing)
    return sentences @ model.encode_visual(FEATURES, PICTURES).T


def a_step(model: SMALR, captions: CaptionGrid) -> dict[str, Tensor]:
    learners = [p for p in model.train().parameters() if p.requires_grad]
    losses = smalr_losses(model, FEATURES, PICTURES, captions, SMALRObjective())
    torch.stack(list(losses.values())).sum().backward()
    torch.optim.Adam(learners, lr=0.1).step()
    return losses


@pytest.mark.parametrize("free", [False, True])
def test_training_an_added_language_changes_nothing_else(free: bool) -> None:
    model = make()
    old, captions = grid(), grid()
    before = scores_of(model, old)
    model.add_language(NEWCOMER)
    assert model.num_trainable_parameters() == 4 * 5 + 5 * 8 + 8
    assert torch.equal(scores_of(model, old), before)
    later = captions.ids % 9 + 32
    new = replace(captions, ids=later, languages=torch.full_like(captions.languages, 3))
    untaught = scores_of(model, new)
    if free:
        model.requires_grad_(True)
    losses = a_step(model, new)
    assert "adversary" not in losses  # the classifier has three classes
    assert not torch.equal(scores_of(model, new), untaught)
    # This would change if anything else were trainable.
    assert torch.equal(scores_of(model, old), before) is not free


def test_the_adversary_ignores_languages_added_later() -> None:
    model = make().requires_grad_(False)
    captions = grid()
    objective = SMALRObjective()
    model.add_language(NEWCOMER)
    first = captions.languages == 0
    mixed = replace(captions, languages=torch.where(first, 3, captions.languages))
    averages = captions.packing.mean(model.words(captions.ids))[~first]
    assert model.language_classifier is not None
    expected = language_adversary(
        averages, captions.languages[~first], model.language_classifier, 1.0
    )
    actual = smalr_losses(model, FEATURES, PICTURES, mixed, objective)["adversary"]
    torch.testing.assert_close(actual / objective.adversary_weight, expected)


def test_rare_words_of_an_added_language_get_existing_tokens() -> None:
    torch.manual_seed(0)
    latent = latent_vocabulary(CONFIG, VECTORS)
    words = word_table(CONFIG, VECTORS, LANGUAGE_OF, RANKS, latent)
    model = SMALR(CONFIG, words, num_languages=3)
    # A word with the vector of a rare word of another language gets its token.
    vectors = torch.cat([NEWCOMER[:4], VECTORS[[10, 20, 31]], NEWCOMER[4:]])
    model.add_language(vectors)
    rows = words(torch.arange(32, 44))
    torch.testing.assert_close(rows[4:7], words(torch.tensor([10, 20, 31])))
    remaining = latent.assign()[RANKS >= 4].unique()
    scores = latent.scores(NEWCOMER[4:])[:, remaining]
    torch.testing.assert_close(rows[7:], latent.latent[remaining[scores.argmax(1)]])
    own = principal_components(vectors, 5)[:4]
    torch.testing.assert_close(rows[:4], words.projections[3](own))


def test_an_added_language_costs_one_projection_and_its_words() -> None:
    words = HybridEmbedding(
        torch.zeros(2, dtype=torch.int64), [torch.zeros(9, 50)], torch.zeros(0, 512)
    )
    model = SMALR(SMALRConfig(visual_width=8, visual_hidden=8), words, num_languages=1)
    model.add_language(torch.randn(5000, 60))
    assert model.num_trainable_parameters() == 5000 * 50 + 26_112


def test_an_added_language_needs_tokens_and_vectors_of_the_same_kind() -> None:
    model = make()
    with pytest.raises(PolyglanceError, match="vectors of size 12, not 7"):
        model.add_language(torch.randn(9, 7))
    alone = SMALR(CONFIG, word_table(CONFIG, VECTORS, LANGUAGE_OF, RANKS), num_languages=3)
    with pytest.raises(PolyglanceError, match="has no latent tokens for the rare words"):
        alone.add_language(NEWCOMER)
    alone.add_language(NEWCOMER[:4])
    agnostic = make(replace(CONFIG, own_words=0))
    agnostic.add_language(NEWCOMER)
    assert agnostic.num_trainable_parameters() == 0
    assert agnostic.words(torch.arange(32, 41)).any(1).all()


def test_a_model_with_several_branches_refuses_a_new_language() -> None:
    with pytest.raises(PolyglanceError, match="train a new model"):
        make(replace(CONFIG, branches="language")).add_language(NEWCOMER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gru_width": 0}, "gru_width is 0: give 1 or more"),
        ({"explore": 1.5}, "explore is 1.5: give a share from 0 to 1"),
        ({"own_words": -1}, "own_words is -1: give 0 or more"),
        ({"own_words": 0, "latent_tokens": 0}, "no word has a vector"),
        ({"projection": "none"}, "own vectors of size 5 need a projection to 8"),
    ],
)
def test_an_impossible_shape_raises_a_clear_error(change: dict[str, int], message: str) -> None:
    with pytest.raises(PolyglanceError, match=message):
        replace(CONFIG, **change)  # type: ignore[arg-type]


def test_invalid_objectives_raise_clear_errors_and_valid_ones_round_trip(
    tmp_path: Path,
) -> None:
    with pytest.raises(PolyglanceError, match="mask_rate is 2: give a share from 0 to 1"):
        SMALRObjective(mask_rate=2)
    with pytest.raises(PolyglanceError, match="negatives is 0: give 1 or more"):
        TripletRule(negatives=0)
    settings = {
        SMALRConfig: replace(CONFIG, own_words=None, projection="shared"),
        SMALRObjective: SMALRObjective(triplets=TripletRule(distance="euclidean")),
    }
    for kind, given in settings.items():
        (tmp_path / "settings.yaml").write_text(dump(given))
        assert load(kind, tmp_path / "settings.yaml") == given

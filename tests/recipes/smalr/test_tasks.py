"""SMALR and its baselines on the toy dataset: what is drawn, and that it is learned."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from helpers.steps import losses_of
from helpers.toy_smalr import VECTORS, VISUAL, Numbers, ToySMALRData, toy_smalr_data
from polyglance.batches.inputs import FeatureTable, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.smalr import SMALR, SMALRObjective, latent_vocabulary
from polyglance.models.smalr_baselines import WORD_MODELS, WordModel, build_word_model
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.latent_vocabulary import LatentVocabulary
from polyglance.recipes.smalr.tasks import CaptionGridSampler, SentenceAlignmentTask, SMALRTask
from polyglance.records import Record
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, Task

CPU = torch.device("cpu")
STEPS = 40


# What is drawn


def uneven() -> CaptionTable:
    """Five captions in xx, one in yy, none in zz; one caption in zz; nothing at all."""
    five = tuple(f"{n} {n}" for n in range(10, 15))
    records = [Record(captions={"xx": five, "yy": ("20",)}), Record(captions={"zz": ("30",)})]
    return CaptionTable.build([*records, Record()], Numbers(), languages=("xx", "yy", "zz"))


def test_grid_has_two_captions_per_language() -> None:
    grids, generator = CaptionGridSampler(uneven()), np.random.default_rng(0)
    assert grids.items.tolist() == [0, 1]
    drawn: Counter[tuple[int, int]] = Counter()
    for _ in range(1000):
        grid = grids.sample(np.array([1, 0]), generator)
        assert grid.image_ids.tolist() == [0, 1, 0, 1]
        assert grid.present.int().tolist() == [[0, 1, 0, 1], [0, 1, 0, 1], [1, 0, 1, 0]]
        assert grid.languages.tolist() == [0, 0, 1, 1, 2, 2]
        assert grid.grid_positions.tolist() == [1, 3, 5, 7, 8, 10]
        first, second, *others = (int(ids[0]) for ids in grid.ids.split([2, 2, 1, 1, 1, 1]))
        assert others == [20, 20, 30, 30]
        drawn[first, second] += 1
    assert all(first != second for first, second in drawn)
    assert len(drawn) == 20
    assert min(drawn.values()) > 25


def test_vectors_are_scattered_to_the_grid() -> None:
    grid = CaptionGridSampler(uneven()).sample(np.array([1, 0]), np.random.default_rng(0))
    spread = grid.to_grid(torch.arange(6.0)[:, None] + 1)[..., 0]
    assert spread.tolist() == [[0, 1, 0, 2], [0, 3, 0, 4], [5, 0, 6, 0]]


def test_languages_are_fixed_or_sampled() -> None:
    chosen = CaptionGridSampler(uneven(), languages=("zz", "yy"), captions_per_language=1)
    grid = chosen.sample(np.array([0, 1]), np.random.default_rng(0))
    assert grid.languages.tolist() == [1, 2]
    assert grid.ids.tolist() == [20, 30]
    some, seen = CaptionGridSampler(uneven(), languages_per_step=2), Counter()
    for seed in range(600):
        grid = some.sample(np.array([0, 1]), np.random.default_rng(seed))
        assert grid.present.shape == (2, 4)
        seen.update(set(grid.languages.tolist()))
    assert all(abs(count - 400) < 60 for count in seen.values())


def test_invalid_sampler_settings_are_rejected() -> None:
    with pytest.raises(PolyglanceError, match="captions_per_language is 3: give 1 or 2"):
        CaptionGridSampler(uneven(), captions_per_language=3)
    with pytest.raises(PolyglanceError, match="no caption is in qq: choose from xx, yy, zz"):
        CaptionGridSampler(uneven(), languages=("qq",))
    empty = CaptionTable.build([Record()], Numbers(), languages=("xx",))
    with pytest.raises(PolyglanceError, match="no image has a caption to train on"):
        _ = CaptionGridSampler(empty).items


# What is learned


def small(name: str, *, gru_width: int = 32, visual_hidden: int = 64) -> WordModel:
    model = WORD_MODELS[name]
    whole = name in ("mule", "parallel-embn")
    config = replace(
        model.config,
        own_words=model.config.own_words and 12,
        own_width=VECTORS if whole else 12,
        universal_width=VECTORS if model.config.projection == "none" else 32,
        gru_width=gru_width,
        visual_width=VISUAL,
        visual_hidden=visual_hidden,
        width=32,
        dropout=0.1,
        latent_tokens=min(model.config.latent_tokens, 64),
        candidates=5,
    )
    return replace(model, config=config)


def learn(model: nn.Module, task: Task, folder: Path, steps: int = STEPS) -> None:
    config = LoopConfig(steps=steps, learning_rate=1e-2, grad_clip=2.0, log_every=0)
    train_loop(model, Mixture({"task": task}), config, folder, quiet=True)


@lru_cache
def pretrained(folder: Path) -> LatentVocabulary:
    toy = toy_smalr_data(("en", "de"))
    torch.manual_seed(0)
    latent = latent_vocabulary(small("smalr").config, toy.vectors)
    learn(
        latent, SentenceAlignmentTask(latent, CaptionGridSampler(toy.train), batch=48), folder, 60
    )
    return latent


@pytest.fixture(scope="module")
def latent(tmp_path_factory: pytest.TempPathFactory) -> LatentVocabulary:
    return pretrained(tmp_path_factory.mktemp("latent"))


def make(model: WordModel, toy: ToySMALRData, latent: LatentVocabulary) -> SMALR:
    torch.manual_seed(0)
    return build_word_model(
        model, toy.words, toy.vectors, toy.language_of, toy.rank_in_language,
        steps=STEPS, latent=latent if model.needs_pretraining else None,
    )  # fmt: skip


@torch.no_grad()
def apart(latent: nn.Module, toy: ToySMALRData) -> float:
    """How badly sentences about one picture lie together."""
    task = SentenceAlignmentTask(latent.eval(), CaptionGridSampler(toy.train), batch=64)
    return float(losses_of(task, np.random.default_rng(99))["neighbours"])


def test_pretraining_aligns_captions_by_latent_tokens(latent: LatentVocabulary) -> None:
    toy = toy_smalr_data(("en", "de"))
    torch.manual_seed(0)
    untrained = latent_vocabulary(small("smalr").config, toy.vectors)
    before, after = apart(untrained, toy), apart(latent, toy)
    # Were all sentences one point, the loss would be the margin of 0.05.
    assert before > 0.2
    assert after < 0.04
    tokens, known = latent.assign(), toy.language_of >= 0
    assert not torch.equal(tokens, untrained.assign())
    used = tokens[known].unique()
    assert 20 < len(used) < 64
    english, german = (set(tokens[toy.language_of == n].tolist()) for n in (0, 1))
    assert len(english & german) >= 3


def test_universal_embedding_learns_without_images(
    tmp_path: Path,
) -> None:
    toy = toy_smalr_data(("en", "de"))
    torch.manual_seed(0)
    words = HybridEmbedding.build(
        toy.vectors, toy.language_of, toy.rank_in_language,
        own_words=None, own_width=VECTORS, width=32,
    )  # fmt: skip
    words.own.requires_grad_(False)
    before = apart(words, toy)
    learn(
        words, SentenceAlignmentTask(words, CaptionGridSampler(toy.train), batch=32), tmp_path, 50
    )
    assert apart(words, toy) < 0.06 < 0.15 < before
    assert words.drift().item() == 0


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("smalr", 50),
        ("language-agnostic", 40),
        ("mule", 55),
        ("parallel-embn", 55),
        ("small-liwe", 20),
    ],
)
def test_every_model_learns_retrieval(
    name: str, least: float, latent: LatentVocabulary, tmp_path: Path
) -> None:
    toy, wanted = toy_smalr_data(("en", "de")), small(name)
    model = make(wanted, toy, latent)
    assert max(toy.recall(model, language) for language in toy.languages) < 15
    grids = CaptionGridSampler(toy.train)
    learn(model, SMALRTask(model, toy.train_visuals, grids, wanted.objective, batch=32),
          tmp_path)  # fmt: skip
    assert min(toy.recall(model, language) for language in toy.languages) > least


def test_shuffled_captions_do_not_generalise(latent: LatentVocabulary, tmp_path: Path) -> None:
    toy, wanted = toy_smalr_data(("en", "de")), small("hem")
    model = make(wanted, toy, latent)
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(toy.train.num_records))
    wrong = FeatureTable(toy.train_visuals.features[shuffled], np.ones(len(shuffled), np.int64))
    grids = CaptionGridSampler(toy.train)
    learn(model, SMALRTask(model, wrong, grids, wanted.objective, batch=32), tmp_path, 30)
    assert max(toy.recall(model, language) for language in toy.languages) < 18


@torch.no_grad()
def old_scores(model: SMALR, toy: ToySMALRData) -> torch.Tensor:
    """Of all English and German test captions with all test pictures, by the whole model."""
    model.eval()
    rows = np.concatenate([toy.test.rows_in_language(language) for language in ("en", "de")])
    text = pack_captions(toy.test, rows)
    pictures = model.encode_visual(*toy.test_visuals.rows(np.arange(toy.test.num_records), None))
    return model.encode_text(text.ids, text.packing) @ pictures.T


def test_added_language_trains_only_its_own_words(latent: LatentVocabulary, tmp_path: Path) -> None:
    two, three = toy_smalr_data(("en", "de")), toy_smalr_data(("en", "de", "fr"))
    wanted = small("smalr", gru_width=48, visual_hidden=96)
    model = make(wanted, two, latent)
    grids = CaptionGridSampler(two.train)
    learn(model, SMALRTask(model, two.train_visuals, grids, wanted.objective, batch=32),
          tmp_path / "two")  # fmt: skip
    before = {language: two.recall(model, language) for language in two.languages}
    scores = old_scores(model, three)

    french = (three.language_of == 2).nonzero().flatten()
    model.add_language(three.vectors[french])
    assert model.num_trainable_parameters() == 12 * 12 + 12 * 32 + 32
    assert isinstance(model.words, HybridEmbedding)
    # The words after the twelfth share tokens with English and German ones.
    rare = model.words.slots[french[12:]]
    assert len(rare) == 21
    assert set(rare.tolist()) <= set(range(2, 2 + len(model.words.latent)))
    assert set(rare.tolist()) & set(model.words.slots[2 : len(two.words)].tolist())
    untaught, everything = three.recall(model, "fr"), copy.deepcopy(model).requires_grad_(True)
    for learner, folder, steps in ((model, "three", STEPS), (everything, "everything", STEPS // 3)):
        grids = CaptionGridSampler(three.train, languages=("fr",))
        task = SMALRTask(learner, three.train_visuals, grids, wanted.objective, batch=32)
        learn(learner, task, tmp_path / folder, steps)
    after = {language: three.recall(model, language) for language in three.languages}
    assert torch.equal(old_scores(model, three), scores)
    assert all(abs(after[language] - before[language]) <= 0.5 for language in before)
    assert untaught < 15
    assert after["fr"] > 50
    # Were the others not left alone, they would forget, and soon.
    assert all(three.recall(everything, language) < before[language] - 10 for language in before)


def test_batch_of_one_image_is_rejected(latent: LatentVocabulary) -> None:
    toy, wanted = toy_smalr_data(("en", "de")), small("hem")
    model, grids = make(wanted, toy, latent), CaptionGridSampler(toy.train)
    with pytest.raises(PolyglanceError, match="has no negatives"):
        SMALRTask(model, toy.train_visuals, grids, wanted.objective, batch=1)
    with pytest.raises(PolyglanceError, match="has no negatives"):
        SentenceAlignmentTask(latent, grids, batch=1)


def test_adversary_ramp_resumes(latent: LatentVocabulary, tmp_path: Path) -> None:
    toy, wanted = toy_smalr_data(("en", "de")), small("hem")

    def run(steps: int, folder: str) -> SMALR:
        model = make(wanted, toy, latent)
        task = SMALRTask(
            model,
            toy.train_visuals,
            CaptionGridSampler(toy.train),
            SMALRObjective(mask_weight=0.0),
            batch=8,
        )
        learn(model, task, tmp_path / folder, steps)
        return model

    run(2, "resumed")
    resumed, whole = run(4, "resumed"), run(4, "whole")
    assert (
        int(resumed.reversal_schedule.steps_taken) == int(whole.reversal_schedule.steps_taken) == 4
    )
    for (name, first), second in zip(
        resumed.state_dict().items(), whole.state_dict().values(), strict=True
    ):
        assert torch.equal(first, second), name

"""Groups of images of which every caption is read beside every image."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import polyglance.recipes.compact_reader.groups as groups_module
import polyglance.training.mixture as mixture_module
from helpers.toy_regions import records_in
from helpers.toy_uc2 import LANGUAGES, ToyUC2, make_toy_uc2
from polyglance.batches.inputs import pack_captions
from polyglance.errors import PolyglanceError
from polyglance.recipes.compact_reader.config import RetrievalConfig
from polyglance.recipes.compact_reader.groups import GroupBatch, GroupRetrievalTask, group_loss
from polyglance.recipes.compact_reader.tasks import ListwiseRetrievalTask, matching_task
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.plan.probe import _encoded_pairs
from polyglance.recipes.uc2.tasks import ImageTextCorpus
from polyglance.training.mixture import step_generator
from polyglance.training.throughput import pairs_of

COUNT = 400
"""Images of the toy corpus."""


@pytest.fixture(scope="module")
def toy() -> ToyUC2:
    return make_toy_uc2()


def groups_of(toy: ToyUC2, batch: int, **options: Any) -> GroupRetrievalTask:
    corpus = options.pop("corpus", None) or toy.scene_corpus(*LANGUAGES)
    options = {"group_size": 4} | options
    return GroupRetrievalTask(toy.model(), corpus, batch=batch, **options)


def test_the_loss_is_that_of_a_loop() -> None:
    scores = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0))
    ignored = torch.zeros(3, 4, 4, dtype=torch.bool)
    ignored[1, 0, 2] = ignored[1, 2, 0] = True
    costs = []
    for group, left_out in zip(scores.tolist(), ignored.tolist(), strict=True):
        for own in range(4):
            row = [group[own][n] for n in range(4) if not left_out[own][n]]
            column = [group[n][own] for n in range(4) if not left_out[n][own]]
            for others in (row, column):
                total = sum(math.exp(score) for score in others)
                costs.append(-math.log(math.exp(group[own][own]) / total))
    assert group_loss(scores, ignored).item() == pytest.approx(sum(costs) / len(costs))


@torch.no_grad()
def test_every_caption_of_a_group_is_scored_beside_every_image(toy: ToyUC2) -> None:
    task = groups_of(toy, 12)
    batch = task.sample(step_generator(0, 1))
    captions = task.sample_groups(step_generator(0, 1))
    scores = task.scores(task.model, batch, batch.regions.load())
    assert scores.shape == (3, 4, 4)
    table = task.corpus.captions.table
    for group, first, second in np.ndindex(3, 4, 4):
        image = table.record_ids[captions[group, second : second + 1]]
        regions, _ = task.corpus.regions.take(image)
        text = pack_captions(table, captions[group, first : first + 1])
        alone = task.model.score(text, task.model.embed_regions(regions))
        assert scores[group, first, second].item() == pytest.approx(alone.item(), abs=1e-4)
    assert scores.std() > 0.01
    assert task.losses(batch)["retrieval"].item() == pytest.approx(
        group_loss(scores, torch.zeros(3, 4, 4, dtype=torch.bool)).item(), rel=1e-4
    )


def test_a_group_has_one_language_and_hard_images(toy: ToyUC2) -> None:
    near = (np.arange(COUNT)[:, None] + [1, 2, 3, 5, 8]) % COUNT
    for hard_negatives in (None, near, near[:, :2]):
        task = groups_of(toy, 800, hard_negatives=hard_negatives)
        captions = task.sample_groups(np.random.default_rng(0))
        assert captions.shape == (200, 4)
        table = task.corpus.captions.table
        languages = table.language_ids[captions]
        assert (languages == languages[:, :1]).all()
        assert np.bincount(languages[:, 0]) / 200 == pytest.approx([0.5, 0.5], abs=0.12)
        steps = (table.record_ids[captions][:, 1:] - table.record_ids[captions][:, :1]) % COUNT
        assert (steps > 0).all()
        if hard_negatives is None:
            assert len(np.unique(steps)) > 200
        else:
            hard = steps[:, : hard_negatives.shape[1]]
            assert set(hard.ravel().tolist()) == set((hard_negatives[0]).tolist())
            assert all(len(set(row)) == len(row) for row in hard.tolist())  # each once


def test_images_without_a_caption_in_the_language_are_no_hard_negatives(toy: ToyUC2) -> None:
    records = [
        record if number % 2 == 0 else replace(record, captions={"en": record.captions["en"]})
        for number, record in enumerate(records_in(toy.train_pictures, "en", "de"))
    ]
    table = toy.table(records)
    regions = toy.scene_corpus("en").regions
    corpus = ImageTextCorpus(regions, LanguageBalancedSampler(table))
    german = table.language_codes.index("de")
    near = (np.arange(COUNT)[:, None] + [1, 2, 3]) % COUNT
    task = groups_of(toy, 800, corpus=corpus, hard_negatives=near)
    captions = task.sample_groups(np.random.default_rng(0))
    images, languages = table.record_ids[captions], table.language_ids[captions]
    assert (languages == languages[:, :1]).all()
    steps = (images[:, 1] - images[:, 0]) % COUNT
    # Of the three, only the second has German captions where the image has some.
    assert set(steps[languages[:, 0] == german].tolist()) == {2}
    assert set(steps[languages[:, 0] != german].tolist()) == {1, 2, 3}


def test_groups_become_harder_over_the_warmup(toy: ToyUC2) -> None:
    near = (np.arange(COUNT)[:, None] + [1, 2, 3]) % COUNT
    task = groups_of(toy, 1600, hard_negatives=near, warmup_steps=100)
    for step, share in ((0, 0.0), (50, 0.5), (100, 1.0), (300, 1.0)):
        images = task.corpus.images(task.sample_groups(step_generator(0, step)))
        hard = (images[:, 1:] - images[:, :1]) % COUNT <= 3
        assert hard.mean() == pytest.approx(share, abs=0.05)


def test_an_image_that_comes_twice_is_no_negative_of_itself(toy: ToyUC2) -> None:
    near = np.tile((np.arange(COUNT)[:, None] + 1) % COUNT, 3)
    task = groups_of(toy, 8, hard_negatives=near)
    batch = task.sample(step_generator(0, 1))
    expected = torch.zeros(4, 4, dtype=torch.bool)
    expected[1:, 1:] = ~torch.eye(3, dtype=torch.bool)
    assert torch.equal(batch.ignored, expected.expand(2, 4, 4))


def test_processes_together_sample_what_one_does(
    toy: ToyUC2, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = groups_of(toy, 20)

    def sampled(number: int, size: int) -> GroupBatch:
        monkeypatch.setattr(mixture_module, "rank", lambda: number)
        monkeypatch.setattr(mixture_module, "world_size", lambda: size)
        return task.sample(step_generator(0, 6))

    whole, parts = sampled(0, 1), [sampled(number, 2) for number in range(2)]
    assert [len(part.ignored) for part in parts] == [2, 3]
    assert torch.equal(torch.cat([part.text.ids for part in parts]), whole.text.ids)
    assert sum(part.counts()["retrieval"] for part in parts) == whole.counts()["retrieval"] == 20


def test_too_few_groups_for_the_processes_are_refused(
    toy: ToyUC2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_module, "world_size", lambda: 3)
    assert groups_of(toy, 12).groups == 3
    with pytest.raises(PolyglanceError, match="over 3 processes: set batch to 12 or more"):
        groups_of(toy, 8)


def test_a_reader_learns_scenes_in_groups(toy: ToyUC2) -> None:
    task = groups_of(toy, 64, group_size=8, corpus=toy.single_region_corpus(*LANGUAGES))
    optimiser = torch.optim.AdamW(task.model.parameters(), lr=3e-3)
    losses = []
    for step in range(60):
        optimiser.zero_grad()
        loss = task.losses(task.sample(step_generator(0, step)))["retrieval"]
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[:3]) > 1.5
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:3])


def test_the_settings_choose_the_task(toy: ToyUC2) -> None:
    corpus = toy.scene_corpus(*LANGUAGES)
    model = toy.model()
    lists = matching_task(RetrievalConfig(batch=8), model, corpus)
    groups = matching_task(RetrievalConfig(batch=8, group_size=4), model, corpus)
    assert isinstance(lists, ListwiseRetrievalTask)
    assert isinstance(groups, GroupRetrievalTask)
    sampled = groups.sample(step_generator(0, 0))
    assert len(sampled.ignored) == 2
    # What speed and plans count: matching pairs, and pairs that are read.
    assert (pairs_of(lists), pairs_of(groups)) == (8, 8)
    assert _encoded_pairs(sampled) == 2 * 4 * 4
    with pytest.raises(PolyglanceError, match="batch is 10, and groups have 4 pairs"):
        RetrievalConfig(batch=10, group_size=4)
    with pytest.raises(PolyglanceError, match="group_size"):
        RetrievalConfig(group_size=1)

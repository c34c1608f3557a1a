from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.toy_regions import records_in, region_table
from polyglance.batches.regions import RegionTable
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2
from polyglance.nn.packed_pairs import PackedRows, Regions, Text
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.recipes.uc2.tasks import (
    ITMTask,
    MLMTask,
    MRTMTask,
    RetrievalTask,
    VTLMTask,
)
from polyglance.training.mixture import Mixture, Task, seed_step
from toy_uc2 import LANGUAGES, World, make_world, toy_labels


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


class Spy:
    """Sees what a step reads, and what becomes of all of it, not of hidden rows alone."""

    def __init__(self, model: UC2) -> None:
        self.model, self.read_at, self.embed = model, model.encode_positions, model.embed_regions
        self.regions: Regions | None = None
        model.encode_positions = self.reading  # type: ignore[method-assign]
        model.embed_regions = self.embedding  # type: ignore[method-assign]

    def embedding(self, regions: Regions) -> PackedRows:
        self.regions = regions
        return self.embed(regions)

    def reading(
        self,
        places: torch.Tensor,
        text: Text,
        seen: PackedRows | None,
        translation: Text | None = None,
    ) -> torch.Tensor:
        self.text, self.seen, self.translation = text, seen, translation
        self.out = self.model.encode(text, seen, translation)
        return self.read_at(places, text, seen, translation)


def slow_cross_entropy(model: UC2, rows: list[torch.Tensor], words: list[int]) -> float:
    """The mean of -log softmax, word by word."""
    table, total = model.encoder.words.weight, 0.0
    for row, word in zip(rows, words, strict=True):
        logits = [float(row @ table[n] + model.word_bias[n]) for n in range(len(table))]
        total += math.log(sum(math.exp(value) for value in logits)) - logits[word]
    return total / len(rows)


@torch.no_grad()
def test_mlm_tells_hidden_words_of_captions_in_all_languages_alike(world: World) -> None:
    model, corpus = world.model(), world.scenes(*LANGUAGES)
    always_masked = replace(world.masking, masked=1.0, random=0.0)
    task = MLMTask(model, corpus, always_masked, batch=40)
    spy = Spy(model)
    loss = task.losses(seed_step(0, 5, 0))["mlm"]
    drawn = corpus.captions.sample(40, seed_step(0, 5, 0))
    table = corpus.captions.table
    assert 10 < (table.language_ids[drawn] == 0).sum() < 30
    original = torch.from_numpy(table.gather(drawn)[0].astype(np.int64))
    assert spy.text is not None
    places = (spy.text.ids != original).nonzero()[:, 0].tolist()
    assert 0.1 < len(places) / len(original) < 0.2
    rows = [spy.out.text[place] for place in places]
    expected = slow_cross_entropy(model, rows, original[places].tolist())
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert spy.regions is not None
    seen, _ = corpus.regions.take(table.record_ids[drawn])
    assert torch.equal(spy.regions.features, seen.features)


@pytest.mark.parametrize(("form", "retold"), [("paper", 0.5), ("reference", 0.0)])
def test_itm_has_as_many_false_pairs_and_replaces_what_its_form_says(
    world: World, form: Any, retold: float
) -> None:
    corpus = world.scenes(*LANGUAGES)
    task = ITMTask(world.model(form=form), corpus, batch=4000, form=form)
    captions, pictures, matched = task.draw(np.random.default_rng(0))
    table = corpus.captions.table
    assert matched.sum() == 2000
    assert np.array_equal(table.record_ids[captions] == pictures, matched)
    shares = np.bincount(table.language_ids[captions]) / 4000
    assert shares == pytest.approx([0.5, 0.5], abs=0.03)
    first = captions[~matched]
    # What was drawn is a caption and another of another picture; either side may be the other's.
    again = np.random.default_rng(0)
    corpus.captions.sample(2000, again)
    false = corpus.captions.sample(2000, again)
    assert (first != false).mean() == pytest.approx(retold, abs=0.04)


@torch.no_grad()
def test_itm_and_ranking_cost_what_a_loop_says(world: World) -> None:
    model, corpus = world.model(), world.scenes(*LANGUAGES)
    task = ITMTask(model, corpus, batch=7)
    pair, whole = model.encode_pair, []

    def watched(text: Text, seen: PackedRows) -> torch.Tensor:
        whole.append(model.encode(text, seen).pooled)  # all rows of the last layer, for once
        return pair(text, seen)

    model.encode_pair = watched  # type: ignore[method-assign]
    loss = task.losses(seed_step(0, 1, 0))["itm"].item()
    _, _, matched = task.draw(seed_step(0, 1, 0))
    logits = model.match_logits(whole[-1]).tolist()
    costs = [
        math.log1p(math.exp(-x)) if true else math.log1p(math.exp(x))
        for x, true in zip(logits, matched, strict=True)
    ]
    assert loss == pytest.approx(sum(costs) / 7, rel=1e-4)

    ranking = RetrievalTask(model, corpus, batch=5, negatives=2)
    loss = ranking.losses(seed_step(0, 2, 0))["ranking"].item()
    scores = model.rank_scores(whole[-1]).sigmoid().view(5, 5).tolist()
    costs = [max(0.0, 0.2 + other - row[0]) for row in scores for other in row[1:]]
    assert loss == pytest.approx(sum(costs) / 20, rel=1e-4)
    by_matching = RetrievalTask(model, corpus, batch=5, negatives=2, loss="matching")
    loss = by_matching.losses(seed_step(0, 2, 0))["ranking"].item()
    costs = [-math.log(p if n == 0 else 1 - p) for row in scores for n, p in enumerate(row)]
    assert loss == pytest.approx(sum(costs) / 25, rel=1e-3)


def test_ranking_has_false_pairs_of_either_kind(world: World) -> None:
    corpus = world.scenes(*LANGUAGES)
    near = np.stack([(np.arange(400) + 1) % 400, (np.arange(400) + 9) % 400], axis=1)
    for neighbours in (None, near):
        task = RetrievalTask(world.model(), corpus, batch=300, negatives=2, neighbours=neighbours)
        captions, pictures = task.draw(np.random.default_rng(0))
        told = corpus.captions.table.record_ids[captions]
        own = pictures[:, :1]
        assert np.array_equal(told[:, 0], pictures[:, 0])
        assert (told[:, 1:3] == own).all()
        assert (pictures[:, 1:3] != own).all()
        assert (pictures[:, 3:] == own).all()
        assert (told[:, 3:] != own).all()
        # Whoever searches compares captions of one language alone.
        spoken = corpus.captions.table.language_ids[captions]
        assert len(np.unique(spoken)) == len(LANGUAGES)
        assert (spoken == spoken[:, :1]).all()
        if neighbours is not None:
            away = np.concatenate([pictures[:, 1:3], told[:, 3:]], axis=1) - own
            assert set((away % 400).ravel().tolist()) == {1, 9}


def test_false_pairs_become_harder_over_the_first_steps(world: World) -> None:
    near = (np.arange(400)[:, None] + 1) % 400
    task = RetrievalTask(
        world.model(), world.scenes("en"), batch=400, neighbours=near, easy_steps=100
    )
    for step, share in ((0, 0.0), (50, 0.5), (100, 1.0), (400, 1.0)):
        _, pictures = task.draw(seed_step(0, step, 0))
        alike = (pictures[:, 1] - pictures[:, 0]) % 400 == 1
        assert alike.mean() == pytest.approx(share, abs=0.08)


@torch.no_grad()
def test_mrtm_asks_for_hidden_regions_in_the_language_of_the_caption(world: World) -> None:
    model, corpus = world.model(), world.scenes(*LANGUAGES)
    torch.nn.init.normal_(model.region_mask)
    task = MRTMTask(model, corpus, world.label_words, batch=60, form="reference")
    spy = Spy(model)
    generator = seed_step(0, 3, 0)
    loss = task.losses(generator)["mrtm"].item()
    table = corpus.captions.table
    again = seed_step(0, 3, 0)
    drawn = corpus.captions.sample(60, again)
    original, labels = corpus.regions.take(table.record_ids[drawn])
    assert spy.regions is not None
    assert spy.text is not None
    assert torch.equal(spy.text.ids, torch.from_numpy(table.gather(drawn)[0].astype(np.int64)))
    places = (spy.regions.features != original.features).any(1).nonzero()[:, 0].tolist()
    assert 0.08 < len(places) / 120 < 0.25
    assert all(torch.equal(spy.regions.features[p], model.region_mask) for p in places)
    owners = original.packing.sequence_ids.tolist()
    spoken = [table.language_codes[table.language_ids[drawn[owners[place]]]] for place in places]
    words = task.words
    language = np.array([words.languages.index(code) for code in spoken])
    asked = words.draw(language, labels[places].numpy(), again).tolist()
    for code, place, word in zip(spoken, places, asked, strict=True):
        name = toy_labels(code)[labels[place]]
        assert word in world.tokenizer.encode(name, add_special_tokens=False)
    expected = slow_cross_entropy(model, [spy.out.regions[p] for p in places], asked)
    assert loss == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("form", "share"), [("paper", 0.9), ("reference", 1.0)])
def test_mrtm_asks_for_fifteen_percent_and_hides_what_its_form_says(
    world: World, form: Any, share: float
) -> None:
    model, corpus = world.model(), world.scenes(*LANGUAGES)
    torch.nn.init.normal_(model.region_mask)
    task = MRTMTask(model, corpus, world.label_words, batch=400, form=form)
    spy, asked, hidden, seen = Spy(model), 0, 0, 0
    reading = spy.read_at

    def counted(places: torch.Tensor, *rest: Any) -> torch.Tensor:
        nonlocal asked
        asked += len(places)
        return reading(places, *rest)

    model.encode_positions = counted  # type: ignore[method-assign]
    for step in range(12):
        task.losses(seed_step(0, step, 0))
        assert spy.regions is not None
        hidden += int((spy.regions.features == model.region_mask).all(1).sum())
        seen += len(spy.regions.features)
    assert asked / seen == pytest.approx(0.15, abs=0.015)
    assert hidden / asked == pytest.approx(share, abs=0.03)


@torch.no_grad()
def test_vtlm_reads_two_captions_of_one_picture_and_tells_both(world: World) -> None:
    model = world.model()
    records = records_in(world.pictures, *LANGUAGES)
    table = world.table(records)
    pairs = world.pairs(records, table)
    always_masked = replace(world.masking, masked=1.0, random=0.0)
    regions = region_table(world.pictures)
    task = VTLMTask(model, regions, pairs, always_masked, batch=30)
    spy = Spy(model)
    loss = task.losses(seed_step(0, 4, 0))["vtlm"].item()
    drawn = pairs.draw(30, seed_step(0, 4, 0))
    assert spy.text is not None
    assert spy.translation is not None
    assert spy.regions is not None
    rows, words = [], []
    for side, text, out in (
        (pairs.first, spy.text, spy.out.text),
        (pairs.second, spy.translation, spy.out.translation),
    ):
        original = torch.from_numpy(table.gather(side[drawn])[0].astype(np.int64))
        places = (text.ids != original).nonzero()[:, 0].tolist()
        assert places
        rows += [out[place] for place in places]
        words += original[places].tolist()
    assert loss == pytest.approx(slow_cross_entropy(model, rows, words), rel=1e-4)
    seen, _ = regions.take(table.record_ids[pairs.second[drawn]])
    assert torch.equal(spy.regions.features, seen.features)
    alone = VTLMTask(model, None, pairs, always_masked, batch=30, co_masked=0.0)
    assert set(alone.losses(seed_step(0, 4, 0))) == {"vtlm"}
    assert spy.seen is None


def test_the_mixture_draws_nine_to_twelve_to_nine_to_three(world: World) -> None:
    shares = {"itm": 9.0, "mlm": 12.0, "mrtm": 9.0, "vtlm": 3.0}
    task = ITMTask(world.model(), world.scenes("en"), batch=2)
    mixture = Mixture(dict.fromkeys(shares, task), shares)
    names = [mixture.choose(0, step)[0] for step in range(6000)]  # whatever the process
    for name, share in shares.items():
        assert names.count(name) / 6000 == pytest.approx(share / 33, abs=0.02)
    assert names == [mixture.choose(0, step)[0] for step in range(6000)]


def test_a_step_can_be_repeated(world: World) -> None:
    model, corpus = world.model(), world.scenes(*LANGUAGES)
    records = records_in(world.pictures, *LANGUAGES)
    tasks: list[Task] = [
        MLMTask(model, corpus, world.masking, batch=4),
        ITMTask(model, corpus, batch=4),
        MRTMTask(model, corpus, world.label_words, batch=4),
        VTLMTask(
            model, corpus.regions, world.pairs(records, corpus.captions.table), world.masking,
            batch=8,
        ),
        RetrievalTask(model, corpus, batch=4),
    ]  # fmt: skip
    for task in tasks:
        first, again, other = (task.losses(seed_step(0, step, 0)) for step in (3, 3, 4))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)


def test_what_cannot_be_trained_on_is_said_plainly(world: World) -> None:
    corpus = world.scenes(*LANGUAGES)
    unlabelled = torch.full_like(corpus.regions.labels, NO_LABEL)
    bare = RegionTable(
        corpus.regions.features, corpus.regions.boxes, unlabelled, corpus.regions.lengths
    )
    with pytest.raises(PolyglanceError, match="no region has a label"):
        MRTMTask(world.model(), replace(corpus, regions=bare), world.label_words, batch=4)
    with pytest.raises(PolyglanceError, match="negatives is 0"):
        RetrievalTask(world.model(), corpus, batch=4, negatives=0)

"""UC2's objectives, compared with loops and with the paper's rates."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.steps import losses_at
from helpers.toy_regions import records_in, region_table
from helpers.toy_uc2 import LANGUAGES, ToyUC2, make_toy_uc2, toy_labels
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
from polyglance.training import mixture as mixture_module
from polyglance.training.mixture import Mixture, Task, step_generator


@pytest.fixture(scope="module")
def toy() -> ToyUC2:
    return make_toy_uc2()


class Spy:
    """Records a step's inputs, and the outputs at all positions, not at masked ones alone."""

    def __init__(self, model: UC2) -> None:
        self.model = model
        self.original_encode, self.original_embed = model.encode_positions, model.embed_regions
        self.regions: Regions | None = None
        model.encode_positions = self.encode_positions  # type: ignore[method-assign]
        model.embed_regions = self.embed_regions  # type: ignore[method-assign]

    def embed_regions(self, regions: Regions) -> PackedRows:
        self.regions = regions
        return self.original_embed(regions)

    def encode_positions(
        self,
        positions: torch.Tensor,
        text: Text,
        images: PackedRows | None,
        translation: Text | None = None,
    ) -> torch.Tensor:
        self.text, self.images, self.translation = text, images, translation
        self.output = self.model.encode(text, images, translation)
        return self.original_encode(positions, text, images, translation)


def slow_cross_entropy(model: UC2, rows: list[torch.Tensor], words: list[int]) -> float:
    """Return the mean of -log softmax, word by word."""
    table, total = model.encoder.words.weight, 0.0
    for row, word in zip(rows, words, strict=True):
        logits = [float(row @ table[n] + model.word_bias[n]) for n in range(len(table))]
        total += math.log(sum(math.exp(value) for value in logits)) - logits[word]
    return total / len(rows)


@torch.no_grad()
def test_mlm_predicts_masked_words_in_all_languages_equally(toy: ToyUC2) -> None:
    model, corpus = toy.model(), toy.scene_corpus(*LANGUAGES)
    always_masked = replace(toy.masking, masked=1.0, random=0.0)
    task = MLMTask(model, corpus, always_masked, batch=40)
    spy = Spy(model)
    loss = losses_at(task, 0, 5)["mlm"]
    sampled = corpus.captions.sample(40, step_generator(0, 5))
    table = corpus.captions.table
    assert 10 < (table.language_ids[sampled] == 0).sum() < 30
    original = torch.from_numpy(table.gather(sampled)[0].astype(np.int64))
    assert spy.text is not None
    positions = (spy.text.ids != original).nonzero()[:, 0].tolist()
    assert 0.1 < len(positions) / len(original) < 0.2
    rows = [spy.output.text[position] for position in positions]
    expected = slow_cross_entropy(model, rows, original[positions].tolist())
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert spy.regions is not None
    regions, _ = corpus.regions.take(table.record_ids[sampled])
    assert torch.equal(spy.regions.features, regions.features)


@pytest.mark.parametrize(("variant", "caption_share"), [("paper", 0.5), ("reference", 0.0)])
def test_half_of_the_itm_pairs_do_not_match(
    toy: ToyUC2, variant: Any, caption_share: float
) -> None:
    corpus = toy.scene_corpus(*LANGUAGES)
    task = ITMTask(toy.model(variant=variant), corpus, batch=4000, variant=variant)
    captions, images, matched = task.sample_pairs(np.random.default_rng(0))
    table = corpus.captions.table
    assert matched.sum() == 2000
    assert np.array_equal(table.record_ids[captions] == images, matched)
    shares = np.bincount(table.language_ids[captions]) / 4000
    assert shares == pytest.approx([0.5, 0.5], abs=0.03)
    unmatched = captions[~matched]
    # Sampled again: the captions of the pairs before one side was replaced.
    again = np.random.default_rng(0)
    corpus.captions.sample(2000, again)
    before = corpus.captions.sample(2000, again)
    assert (unmatched != before).mean() == pytest.approx(caption_share, abs=0.04)


@torch.no_grad()
def test_itm_and_retrieval_losses_equal_a_loop(toy: ToyUC2) -> None:
    model, corpus = toy.model(), toy.scene_corpus(*LANGUAGES)
    task = ITMTask(model, corpus, batch=7)
    encode_pair, pooled = model.encode_pair, []

    def recorded(text: Text, images: PackedRows) -> torch.Tensor:
        pooled.append(model.encode(text, images).pooled)  # by the whole last layer
        return encode_pair(text, images)

    model.encode_pair = recorded  # type: ignore[method-assign]
    loss = losses_at(task, 0, 1)["itm"].item()
    _, _, matched = task.sample_pairs(step_generator(0, 1))
    logits = model.match_logits(pooled[-1]).tolist()
    costs = [
        math.log1p(math.exp(-x)) if is_match else math.log1p(math.exp(x))
        for x, is_match in zip(logits, matched, strict=True)
    ]
    assert loss == pytest.approx(sum(costs) / 7, rel=1e-4)

    retrieval = RetrievalTask(model, corpus, batch=5, negatives=2)
    loss = losses_at(retrieval, 0, 2)["retrieval"].item()
    scores = model.rank_scores(pooled[-1]).sigmoid().view(5, 5).tolist()
    costs = [max(0.0, 0.2 + other - row[0]) for row in scores for other in row[1:]]
    assert loss == pytest.approx(sum(costs) / 20, rel=1e-4)
    by_matching = RetrievalTask(model, corpus, batch=5, negatives=2, loss="matching")
    loss = losses_at(by_matching, 0, 2)["retrieval"].item()
    costs = [-math.log(p if n == 0 else 1 - p) for row in scores for n, p in enumerate(row)]
    assert loss == pytest.approx(sum(costs) / 25, rel=1e-3)


def test_retrieval_has_negatives_of_both_kinds(toy: ToyUC2) -> None:
    corpus = toy.scene_corpus(*LANGUAGES)
    near = np.stack([(np.arange(400) + 1) % 400, (np.arange(400) + 9) % 400], axis=1)
    for hard_negatives in (None, near):
        task = RetrievalTask(
            toy.model(), corpus, batch=300, negatives=2, hard_negatives=hard_negatives
        )
        captions, images = task.sample_pairs(np.random.default_rng(0))
        captioned = corpus.captions.table.record_ids[captions]
        own = images[:, :1]
        assert np.array_equal(captioned[:, 0], images[:, 0])
        assert (captioned[:, 1:3] == own).all()
        assert (images[:, 1:3] != own).all()
        assert (images[:, 3:] == own).all()
        assert (captioned[:, 3:] != own).all()
        # A search compares captions of one language alone.
        languages = corpus.captions.table.language_ids[captions]
        assert len(np.unique(languages)) == len(LANGUAGES)
        assert (languages == languages[:, :1]).all()
        if hard_negatives is not None:
            distances = np.concatenate([images[:, 1:3], captioned[:, 3:]], axis=1) - own
            assert set((distances % 400).ravel().tolist()) == {1, 9}


def test_negatives_become_harder_over_the_warmup(toy: ToyUC2) -> None:
    near = (np.arange(400)[:, None] + 1) % 400
    task = RetrievalTask(
        toy.model(), toy.scene_corpus("en"), batch=400, hard_negatives=near, warmup_steps=100
    )
    for step, share in ((0, 0.0), (50, 0.5), (100, 1.0), (400, 1.0)):
        _, images = task.sample_pairs(step_generator(0, step))
        hard = (images[:, 1] - images[:, 0]) % 400 == 1
        assert hard.mean() == pytest.approx(share, abs=0.08)


@torch.no_grad()
def test_mrtm_predicts_masked_regions_in_the_language_of_the_caption(toy: ToyUC2) -> None:
    model, corpus = toy.model(), toy.scene_corpus(*LANGUAGES)
    torch.nn.init.normal_(model.region_mask)
    task = MRTMTask(model, corpus, toy.label_tokens, batch=60, variant="reference")
    spy = Spy(model)
    batch = task.sample(step_generator(0, 3))
    loss = task.losses(batch)["mrtm"].item()
    table = corpus.captions.table
    sampled = corpus.captions.sample(60, step_generator(0, 3))
    original, labels = corpus.regions.take(table.record_ids[sampled])
    assert spy.regions is not None
    assert spy.text is not None
    assert torch.equal(spy.text.ids, torch.from_numpy(table.gather(sampled)[0].astype(np.int64)))
    positions = (spy.regions.features != original.features).any(1).nonzero()[:, 0].tolist()
    assert 0.08 < len(positions) / 120 < 0.25
    assert all(torch.equal(spy.regions.features[p], model.region_mask) for p in positions)
    image = original.packing.sequence_ids.tolist()
    languages = [table.language_codes[table.language_ids[sampled[image[p]]]] for p in positions]
    targets = batch.targets.tolist()
    assert batch.counts() == {"mrtm": len(positions)}
    for code, position, target in zip(languages, positions, targets, strict=True):
        name = toy_labels(code)[labels[position]]
        assert target in toy.tokenizer.encode(name, add_special_tokens=False)
    expected = slow_cross_entropy(model, [spy.output.regions[p] for p in positions], targets)
    assert loss == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("variant", "share"), [("paper", 0.9), ("reference", 1.0)])
def test_mrtm_predicts_fifteen_percent_and_masks_the_share_of_its_variant(
    toy: ToyUC2, variant: Any, share: float
) -> None:
    model, corpus = toy.model(), toy.scene_corpus(*LANGUAGES)
    torch.nn.init.normal_(model.region_mask)
    task = MRTMTask(model, corpus, toy.label_tokens, batch=400, variant=variant)
    spy, predicted, masked, total = Spy(model), 0, 0, 0

    def counted(positions: torch.Tensor, *rest: Any) -> torch.Tensor:
        nonlocal predicted
        predicted += len(positions)
        return spy.original_encode(positions, *rest)

    model.encode_positions = counted  # type: ignore[method-assign]
    for step in range(12):
        losses_at(task, 0, step)
        assert spy.regions is not None
        masked += int((spy.regions.features == model.region_mask).all(1).sum())
        total += len(spy.regions.features)
    assert predicted / total == pytest.approx(0.15, abs=0.015)
    assert masked / predicted == pytest.approx(share, abs=0.03)


@torch.no_grad()
def test_vtlm_predicts_masked_words_of_two_captions_of_one_image(toy: ToyUC2) -> None:
    model = toy.model()
    records = records_in(toy.train_pictures, *LANGUAGES)
    table = toy.table(records)
    pairs = toy.aligned_captions(records, table)
    always_masked = replace(toy.masking, masked=1.0, random=0.0)
    regions = region_table(toy.train_pictures)
    task = VTLMTask(model, regions, pairs, always_masked, batch=30)
    spy = Spy(model)
    loss = losses_at(task, 0, 4)["vtlm"].item()
    sampled = pairs.sample(30, step_generator(0, 4))
    assert spy.text is not None
    assert spy.translation is not None
    assert spy.regions is not None
    rows, words = [], []
    for side, text, output in (
        (pairs.first, spy.text, spy.output.text),
        (pairs.second, spy.translation, spy.output.translation),
    ):
        original = torch.from_numpy(table.gather(side[sampled])[0].astype(np.int64))
        positions = (text.ids != original).nonzero()[:, 0].tolist()
        assert positions
        rows += [output[position] for position in positions]
        words += original[positions].tolist()
    assert loss == pytest.approx(slow_cross_entropy(model, rows, words), rel=1e-4)
    expected, _ = regions.take(table.record_ids[pairs.second[sampled]])
    assert torch.equal(spy.regions.features, expected.features)
    tlm = VTLMTask(model, None, pairs, always_masked, batch=30, co_masked=0.0)
    assert set(losses_at(tlm, 0, 4)) == {"vtlm"}
    assert spy.images is None


def test_mixture_draws_tasks_in_the_published_ratio(toy: ToyUC2) -> None:
    shares = {"itm": 9.0, "mlm": 12.0, "mrtm": 9.0, "vtlm": 3.0}
    task = ITMTask(toy.model(), toy.scene_corpus("en"), batch=2)
    mixture = Mixture(dict.fromkeys(shares, task), shares)
    names = [mixture.choose(0, step)[0] for step in range(6000)]  # the same on every process
    for name, share in shares.items():
        assert names.count(name) / 6000 == pytest.approx(share / 33, abs=0.02)
    assert names == [mixture.choose(0, step)[0] for step in range(6000)]


def test_step_is_reproducible(toy: ToyUC2) -> None:
    model, corpus = toy.model(), toy.scene_corpus(*LANGUAGES)
    records = records_in(toy.train_pictures, *LANGUAGES)
    pairs = toy.aligned_captions(records, corpus.captions.table)
    tasks: list[Task] = [
        MLMTask(model, corpus, toy.masking, batch=4),
        ITMTask(model, corpus, batch=4),
        MRTMTask(model, corpus, toy.label_tokens, batch=4),
        VTLMTask(model, corpus.regions, pairs, toy.masking, batch=8),
        RetrievalTask(model, corpus, batch=4),
    ]
    for task in tasks:
        first, again, other = (losses_at(task, 0, step) for step in (3, 3, 4))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)


def test_unusable_data_is_refused(toy: ToyUC2) -> None:
    corpus = toy.scene_corpus(*LANGUAGES)
    unlabelled = torch.full_like(corpus.regions.labels, NO_LABEL)
    without_labels = RegionTable(
        corpus.regions.features, corpus.regions.boxes, unlabelled, corpus.regions.lengths
    )
    with pytest.raises(PolyglanceError, match="no region has a label"):
        MRTMTask(toy.model(), replace(corpus, regions=without_labels), toy.label_tokens, batch=4)
    with pytest.raises(PolyglanceError, match="negatives is 0"):
        RetrievalTask(toy.model(), corpus, batch=4, negatives=0)


def test_processes_together_sample_what_one_does(
    toy: ToyUC2, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, corpus = toy.model(), toy.scene_corpus(*LANGUAGES)
    records = records_in(toy.train_pictures, *LANGUAGES)
    pairs = toy.aligned_captions(records, corpus.captions.table)
    tasks: list[Task] = [
        MLMTask(model, corpus, toy.masking, batch=9),
        ITMTask(model, corpus, batch=9),
        MRTMTask(model, corpus, toy.label_tokens, batch=9),
        VTLMTask(model, corpus.regions, pairs, toy.masking, batch=9),
        RetrievalTask(model, corpus, batch=9, negatives=2),
    ]

    def sampled(task: Task, number: int, size: int) -> Any:
        monkeypatch.setattr(mixture_module, "rank", lambda: number)
        monkeypatch.setattr(mixture_module, "world_size", lambda: size)
        return task.sample(step_generator(0, 6))

    for task in tasks:
        whole = sampled(task, 0, 1)
        parts = [sampled(task, number, 4) for number in range(4)]
        assert sum(len(part.text.packing) for part in parts) == len(whole.text.packing)
        for name in ("text", "translation"):
            if getattr(whole, name, None) is not None:
                joint = torch.cat([getattr(part, name).ids for part in parts])
                assert torch.equal(joint, getattr(whole, name).ids)
        assert torch.equal(torch.cat([part.regions.rows for part in parts]), whole.regions.rows)
        totals = Counter[str]()
        for part in parts:
            totals.update(part.counts())
        assert totals == whole.counts()
        if hasattr(whole, "targets") and whole.translation is None:
            assert torch.equal(torch.cat([part.targets for part in parts]), whole.targets)

"""M3P's tasks: what they learn, their rates, and the batches that they sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.steps import losses_at
from helpers.text_encoder import unigram_tokenizer
from helpers.toy_regions import (
    LABELS,
    WIDTH,
    first_region_records,
    first_regions,
    records_in,
    region_table,
    toy_dictionary,
)
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Picture, ToyDataset
from polyglance.errors import PolyglanceError
from polyglance.evaluation.pair_scores import PairScores
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import CodeSwitchedCaptions, PlainCaptions
from polyglance.recipes.m3p.tasks import (
    MCTaskName,
    MCTObjective,
    MCTTask,
    XMLMTask,
    language_probabilities,
)
from polyglance.records import Record
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.tokenizer import Tokenizer
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, MultiTask, Task, step_generator

LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class ToyM3P:
    """Toy pictures for training and for evaluation, with a tokenizer of their captions."""

    train_pictures: Sequence[Picture]
    test_pictures: Sequence[Picture]
    tokenizer: Tokenizer

    @property
    def masking(self) -> TokenMasking:
        assert self.tokenizer.mask_id is not None
        return TokenMasking(self.tokenizer.mask_id, (4, self.tokenizer.mask_id))

    def model(self, *, layers: int = 2, width: int = 32) -> M3P:
        """Build an untrained model with large weights, which learns in few steps."""
        torch.manual_seed(0)
        encoder = EncoderConfig(
            vocab_size=self.tokenizer.vocab_size, hidden_size=width, num_layers=layers, num_heads=4,
            intermediate_size=2 * width, max_position_embeddings=66, dropout=0.0,
        )  # fmt: skip
        config = M3PConfig(encoder, LANGUAGES, visual_width=WIDTH, num_labels=LABELS)
        model = M3P(config)
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and name != "languages.weight":
                is_embedding = name in ("encoder.words.weight", "encoder.positions.weight")
                torch.nn.init.normal_(parameter, std=0.3 if is_embedding else 0.1)
        return model


@pytest.fixture(scope="module")
def toy() -> ToyM3P:
    dataset = ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=1)
    pictures = list(dataset.pictures(500))
    texts = [
        text
        for record in [
            *first_region_records(pictures, *LANGUAGES),
            *records_in(pictures, *LANGUAGES),
        ]
        for captions in record.captions.values()
        for text in captions
    ]
    test_pictures = list(dataset.pictures(60, "test"))  # combinations that training never shows
    return ToyM3P(pictures, test_pictures, unigram_tokenizer(texts, pieces=300))


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def learn(model: M3P, task: Task, folder: Path, steps: int, rate: float = 6e-3) -> None:
    config = LoopConfig(
        steps=steps, learning_rate=rate, schedule="cosine", warmup=steps // 10, grad_clip=1.0,
        save_every=0,
    )  # fmt: skip
    train_loop(model, Mixture({"all": task}), config, folder, quiet=True)


def mean_recall(toy: ToyM3P, model: M3P, language: str) -> float:
    """Return the mean recall of all pairs in one language."""
    captions = CaptionTable.build(first_region_records(toy.test_pictures, language), toy.tokenizer)
    ids = model.language_ids(captions.language_codes)
    scores = PairScores(model, first_regions(toy.test_pictures), captions, language_ids=ids)
    rows = np.arange(len(captions))
    return summarise(ranks_from_scores(scores.table(rows), captions.record_ids)).mean_recall


def code_switched(toy: ToyM3P, records: Sequence[Record], alpha: float) -> CodeSwitchedCaptions:
    switcher = CodeSwitcher({"de": toy_dictionary("de")}, beta=0.8, rank_exponent=0)
    return CodeSwitchedCaptions(
        records, switcher, toy.tokenizer, alpha=alpha, variants=8, refresh=0
    )


def test_code_switching_transfers_mc_vlm_to_a_language_without_images(
    toy: ToyM3P, tmp_path: Path
) -> None:
    recalls = {}
    for name, alpha, steps in (("plain", 0.0, 100), ("code_switched", 0.5, 150)):
        model = toy.model()
        captions = code_switched(toy, first_region_records(toy.train_pictures, "en"), alpha)
        objective = MCTObjective(toy.masking, tasks=("mc_vlm",), negatives=3)
        task = MCTTask(model, first_regions(toy.train_pictures), captions, objective, batch=24)
        learn(model, task, tmp_path / name, steps=steps)
        recalls[name] = {language: mean_recall(toy, model, language) for language in LANGUAGES}
    # By chance 9; equal things compete with each other.
    assert recalls["plain"]["en"] > 45
    assert recalls["code_switched"]["en"] > 45
    assert recalls["plain"]["de"] < 20
    assert recalls["code_switched"]["de"] > 30


def test_mc_mlm_uses_the_image_and_mc_mrm_the_words(toy: ToyM3P, tmp_path: Path) -> None:
    model = toy.model(layers=1)
    records = first_region_records(toy.train_pictures, "en")
    captions = PlainCaptions(CaptionTable.build(records, toy.tokenizer))
    masking = replace(toy.masking, rate=0.3)
    objective = MCTObjective(masking, tasks=("mc_mlm", "mc_mrm"), region_rate=1.0)
    task = MCTTask(model, first_regions(toy.train_pictures), captions, objective, batch=24)
    learn(model, task, tmp_path, steps=110, rate=1e-2)
    torch.manual_seed(0)
    with torch.no_grad():
        trials = [losses_at(task, 9, step) for step in range(10)]
    means = {name: np.mean([float(losses[name]) for losses in trials]) for name in trials[0]}
    # Without the image, a masked word costs ln 8 for a colour and ln 6 for a shape; without the
    # words, a label costs ln 48, and features cost their variance.
    assert means["mc_mlm"] < 0.8
    assert means["mc_mrm_labels"] < 1.5
    assert means["mc_mrm_features"] < 0.06


def test_xmlm_learns_from_text_alone(toy: ToyM3P, tmp_path: Path) -> None:
    model = toy.model(layers=1)
    corpus = CaptionTable.build(records_in(toy.train_pictures, *LANGUAGES), toy.tokenizer)
    task = XMLMTask(model, corpus, toy.masking, batch=16)
    before = losses_at(task, 0, 0)["xmlm"].item()
    learn(model, task, tmp_path, steps=40)
    assert losses_at(task, 0, 0)["xmlm"].item() < before - 1.5
    assert model.languages.weight.abs().amin() > 0


def test_languages_are_sampled_by_their_share_to_the_power_of_alpha(toy: ToyM3P) -> None:
    counts = np.array([800, 0, 200])
    expected = np.array([0.8**0.3, 0, 0.2**0.3])
    assert language_probabilities(counts) == pytest.approx(expected / expected.sum())
    english, german = (
        records_in(toy.train_pictures[:90], "en"),
        records_in(toy.train_pictures[90:100], "de"),
    )
    corpus = CaptionTable.build([*english, *german], toy.tokenizer)
    task = XMLMTask(toy.model(), corpus, toy.masking, batch=20_000)
    sampled = task.sample_rows(np.random.default_rng(0))
    share = (corpus.language_ids[sampled] == 1).mean()
    assert share == pytest.approx(0.1**0.3 / (0.1**0.3 + 0.9**0.3), abs=0.015)
    assert len(np.unique(sampled)) == 100


class Spy:
    """Records the inputs of a step."""

    text: Text
    regions: Regions

    def __init__(self, model: M3P) -> None:
        embed_regions, embed_text = model.embed_regions, model.embed_text

        def watched_regions(regions: Regions) -> Any:
            self.regions = regions
            return embed_regions(regions)

        def watched_text(text: Text, images: Any = None) -> Any:
            self.text = text
            return embed_text(text, images)

        model.embed_regions = watched_regions  # type: ignore[method-assign]
        model.embed_text = watched_text  # type: ignore[method-assign]


def test_each_pair_of_a_step_belongs_to_one_task(toy: ToyM3P) -> None:
    model, table = toy.model(), region_table(toy.train_pictures)
    captions = PlainCaptions(
        CaptionTable.build(records_in(toy.train_pictures, "en"), toy.tokenizer)
    )
    masking = replace(toy.masking, rate=1.0, masked=1.0, random=0.0)
    objective = MCTObjective(masking, negatives=2, region_rate=1.0, regions_zeroed=1.0)
    task = MCTTask(model, table, captions, objective, batch=5)
    spy = Spy(model)
    losses = losses_at(task, 0, 0)
    assert set(losses) == {"mc_mlm", "mc_mrm_features", "mc_mrm_labels", "mc_vlm"}
    assert len(spy.text.packing) == len(spy.regions.packing) == 5 + 5 + 15
    ends = spy.text.packing.cu_seqlens.tolist()
    for pair in range(25):
        ids = spy.text.ids[ends[pair] : ends[pair + 1]].tolist()
        features = spy.regions.features[2 * pair : 2 * pair + 2]
        assert all(i == masking.mask_id for i in ids[1:-1]) == (pair < 5)
        assert masking.mask_id not in (ids[0], ids[-1])
        assert (not features.any()) == (5 <= pair < 10)


@torch.no_grad()
def test_mc_mrm_predicts_fifteen_percent_and_masks_nine_in_ten_of_them(
    toy: ToyM3P,
) -> None:
    """The rates of section 3.2 of the paper."""
    model, table = toy.model(layers=1), region_table(toy.train_pictures)
    captions = PlainCaptions(
        CaptionTable.build(records_in(toy.train_pictures, "en"), toy.tokenizer)
    )
    objective = MCTObjective(toy.masking, tasks=("mc_mrm",))
    task = MCTTask(model, table, captions, objective, batch=500)
    spy, label_logits = Spy(model), model.label_logits
    predicted: list[int] = []

    def counted(rows: torch.Tensor) -> torch.Tensor:
        predicted.append(len(rows))
        return label_logits(rows)

    model.label_logits = counted  # type: ignore[method-assign]
    masked = total = 0
    for step in range(12):
        losses_at(task, 0, step)
        masked += int((~spy.regions.features.any(1)).sum())
        total += len(spy.regions.features)
    assert sum(predicted) / total == pytest.approx(0.15, abs=0.015)
    assert masked / sum(predicted) == pytest.approx(0.9, abs=0.03)


def test_background_regions_may_be_skipped(toy: ToyM3P) -> None:
    features = region_table(toy.train_pictures)
    captions = PlainCaptions(
        CaptionTable.build(records_in(toy.train_pictures, "en"), toy.tokenizer)
    )
    chosen = {}
    for skip in (False, True):
        objective = MCTObjective(
            toy.masking, tasks=("mc_mrm",), region_rate=1.0, skip_background=skip
        )
        task = MCTTask(toy.model(layers=1), features, captions, objective, batch=64)
        batch = task.sample(step_generator(0, 0))
        assert batch.mask is not None
        chosen[skip] = batch.regions.labels[batch.mask.positions]
    assert (chosen[False] == 0).any()
    assert chosen[True].tolist() == [label for label in chosen[False].tolist() if label != 0]


def test_the_reference_variant_regresses_features_as_they_are(toy: ToyM3P) -> None:
    """The published code scales inputs to unit length, and never targets."""
    model = toy.model(layers=1)
    model.reference = True
    features = region_table(toy.train_pictures)
    captions = PlainCaptions(
        CaptionTable.build(records_in(toy.train_pictures, "en"), toy.tokenizer)
    )
    task = MCTTask(model, features, captions, MCTObjective(toy.masking, tasks=("mc_mrm",)), batch=8)
    model.predict_features = lambda rows: torch.zeros(len(rows), WIDTH)  # type: ignore[method-assign]
    batch = task.sample(step_generator(0, 0))
    assert batch.mask is not None
    targets = batch.regions.load().features[batch.mask.positions]
    assert not torch.allclose(targets.norm(dim=1), torch.ones(len(targets)))
    loss = task.losses(batch)["mc_mrm_features"].item()
    assert loss == pytest.approx(float(targets.square().mean()), rel=1e-5)


@pytest.mark.parametrize("tasks", [("mc_mlm",), ("mc_mrm",), ("mc_vlm", "mc_mlm")])
def test_tasks_can_be_left_out_and_a_step_is_reproducible(
    toy: ToyM3P, tasks: tuple[MCTaskName, ...]
) -> None:
    model, table = toy.model(), region_table(toy.train_pictures)
    captions = code_switched(toy, records_in(toy.train_pictures, "en"), 0.5)
    task = MCTTask(model, table, captions, MCTObjective(toy.masking, tasks=tasks), batch=4)
    text = XMLMTask(model, captions.table, toy.masking, batch=4)
    both = MultiTask([("mct", task, 1.0), ("text", text, 1.0)])
    first, again, other = (losses_at(both, 0, step) for step in (3, 3, 4))
    names = {
        "mc_mlm": ["mc_mlm"],
        "mc_mrm": ["mc_mrm_features", "mc_mrm_labels"],
        "mc_vlm": ["mc_vlm"],
    }
    assert set(first) == {f"mct.{n}" for t in tasks for n in names[t]} | {"text.xmlm"}
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_unusable_data_is_refused(toy: ToyM3P) -> None:
    model, table = toy.model(), region_table(toy.train_pictures)
    captions = CaptionTable.build(records_in(toy.train_pictures[:1], "en"), toy.tokenizer)
    objective = MCTObjective(toy.masking)
    with pytest.raises(PolyglanceError, match="two images with captions"):
        MCTTask(model, table, PlainCaptions(captions), objective, batch=4)
    with pytest.raises(PolyglanceError, match="no sentences"):
        XMLMTask(model, CaptionTable.build([], toy.tokenizer), toy.masking, batch=1)
    with pytest.raises(PolyglanceError, match="each once"):
        MCTObjective(toy.masking, tasks=("mc_mlm", "mc_mlm"))
    with pytest.raises(PolyglanceError, match="negatives is 0"):
        MCTObjective(toy.masking, negatives=0)

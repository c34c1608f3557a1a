from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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
    language_shares,
)
from polyglance.records import Record
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.tokenizer import Tokenizer
from polyglance.training.loop import LoopConfig, train_loop
from polyglance.training.mixture import Mixture, MultiTask, Task, seed_step

LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class World:
    """Pictures to learn from and pictures to be found, and a tokenizer of what is said of them."""

    pictures: Sequence[Picture]
    gallery: Sequence[Picture]
    tokenizer: Tokenizer

    @property
    def masking(self) -> TokenMasking:
        assert self.tokenizer.mask_id is not None
        return TokenMasking(self.tokenizer.mask_id, (4, self.tokenizer.mask_id))

    def model(self, *, layers: int = 2, width: int = 32) -> M3P:
        """Untrained, and lively: these tests have no time for a slow start."""
        torch.manual_seed(0)
        encoder = EncoderConfig(
            vocab_size=self.tokenizer.vocab_size, hidden_size=width, num_layers=layers, num_heads=4,
            intermediate_size=2 * width, max_position_embeddings=66, dropout=0.0,
        )  # fmt: skip
        config = M3PConfig(encoder, LANGUAGES, visual_width=WIDTH, num_labels=LABELS)
        model = M3P(config)
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and name != "languages.weight":
                of_table = name in ("encoder.words.weight", "encoder.positions.weight")
                torch.nn.init.normal_(parameter, std=0.3 if of_table else 0.1)
        return model


@pytest.fixture(scope="module")
def world() -> World:
    toy = ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=1)
    pictures = list(toy.pictures(500))
    texts = [
        text
        for record in [
            *first_region_records(pictures, *LANGUAGES),
            *records_in(pictures, *LANGUAGES),
        ]
        for captions in record.captions.values()
        for text in captions
    ]
    gallery = list(toy.pictures(60, "test"))  # combinations that training never showed
    return World(pictures, gallery, unigram_tokenizer(texts, pieces=300))


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


def found(world: World, model: M3P, language: str) -> float:
    """The mean recall of all pairs scored in one language."""
    captions = CaptionTable.build(first_region_records(world.gallery, language), world.tokenizer)
    numbers = model.config.language_ids(captions.language_codes)
    scores = PairScores(model, first_regions(world.gallery), captions, languages=numbers)
    rows = np.arange(len(captions))
    return summarise(ranks_from_scores(scores.table(rows), captions.record_ids)).mean_recall


def switched(world: World, records: Sequence[Record], alpha: float) -> CodeSwitchedCaptions:
    switcher = CodeSwitcher({"de": toy_dictionary("de")}, beta=0.8, rank_exponent=0)
    return CodeSwitchedCaptions(
        records, switcher, world.tokenizer, alpha=alpha, variants=8, refresh=0
    )


def test_matching_is_learned_and_code_switching_carries_it_to_a_language_without_pictures(
    world: World, tmp_path: Path
) -> None:
    recalls = {}
    for name, alpha, steps in (("plain", 0.0, 100), ("switched", 0.5, 150)):
        model = world.model()
        captions = switched(world, first_region_records(world.pictures, "en"), alpha)
        objective = MCTObjective(world.masking, tasks=("matching",), negatives=3)
        task = MCTTask(model, first_regions(world.pictures), captions, objective, batch=24)
        learn(model, task, tmp_path / name, steps=steps)
        recalls[name] = {language: found(world, model, language) for language in LANGUAGES}
    # By chance 9; things that are equal stand in each other's way.
    assert recalls["plain"]["en"] > 45
    assert recalls["switched"]["en"] > 45
    assert recalls["plain"]["de"] < 20
    assert recalls["switched"]["de"] > 30


def test_hidden_words_are_told_from_the_picture_and_hidden_regions_from_the_words(
    world: World, tmp_path: Path
) -> None:
    model = world.model(layers=1)
    records = first_region_records(world.pictures, "en")
    captions = PlainCaptions(CaptionTable.build(records, world.tokenizer))
    masking = replace(world.masking, rate=0.3)
    objective = MCTObjective(masking, tasks=("words", "regions"), region_rate=1.0)
    task = MCTTask(model, first_regions(world.pictures), captions, objective, batch=24)
    learn(model, task, tmp_path, steps=110, rate=1e-2)
    torch.manual_seed(0)
    with torch.no_grad():
        trials = [task.losses(seed_step(9, step, 0)) for step in range(10)]
    means = {name: np.mean([float(losses[name]) for losses in trials]) for name in trials[0]}
    # A word that is guessed without the picture costs ln 8 for a colour and ln 6 for a shape; a
    # label without the words costs ln 48, and features cost the variance of what they show.
    assert means["words"] < 0.8
    assert means["labels"] < 1.5
    assert means["features"] < 0.06


def test_text_alone_is_learned_by_its_neighbours(world: World, tmp_path: Path) -> None:
    model = world.model(layers=1)
    corpus = CaptionTable.build(records_in(world.pictures, *LANGUAGES), world.tokenizer)
    task = XMLMTask(model, corpus, world.masking, batch=16)
    before = task.losses(seed_step(0, 0, 0))["words"].item()
    learn(model, task, tmp_path, steps=40)
    assert task.losses(seed_step(0, 0, 0))["words"].item() < before - 1.5
    assert model.languages.weight.abs().amin() > 0


def test_languages_are_drawn_by_their_share_to_the_power_of_the_smoothing(world: World) -> None:
    counts = np.array([800, 0, 200])
    expected = np.array([0.8**0.3, 0, 0.2**0.3])
    assert language_shares(counts) == pytest.approx(expected / expected.sum())
    english, german = (
        records_in(world.pictures[:90], "en"),
        records_in(world.pictures[90:100], "de"),
    )
    corpus = CaptionTable.build([*english, *german], world.tokenizer)
    task = XMLMTask(world.model(), corpus, world.masking, batch=20_000)
    drawn = task.draw(np.random.default_rng(0))
    share = (corpus.language_ids[drawn] == 1).mean()
    assert share == pytest.approx(0.1**0.3 / (0.1**0.3 + 0.9**0.3), abs=0.015)
    assert len(np.unique(drawn)) == 100


class Spy:
    """Sees what a step reads."""

    def __init__(self, model: M3P) -> None:
        self.model, self.read = model, model.forward
        model.forward = self  # type: ignore[method-assign]

    def __call__(self, text: Text, regions: Regions) -> Any:
        self.text, self.regions = text, regions
        return self.read(text, regions)


def test_each_pair_of_a_step_has_one_task(world: World) -> None:
    model, table = world.model(), region_table(world.pictures)
    captions = PlainCaptions(CaptionTable.build(records_in(world.pictures, "en"), world.tokenizer))
    masking = replace(world.masking, rate=1.0, masked=1.0, random=0.0)
    objective = MCTObjective(masking, negatives=2, region_rate=1.0, regions_zeroed=1.0)
    task = MCTTask(model, table, captions, objective, batch=5)
    spy = Spy(model)
    losses = task.losses(seed_step(0, 0, 0))
    assert set(losses) == {"words", "features", "labels", "matching"}
    assert len(spy.text.packing) == len(spy.regions.packing) == 5 + 5 + 15
    ends = spy.text.packing.cu_seqlens.tolist()
    for pair in range(25):
        ids = spy.text.ids[ends[pair] : ends[pair + 1]].tolist()
        seen = spy.regions.features[2 * pair : 2 * pair + 2]
        assert all(i == masking.mask_id for i in ids[1:-1]) == (pair < 5)
        assert masking.mask_id not in (ids[0], ids[-1])
        assert (not seen.any()) == (5 <= pair < 10)


@torch.no_grad()
def test_fifteen_percent_of_regions_are_asked_for_and_nine_in_ten_of_them_hidden(
    world: World,
) -> None:
    """The paper's rates, section 3.2, as a step of the task has them."""
    model, table = world.model(layers=1), region_table(world.pictures)
    captions = PlainCaptions(CaptionTable.build(records_in(world.pictures, "en"), world.tokenizer))
    objective = MCTObjective(world.masking, tasks=("regions",))
    task = MCTTask(model, table, captions, objective, batch=500)
    spy, named = Spy(model), model.label_logits
    asked: list[int] = []

    def counted(rows: torch.Tensor) -> torch.Tensor:
        asked.append(len(rows))
        return named(rows)

    model.label_logits = counted  # type: ignore[method-assign]
    hidden = seen = 0
    for step in range(12):
        task.losses(seed_step(0, step, 0))
        hidden += int((~spy.regions.features.any(1)).sum())
        seen += len(spy.regions.features)
    assert sum(asked) / seen == pytest.approx(0.15, abs=0.015)
    assert hidden / sum(asked) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("tasks", [("words",), ("regions",), ("matching", "words")])
def test_tasks_can_be_left_out_and_a_step_can_be_repeated(
    world: World, tasks: tuple[MCTaskName, ...]
) -> None:
    model, table = world.model(), region_table(world.pictures)
    captions = switched(world, records_in(world.pictures, "en"), 0.5)
    task = MCTTask(model, table, captions, MCTObjective(world.masking, tasks=tasks), batch=4)
    text = XMLMTask(model, captions.table, world.masking, batch=4)
    both = MultiTask([("pairs", task, 1.0), ("text", text, 1.0)])
    first, again, other = (both.losses(seed_step(0, step, 0)) for step in (3, 3, 4))
    names = {"words": ["words"], "regions": ["features", "labels"], "matching": ["matching"]}
    assert set(first) == {f"pairs.{n}" for t in tasks for n in names[t]} | {"text.words"}
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_what_cannot_be_trained_on_is_said_plainly(world: World) -> None:
    model, table = world.model(), region_table(world.pictures)
    captions = CaptionTable.build(records_in(world.pictures[:1], "en"), world.tokenizer)
    objective = MCTObjective(world.masking)
    with pytest.raises(PolyglanceError, match="two pictures with captions"):
        MCTTask(model, table, PlainCaptions(captions), objective, batch=4)
    with pytest.raises(PolyglanceError, match="no sentence"):
        XMLMTask(model, CaptionTable.build([], world.tokenizer), world.masking, batch=1)
    with pytest.raises(PolyglanceError, match="each once"):
        MCTObjective(world.masking, tasks=("words", "words"))
    with pytest.raises(PolyglanceError, match="negatives is 0"):
        MCTObjective(world.masking, negatives=0)

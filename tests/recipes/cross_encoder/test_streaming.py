"""Training corpora on disk: the same recipes, chosen by size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.interruptions import interrupt_before_step
from helpers.toy_regions import write_region_data
from polyglance.batches.order import Shuffle
from polyglance.batches.regions import RegionTable
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder import data as data_module
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler, Streaming
from polyglance.recipes.cross_encoder.config import CaptionedImages, TextFile
from polyglance.recipes.cross_encoder.data import SplitReader
from polyglance.recipes.cross_encoder.streaming import StreamingConfig
from polyglance.recipes.m3p import config as m3p
from polyglance.recipes.m3p.train import train as train_m3p
from polyglance.recipes.uc2 import config as uc2
from polyglance.recipes.uc2.data import load_data
from polyglance.recipes.uc2.labels import LabelNamesConfig
from polyglance.recipes.uc2.train import build_model, pretraining_tasks
from polyglance.recipes.uc2.train import train as train_uc2
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.text import open_tokenizer
from polyglance.training import mixture as mixture_module
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import step_generator

LANGUAGES = ("en", "de", "fr")
ON_DISK = StreamingConfig(regions_memory=0.0)


class Letters:
    """A letter is a token."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text] for text in texts]


TABLE = CaptionTable.build(
    [
        Record(
            captions={"en": ("a", "b")}
            | ({"de": ("c",)} if number % 3 == 0 else {})
            | ({"fr": ("d", "e")} if number % 4 == 1 else {})
        )
        for number in range(30)
    ],
    Letters(),
)


@pytest.mark.parametrize("shuffle", [None, Shuffle(8, 2)])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_streamed_captions_have_the_statistics_of_sampled_ones(
    shuffle: Shuffle | None, alpha: float
) -> None:
    streaming = Streaming(per_batch=120, seed=1, shuffle=shuffle)
    streamed = LanguageBalancedSampler(TABLE, language_alpha=alpha, streaming=streaming)
    sampled = LanguageBalancedSampler(TABLE, language_alpha=alpha)
    # In halves, as ITM takes its pairs.
    rows = np.concatenate([
        streamed.sample(60, generator)
        for generator in (step_generator(0, step) for step in range(50))
        for _ in range(2)
    ])  # fmt: skip
    expected = sampled.sample(20_000, np.random.default_rng(0))
    shares = [np.bincount(TABLE.language_ids[some]) / len(some) for some in (rows, expected)]
    assert shares[0] == pytest.approx(shares[1], abs=0.015)
    for language in range(3):
        of_language = rows[TABLE.language_ids[rows] == language]
        images = TABLE.record_ids[of_language]
        every, counts = np.unique(images, return_counts=True)
        assert len(every) == (30, 10, 8)[language]
        assert np.ptp(counts) <= 1  # every image as often as any other, not about so
        captions, counts = np.unique(of_language, return_counts=True)
        assert len(captions) == (60, 10, 16)[language]
        assert counts.min() > 0.5 * counts.mean()


def test_negatives_are_other_images_of_the_batch_in_the_same_language() -> None:
    sampler = LanguageBalancedSampler(TABLE, streaming=Streaming(per_batch=24))
    generator = step_generator(0, 3)
    rows = sampler.sample(24, generator)
    others = sampler.sample_other_images(np.repeat(rows, 20), generator).reshape(24, 20)
    taken = {(TABLE.record_ids[r], TABLE.language_ids[r]) for r in rows.tolist()}
    for row, negatives in zip(rows.tolist(), others.tolist(), strict=True):
        language = TABLE.language_ids[row]
        assert {TABLE.language_ids[other] for other in negatives} == {language}
        assert TABLE.record_ids[row] not in TABLE.record_ids[negatives]
        assert {(TABLE.record_ids[other], language) for other in negatives} <= taken
    alone = sampler.sample_other_images(rows[:1], generator)  # there is none: any image then
    assert TABLE.record_ids[alone[0]] != TABLE.record_ids[rows[0]]
    with pytest.raises(ValueError, match="a batch takes 24 items, and 25 are asked"):
        sampler.sample(1, generator)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_region_data(folder, LANGUAGES, {"train": 24, "val": 4})
    texts = [replace(record, image=None) for record in read_manifest(folder / "train.jsonl")]
    write_manifest(folder / "texts.jsonl", texts)
    return folder


def uc2_recipe(data: Path) -> uc2.UC2Recipe:
    return uc2.UC2Recipe(
        encoder=str(data / "encoder"),
        streaming=ON_DISK,
        train=CaptionedImages("train.jsonl", "regions"),
        labels=LabelNamesConfig("labels.tsv"),
        translations=uc2.Translations(texts=(TextFile("texts.jsonl"),)),
        early_adaptation=uc2.EarlyAdaptationConfig(batch=12, steps=2, learning_rate=1e-2),
        pretraining=uc2.Pretraining(batch=6, steps=6, learning_rate=1e-3),
        fine_tuning=uc2.FineTuning(batch=4, hard_negative_pool=0),
        loop=LoopConfig(steps=2, learning_rate=1e-3, save_every=0, log_every=1),
        reranking=None,
    )


def test_uc2_trains_from_disk(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = uc2_recipe(data)
    report = train_uc2(recipe, data, tmp_path / "run")
    assert "GB of regions are read from disk while training" in capsys.readouterr().err
    assert {"early_adaptation", "pretraining", "fine_tuning"} <= set(report)
    assert any((data / "cache").glob("captions-*/captions.json"))
    only_hard = replace(
        recipe,
        early_adaptation=None,
        pretraining=None,
        fine_tuning=uc2.FineTuning(batch=4, hard_negative_pool=3),
    )
    with pytest.raises(PolyglanceError, match=r"raise streaming\.regions_memory"):
        train_uc2(only_hard, data, tmp_path / "hard")


def test_an_epoch_is_split_over_processes_without_loss_or_overlap(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(uc2_recipe(data), fine_tuning=None)
    loaded = load_data(recipe, data, "cpu")
    assert isinstance(loaded.train.regions, StreamedRegions)
    assert recipe.pretraining is not None
    tasks = pretraining_tasks(recipe, recipe.pretraining, build_model(recipe, loaded), loaded)

    def texts(step: int, number: int, size: int) -> list[tuple[int, ...]]:
        """Return the captions of a process's share of an MRTM batch, where none is masked."""
        monkeypatch.setattr(mixture_module, "rank", lambda: number)
        monkeypatch.setattr(mixture_module, "world_size", lambda: size)
        batch: Any = tasks["mrtm"].sample(step_generator(0, step))
        lengths = batch.text.packing.lengths.tolist()
        return [tuple(ids.tolist()) for ids in batch.text.ids.split(lengths)]

    captions = loaded.train.captions
    steps = 24 * len(LANGUAGES) // 6  # an epoch: every image in every language
    parts = Counter(text for step in range(steps) for number in range(3)
                    for text in texts(step, number, 3))  # fmt: skip
    assert parts == Counter(text for step in range(steps) for text in texts(step, 0, 1))
    per_image = Counter[int]()
    rows = {
        tuple(captions.gather(np.array([row]))[0].tolist()): row for row in range(len(captions))
    }
    assert sum(parts.values()) == 24 * len(LANGUAGES)
    for text, count in parts.items():
        per_image[int(captions.record_ids[rows[text]])] += count
    assert len(rows) == len(captions)  # captions that two images share would be counted for one
    assert set(per_image.values()) == {len(LANGUAGES)}
    # A step's batch needs none of the steps before it.
    again = pretraining_tasks(recipe, recipe.pretraining, build_model(recipe, loaded), loaded)
    first: Any = tasks["vtlm"].sample(step_generator(0, 7))
    second: Any = again["vtlm"].sample(step_generator(0, 7))
    assert torch.equal(first.text.ids, second.text.ids)
    first.wait()
    second.wait()
    assert torch.equal(first.regions.values, second.regions.values)


def m3p_recipe(data: Path) -> m3p.M3PRecipe:
    return m3p.M3PRecipe(
        encoder=str(data / "encoder"),
        streaming=replace(ON_DISK, shuffle_memory=1e-6),
        labels=48,
        train=CaptionedImages("train.jsonl", "regions"),
        texts=(TextFile("texts.jsonl"),),
        code_switching=m3p.CodeSwitching(languages=("de",), variants=2),
        pretraining=m3p.Pretraining(batch=4, text_batch=4, steps=2),
        fine_tuning=m3p.FineTuning(batch=4, hard_negative_pool=0),
        loop=LoopConfig(steps=2, learning_rate=1e-3, save_every=0),
        reranking=None,
    )


def test_m3p_trains_from_disk(data: Path, tmp_path: Path) -> None:
    report = train_m3p(m3p_recipe(data), data, tmp_path / "run")
    assert {"pretraining", "fine_tuning"} <= set(report)


@pytest.mark.parametrize("system", ["uc2", "m3p"])
def test_killed_runs_resume_to_the_bit(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    def train(run: Path) -> None:
        loop = LoopConfig(steps=2, learning_rate=1e-3, save_every=2)
        if system == "uc2":
            train_uc2(replace(uc2_recipe(data), loop=loop), data, run)
        else:
            recipe = m3p_recipe(data)
            assert recipe.pretraining is not None
            longer = replace(recipe.pretraining, steps=4)
            train_m3p(replace(recipe, loop=loop, pretraining=longer), data, run)

    train(tmp_path / "whole")
    interrupt_before_step(monkeypatch, 3)  # of pre-training, whose last checkpoint is of step 2
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed")
    assert not (tmp_path / "killed" / "fine_tuning").exists()
    train(tmp_path / "killed")
    ours, theirs = (
        load_file(tmp_path / name / "fine_tuning" / "latest" / "model.safetensors")
        for name in ("killed", "whole")
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_size_and_address_decide_where_regions_lie(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").put(str(data / "regions"), "/toy/regions", recursive=True)
    tokenizer = open_tokenizer(str(data / "encoder"))
    reader = SplitReader(data, tokenizer, max_text_tokens=30, max_regions=9, prepend_global=True)
    local = reader.read_train(CaptionedImages("train.jsonl", "regions"))
    assert isinstance(local.regions, RegionTable)
    assert local.streaming(6) is None
    corpus = CaptionedImages("train.jsonl", "memory://toy/regions")
    remote = reader.read_train(corpus)
    assert isinstance(remote.regions, RegionTable)
    assert torch.equal(remote.regions.features, local.regions.features)
    monkeypatch.setattr(data_module, "LARGE_MANIFEST", 0)
    streamed = replace(reader, streaming=ON_DISK).read_train(corpus)
    assert isinstance(streamed.regions, StreamedRegions)
    assert not isinstance(streamed.records, list)  # they stay on disk as well
    assert [record.key for record in streamed.records] == [r.key for r in local.records]
    assert list(streamed.files) == list(local.files)
    numbers = np.array([5, 0, 23])
    ours, theirs = streamed.regions.take(numbers)[0], local.regions.take(numbers)[0]
    assert torch.equal(ours.features, theirs.features)
    assert streamed.captions.token_ids.tolist() == local.captions.token_ids.tolist()
    streaming = streamed.streaming(6)
    assert streaming is not None
    assert streaming.shuffle is not None  # a remote store is read window by window
    corpus = replace(corpus, features="regions")
    local_disk = replace(reader, streaming=ON_DISK).read_train(corpus)
    assert local_disk.streaming(6) == Streaming(6)

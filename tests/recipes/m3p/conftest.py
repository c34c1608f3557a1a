"""Toy data and a short recipe of M3P."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.toy_regions import write_region_data
from polyglance.recipes.cross_encoder.config import (
    CaptionedImages,
    RerankingConfig,
    TextFile,
)
from polyglance.recipes.m3p.config import CodeSwitching, FineTuning, M3PRecipe, Pretraining
from polyglance.records import read_manifest, write_manifest
from polyglance.training.loop import LoopConfig

LANGUAGES = ("en", "de")
COUNTS = {"train": 40, "val": 10, "test": 12}


@pytest.fixture(scope="package")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_region_data(folder, LANGUAGES, COUNTS)
    texts = [
        replace(record, image=None, id=None)
        for split in COUNTS
        for record in read_manifest(folder / f"{split}.jsonl")
    ]
    write_manifest(folder / "texts.jsonl", texts)
    (folder / "dual").mkdir()
    generator = np.random.default_rng(0)
    for name in ("pictures", *LANGUAGES):
        np.save(folder / "dual" / f"{name}.npy", generator.standard_normal((12, 8)))
    return folder


@pytest.fixture
def recipe(data: Path) -> M3PRecipe:
    return M3PRecipe(
        encoder=str(data / "encoder"),
        labels=48,
        train=CaptionedImages("train.jsonl", "regions"),
        validation=CaptionedImages("val.jsonl", "regions"),
        test=CaptionedImages("test.jsonl", "regions"),
        texts=(TextFile("texts.jsonl"),),
        code_switching=CodeSwitching(languages=("de",), variants=2),
        pretraining=Pretraining(batch=4, text_batch=4, steps=2),
        fine_tuning=FineTuning(batch=4, hard_negative_pool=5),
        loop=LoopConfig(steps=2, learning_rate=1e-3, save_every=0),
        reranking=RerankingConfig("dual", candidates=5),
    )

"""Parts of small cross-encoders, images of one colour each, and a run of UC2 on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.tiny_cross_encoders import COLOURS, SIZE, write_colour_images, write_colour_parts
from polyglance.recipes import open_recipe


@pytest.fixture(scope="package")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colour_parts(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="package")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_colour_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="package")
def run(parts: Path, images: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the included recipe of UC2 for a few steps, and re-rank a dual encoder's candidates."""
    data = images[0].parent
    lines = [
        {"image": f"{name}.png", "captions": {"en": [f"a {name} picture"]}} for name in COLOURS
    ]
    (data / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (data / "dual").mkdir()
    for name in ("pictures", "en"):
        np.save(data / "dual" / f"{name}.npy", np.random.default_rng(0).normal(size=(6, 4)))
    reranking = "{dual_embeddings: dual, validation_embeddings: dual, candidates: 3}"
    changes = [
        f"encoder={parts / 'encoder'}",
        f"image_backbone={{backbone: {parts / 'image_backbone'}, size: {SIZE}, views: 1}}",
        "train={manifest: captions.jsonl}", "validation={manifest: captions.jsonl}",
        "test={manifest: captions.jsonl}", "early_adaptation=null", "max_text_tokens=30",
        "pretraining.mixture={itm: 1, mlm: 1, mrtm: 0, vtlm: 0}", "pretraining.steps=2",
        "word_head={batch: 4, steps: 1}",
        "pretraining.itm_only_steps=1", "pretraining.batch=4", "fine_tuning.batch=4",
        "fine_tuning.hard_negative_pool=0", "loop.steps=2", "loop.precision=float32",
        f"reranking={reranking}",
    ]  # fmt: skip
    out = tmp_path_factory.mktemp("run") / "uc2"
    open_recipe("uc2-flickr8k", changes).train(data, out)
    return out

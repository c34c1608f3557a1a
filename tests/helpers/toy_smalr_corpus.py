"""The toy dataset as a corpus for word models: manifests, one vector a picture, dictionaries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from helpers.toy_smalr import COLOURS, SHAPES, detector_features
from polyglance.data.toy import ToyDataset
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes.dictionaries import make_dictionaries
from polyglance.recipes.smalr.config import FeatureSplit, PretrainingConfig, SMALRRecipe
from polyglance.records import write_manifest
from polyglance.training.loop import LoopConfig

LANGUAGES = ("en", "de", "fr")
DICTIONARIES = "flickr8k/dictionaries/{source}-{target}.tsv"

RECIPE = SMALRRecipe(
    languages=LANGUAGES,
    word_vectors="skipgram",
    word_vector_dim=24,
    dictionaries=DICTIONARIES,
    train=FeatureSplit("flickr8k/train.jsonl", "flickr8k/features.npz"),
    validation=FeatureSplit("flickr8k/val.jsonl", "flickr8k/features.npz"),
    test=FeatureSplit("flickr8k/test.jsonl", "flickr8k/features.npz"),
    model_config={
        "own_words": 12,
        "own_width": 16,
        "latent_tokens": 40,
        "candidates": 4,
        "universal_width": 24,
        "gru_width": 32,
        "visual_hidden": 48,
        "width": 24,
        "dropout": 0.1,
    },
    triplets=TripletRule(margin=0.2),
    batch=64,
    captions_per_language=1,
    pretraining=PretrainingConfig(steps=20, learning_rate=1e-2, batch=64),
    loop=LoopConfig(
        steps=100, learning_rate=1e-2, schedule="cosine", save_every=0, validate_every=50
    ),
)
"""SMALR, small."""


def make_toy_smalr_corpus(data: Path, *, pictures: int = 240) -> None:
    """Write ``flickr8k/`` below a folder."""
    dataset = ToyDataset(
        seed=0, languages=LANGUAGES, colours=COLOURS, shapes=SHAPES, captions_per_language=2
    )
    drawn = list(dataset.pictures(pictures + 120, "train"))
    records = [replace(p.record(f"{p.key}.png"), questions=(), id=None) for p in drawn]
    folder = data / "flickr8k"
    splits = {"train": records[:-120], "val": records[-120:-60], "test": records[-60:]}
    for split, some in splits.items():
        write_manifest(folder / f"{split}.jsonl", some)
    np.savez(
        folder / "features.npz",
        ids=np.array([record.image for record in records]),
        features=np.stack([detector_features(p).numpy()[None] for p in drawn]).astype(np.float16),
    )
    make_dictionaries(
        splits["train"], splits["train"], LANGUAGES, str(data / DICTIONARIES), freedict=None
    )


def few_steps(data: Path, **changes: Any) -> SMALRRecipe:
    """Return a recipe of two steps."""
    loop = replace(RECIPE.loop, steps=2, validate_every=0)
    pretraining = replace(RECIPE.pretraining, steps=2)
    same = {"cache_dir": str(data / "cache"), "loop": loop, "pretraining": pretraining}
    return replace(RECIPE, **{**same, **changes})

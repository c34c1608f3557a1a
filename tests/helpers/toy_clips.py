"""The toy dataset's clips as a corpus with extracted features, and a small untrained encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from helpers.text_encoder import WIDTH, save_text_encoder
from polyglance.data.toy import Clip, ToyDataset
from polyglance.models.mmp import MMPObjective
from polyglance.recipes.mmp.config import FeatureSplit, MMPRecipe, TrainingCorpus
from polyglance.records import Cue, Record, write_manifest
from polyglance.training.loop import LoopConfig
from polyglance.vision.store import StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans

SIZE, SECONDS = 12, 4
LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class ToyCorpus:
    """``data/clips`` has train, val and test manifests, features.npz and long subtitled videos."""

    data: Path
    encoder: Path
    recipe: MMPRecipe


def clip_features(clip: Clip) -> np.ndarray:
    """Return one vector of coarse pixels per second."""
    return clip.frames(size=SIZE, frames=SECONDS).reshape(SECONDS, -1) / 127.5 - 1


def subtitled_video(clips: Sequence[Clip]) -> Record:
    """Return a long video of several clips, each with a subtitle in each language."""
    subtitles = {
        language: tuple(
            Cue(SECONDS * number, SECONDS * (number + 1), clip.captions[language][0].text)
            for number, clip in enumerate(clips)
        )
        for language in LANGUAGES
    }
    return Record(video="+".join(clip.key for clip in clips), subtitles=subtitles)


def make_toy_corpus(folder: Path, *, train: int = 480, others: int = 60) -> ToyCorpus:
    """Write the corpus and its encoder below a folder: so many clips to train and to test on."""
    dataset = ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=2)
    clips = {"train": list(dataset.clips(train, "train"))}
    clips |= {split: list(dataset.clips(others, split)) for split in ("val", "test")}  # type: ignore[arg-type]
    everything = [clip for some in clips.values() for clip in some]
    for split, some in clips.items():
        records = [replace(clip.record(clip.key), questions=(), id=None) for clip in some]
        write_manifest(folder / "data" / "clips" / f"{split}.jsonl", records)
    features = {clip.key: clip_features(clip) for clip in everything}
    np.savez(
        folder / "data" / "clips" / "features.npz",
        ids=np.array(list(features)),
        features=np.stack(list(features.values())).astype(np.float16),
    )
    groups = [clips["train"][i : i + 4] for i in range(0, len(clips["train"]), 4)]
    write_manifest(folder / "data" / "clips" / "videos.jsonl", map(subtitled_video, groups))
    np.savez(
        folder / "data" / "clips" / "videos.npz",
        ids=np.array([subtitled_video(group).video for group in groups]),
        features=np.stack([np.concatenate([features[c.key] for c in g]) for g in groups]),
    )
    encoder = folder / "encoder"
    save_text_encoder(
        encoder, [text for c in everything for t in c.record().captions.values() for text in t]
    )
    described = {"features": "clips/features.npz"}
    recipe = MMPRecipe(
        encoder=str(encoder),
        text_layer=None,
        frozen_layers=0,
        width=WIDTH,
        pooling_layers=1,
        dropout=0.0,
        encoder_dropout=0.0,
        corpora=(TrainingCorpus("clips/train.jsonl", batch=48, **described),),
        validation=FeatureSplit("clips/val.jsonl", **described),
        test=FeatureSplit("clips/test.jsonl", **described),
        objective=MMPObjective(temperature=0.05, intra=False),
        loop=LoopConfig(
            steps=80, learning_rate=5e-3, schedule="cosine", warmup=10, grad_clip=1.0, log_every=20
        ),
    )
    return ToyCorpus(folder / "data", encoder, recipe)


def write_store(folder: Path, items: Mapping[str, np.ndarray]) -> None:
    """Write a feature store with these rows by key; the global vector is their mean."""
    keys = list(items)
    width = next(iter(items.values())).shape[1]
    info = StoreInfo(
        made_by={"backbone": "test"}, width=width, dtype="float16", labels=0, shard_size=4,
        items=len(keys), keys_sha256=hash_keys(keys),
    )  # fmt: skip
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        writer.write(number, [_tokens(items[key]) for key in writer.keys_of(number)])
    writer.finish()


def _tokens(rows: np.ndarray) -> VisualTokens:
    count = len(rows)
    return VisualTokens(
        features=rows.astype(np.float32),
        boxes=np.zeros((count, 4), np.float32),
        global_feature=rows.mean(0).astype(np.float32),
        label_ids=np.zeros((count, 0), np.uint16),
        label_probs=np.zeros((count, 0), np.float16),
        spans=zero_spans(count),
    )

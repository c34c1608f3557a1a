"""The synthetic corpus is written once, and UC2 trains from it."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed import streaming_corpus, synthetic_corpus
from polyglance.data.caption_files import open_captions
from polyglance.vision.store import FeatureStore


def test_corpus_has_the_shape_asked_for_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic_corpus, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    for name, value in (("ROUNDS", 1), ("STEPS_A_ROUND", 2), ("STEPS_AHEAD", 1)):
        monkeypatch.setattr(streaming_corpus, name, value)
    sizes = synthetic_corpus.Sizes.tiny()
    synthetic_corpus.write_corpus(tmp_path, sizes)
    store, captions = FeatureStore(tmp_path / "regions"), open_captions(tmp_path / "captions")
    assert len(store) == sizes.images
    assert store[store.keys[7]].features.shape == (sizes.regions, sizes.width)
    assert captions is not None
    assert captions.num_records == sizes.images
    assert set(np.bincount(captions.record_ids)) == {len(synthetic_corpus.LANGUAGES)}
    written = (tmp_path / "regions" / "shards" / "00000.safetensors").stat().st_mtime_ns
    synthetic_corpus.write_corpus(tmp_path, sizes)
    assert (tmp_path / "regions" / "shards" / "00000.safetensors").stat().st_mtime_ns == written
    options = argparse.Namespace(corpus=tmp_path, no_compile=True, save_every=5, tiny=True)
    figures = streaming_corpus.compare(options, sizes)
    assert figures["pairs_per_second"]["streamed"] > 0
    assert synthetic_corpus.Sizes.of(40).images * 36 * 2048 == pytest.approx(40e9, rel=1e-4)

"""CLIP_benchmark's zero-shot evaluations of our models.

Its metrics are imported as they are installed. Its data sets and its own models need torchvision
and open_clip, which no test does.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from helpers.noisy_encoder import NoisyEncoder
from polyglance.evaluation.retrieval import RetrievalResult
from polyglance.integrations.clip_benchmark import (
    load_polyglance,
    pack_texts,
    register,
    unpack_texts,
)
from polyglance.records import read_manifest


def collate(items: list[tuple[torch.Tensor, Any]]) -> tuple[torch.Tensor, list[Any]]:
    """As CLIP_benchmark's own for captions."""
    return torch.stack([picture for picture, _ in items]), [others for _, others in items]


def test_retrieval_finds_our_recalls(manifest: Path, ours: RetrievalResult) -> None:
    from clip_benchmark.metrics import zeroshot_retrieval

    model, transform, tokenizer = load_polyglance(NoisyEncoder())
    data = [
        (transform(Image.open(manifest.parent / str(record.image))), record.captions["en"])
        for record in read_manifest(manifest)
    ]
    loader = DataLoader(data, batch_size=16, collate_fn=collate)  # type: ignore[arg-type]
    ks = list(ours.text_to_image.recalls)
    found = zeroshot_retrieval.evaluate(
        model, loader, tokenizer, "cpu", amp=False, recall_k_list=ks
    )
    for k in ks:
        to_image, to_text = ours.text_to_image.recalls[k], ours.image_to_text.recalls[k]
        assert found[f"image_retrieval_recall@{k}"] == pytest.approx(to_image / 100, abs=1e-6)
        assert found[f"text_retrieval_recall@{k}"] == pytest.approx(to_text / 100, abs=1e-6)


def test_texts_are_packed_and_unpacked() -> None:
    texts = ["", "a dog", "一只狗 ", "ein\nHund"]
    assert unpack_texts(pack_texts(texts)) == texts
    assert unpack_texts(pack_texts("a dog")) == ["a dog"]
    assert unpack_texts(pack_texts([])) == []


def test_our_models_are_registered_by_their_type(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", ModuleType("open_clip"))  # not used here
    register()
    register()
    from clip_benchmark.models import MODEL_TYPES, load_clip

    assert MODEL_TYPES.count("polyglance") == 1
    model, transform, tokenizer = load_clip("polyglance", str(folder), "", "", device="cpu")
    transform = pickle.loads(pickle.dumps(transform))  # as to a loader's processes
    picture = Image.new("RGB", (40, 30), "red")
    np.testing.assert_array_equal(
        model.encode_image(transform(picture)), model.encoder.encode_pictures([picture])[0]
    )
    np.testing.assert_array_equal(
        model.encode_text(tokenizer(["a dog"])), model.encoder.encode_texts(["a dog"])
    )


def test_the_example_of_the_page_runs(
    run_example: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run_example("CLIP_benchmark")
    assert "'text_retrieval_recall@1': 1.0" in capsys.readouterr().out

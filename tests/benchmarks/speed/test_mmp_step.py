"""MMP's step is timed on the same inputs in every variant, and trains the same layers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from benchmarks.reports.training_speed_page import mmp_step as section
from benchmarks.results_io import write_results
from benchmarks.speed import mmp_step
from benchmarks.speed.cross_encoder_step import Stepper


def test_variants_take_the_same_clips_and_train_the_same_layers() -> None:
    config = mmp_step.tiny_config()
    builders = mmp_step.build(config, {"translated": mmp_step.TINY["translated"]}, 12, "cpu")
    clips, trained = {}, {}
    for name, build in builders.items():
        stepper = Stepper(build(), "cpu")
        batch = next(stepper.batches["translated"])
        losses = batch.task.losses(batch.batch)
        assert set(losses) == {"inter", "intra", "cross"}
        assert all(math.isfinite(loss.item()) for loss in losses.values())
        clips[name] = batch.batch.visuals.packing.lengths.tolist()
        model = stepper.variant.model
        trained[name] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        for batches in stepper.batches.values():
            batches.close()
    assert clips["packed"] == clips["padded, eager"] == clips["transformers"]
    assert len(set(trained.values())) == 1
    assert mmp_step.teraflops(stepper, "translated") > 0


def test_padding_leaves_the_pooling_head_of_the_reference_alone() -> None:
    torch.manual_seed(0)
    model = mmp_step.TransformersMMP(mmp_step.tiny_config()).eval()
    features = torch.randn(9, 16)
    together = model.encode_visual(features, mmp_step.Packing.of([3, 6]))
    alone = model.encode_visual(features[:3], mmp_step.Packing.of([3]))
    torch.testing.assert_close(together[:1], alone)


def test_results_fill_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
    assert section(tmp_path / "mmp_step.json") == "Not measured yet."
    figures = {
        "pairs": {"fine-tuning": 128, "translated": 128},
        "pairs_per_second": {"packed": {"fine-tuning": 5432, "translated": 2000}},
        "tflops": {"packed": {"fine-tuning": 150.26, "translated": 99.0}},
        "peak_gib": {"packed": {"fine-tuning": 7.5, "translated": 9.0}},
        "peak_tflops": 790,
    }
    text = section(write_results("mmp_step", figures, tmp_path))
    assert "| packed | 5,432 | 2,000 |" in text
    assert "| packed | 150.3 | 99.0 |" in text
    assert "Large matrix products reach 790 TFLOP/s there." in text

"""Cross-encoders that are initialised from a dual encoder."""

from __future__ import annotations

from pathlib import Path

from helpers.small_mmp import small_model
from polyglance.recipes.cross_encoder.build import split_dual_encoder


def test_a_dual_encoder_is_split_again_unless_the_run_has_begun(tmp_path: Path) -> None:
    one = small_model(text_pooling="mean").export(tmp_path / "one")
    other = small_model(text_pooling="mean", seed=1).export(tmp_path / "other")
    first = split_dual_encoder(str(one), tmp_path / "run")
    weights = (first.text / "model.safetensors").read_bytes()
    written = (first.text / "model.safetensors").stat().st_mtime_ns
    assert split_dual_encoder(str(one), tmp_path / "run") == first
    assert (first.text / "model.safetensors").stat().st_mtime_ns == written
    split_dual_encoder(str(other), tmp_path / "run")
    others = (first.text / "model.safetensors").read_bytes()
    assert others != weights
    # A run that has begun keeps its parts; only missing ones are written again.
    (tmp_path / "run" / "contrastive_stage" / "latest").mkdir(parents=True)
    split_dual_encoder(str(one), tmp_path / "run")
    assert (first.text / "model.safetensors").read_bytes() == others
    (first.text / "model.safetensors").unlink()
    split_dual_encoder(str(other), tmp_path / "run")
    assert (first.text / "model.safetensors").read_bytes() == others

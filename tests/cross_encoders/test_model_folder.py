"""Model folders of cross-encoders: runs, their stages, and exported folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from typer.testing import CliRunner

from helpers.tiny_cross_encoders import save_cross_encoder, tiny_m3p, tiny_uc2
from polyglance.cli import app
from polyglance.cross_encoders.model_folder import (
    WORD_STAGES,
    NotACrossEncoder,
    load_cross_encoder,
    read_config,
    system_of,
)
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.errors import DataError, PolyglanceError

TEXT = "a blue picture"


def test_run_opens_and_exports_as_a_self_contained_model(
    run: Path, images: list[Path], tmp_path: Path
) -> None:
    reranker = CrossEncoderReranker.open(run)
    tuned = json.loads((run / "report.json").read_text())["validation"]["dual_weight"]
    assert reranker.dual_weight == tuned
    assert CrossEncoderReranker.open(run, dual_weight=3).dual_weight == 3
    expected = reranker.score(TEXT, reranker.encode_images(images))
    result = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    assert result.stderr == "", "the dual weight was tuned"
    options = ["--out", str(tmp_path / "x"), "--name", "mine", "--max-tokens", "9"]
    refused = CliRunner().invoke(app, ["export", str(run), *options])
    assert "which take no --name or --max-tokens: leave that out" in str(refused.exception)
    assert not (tmp_path / "x").exists()
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float16}
    exported = CrossEncoderReranker.open(tmp_path / "model")
    assert exported.dual_weight == tuned
    assert Path(exported.loaded.image_backbone.backbone).is_relative_to(tmp_path)
    np.testing.assert_allclose(
        exported.score(TEXT, exported.encode_images(images)), expected, atol=0.02
    )
    # The fine-tuned weights are loaded, unless a stage is named.
    tuned_weights = load_file(run / "fine_tuning" / "best" / "model.safetensors")
    state = reranker.loaded.model.state_dict()
    assert torch.equal(state["match.weight"], tuned_weights["match.weight"])
    earlier = CrossEncoderReranker.open(run / "pretraining").loaded.model.state_dict()
    assert not torch.equal(earlier["match.weight"], tuned_weights["match.weight"])


def test_run_opens_without_its_recipe_report_and_data(
    run: Path, images: list[Path], tmp_path: Path
) -> None:
    expected = CrossEncoderReranker.open(run)
    moved = tmp_path / "moved"
    shutil.copytree(run, moved, ignore=shutil.ignore_patterns("recipe.yaml", "report.json"))
    assert system_of(moved) == "uc2"
    plain = json.loads((moved / "config.json").read_text())
    assert {"system", "model", "image_backbone", "stages", "dual_weight"} <= set(plain)
    assert plain["image_backbone"]["backbone"] == "image_backbone"
    stages = {"word_head": False, "itm_only": False, "pretraining": True, "fine_tuning": True}
    assert plain["stages"] == stages
    opened = CrossEncoderReranker.open(moved)
    assert opened.dual_weight == expected.dual_weight
    assert Path(opened.loaded.image_backbone.backbone).is_relative_to(moved)
    np.testing.assert_array_equal(
        opened.score(TEXT, opened.encode_images(images)),
        expected.score(TEXT, expected.encode_images(images)),
    )


def test_distilled_weights_are_preferred_to_pretrained_ones_for_ranking(
    run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    distilled = (tmp_path / "run" / "fine_tuning").rename(tmp_path / "run" / "distillation")
    plain = json.loads((tmp_path / "run" / "config.json").read_text())
    plain["stages"]["distillation"] = plain["stages"].pop("fine_tuning")
    (tmp_path / "run" / "config.json").write_text(json.dumps(plain))
    expected = load_file(distilled / "best" / "model.safetensors")["match.weight"]
    by_rank = load_cross_encoder(tmp_path / "run").model.state_dict()
    assert torch.equal(by_rank["match.weight"], expected)
    by_words = load_cross_encoder(tmp_path / "run", stages=WORD_STAGES).model.state_dict()
    assert not torch.equal(by_words["match.weight"], expected)
    shutil.rmtree(tmp_path / "run" / "pretraining")
    by_words = load_cross_encoder(tmp_path / "run", stages=WORD_STAGES).model.state_dict()
    assert torch.equal(by_words["match.weight"], expected)


def test_unreadable_folders_are_reported(parts: Path, run: Path, tmp_path: Path) -> None:
    folder = save_cross_encoder(tmp_path / "model", parts, tiny_uc2(parts))
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(DataError, match="export it again"):
        CrossEncoderReranker.open(folder)
    (folder / "config.json").write_text('{"system": "uc2", "model": 3}')
    with pytest.raises(DataError, match=r"config\.json"):
        CrossEncoderReranker.open(folder)
    (folder / "config.json").write_text('{"system": "uc3"}')
    assert read_config(folder) is None
    with pytest.raises(NotACrossEncoder, match="holds no trained UC2 or M3P"):
        CrossEncoderReranker.open(folder)
    with pytest.raises(NotACrossEncoder):
        CrossEncoderReranker.open(run / "no_such_stage")
    # A run whose training has not written a checkpoint yet.
    begun = tmp_path / "begun"
    shutil.copytree(run, begun, ignore=shutil.ignore_patterns("best", "latest"))
    with pytest.raises(DataError, match="no checkpoint yet: run 'polyglance train' again"):
        load_cross_encoder(begun)
    for stage in ("fine_tuning", "pretraining"):
        shutil.rmtree(begun / stage)
    with pytest.raises(DataError, match="no stage has been trained yet"):
        load_cross_encoder(begun)


def test_backbone_is_refused_by_a_folder_with_its_own(run: Path, parts: Path) -> None:
    with pytest.raises(PolyglanceError, match="brings its own image backbone and takes no"):
        load_cross_encoder(run, backbone=str(parts / "image_backbone"))


class MetaOperations(TorchDispatchMode):
    """Records the operations on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.is_meta:
            self.names.add(func._schema.name)
        return made


@pytest.mark.parametrize("tiny", [tiny_uc2, tiny_m3p])
def test_models_open_without_arithmetic_on_the_meta_device(
    parts: Path, tmp_path: Path, tiny: Callable[[Path], Any]
) -> None:
    """Which would import torch's compiler first, for seconds."""
    folder = save_cross_encoder(tmp_path / "model", parts, tiny(parts))
    with MetaOperations() as operations:
        load_cross_encoder(folder)
    fills = {"aten::zeros", "aten::zero_", "aten::fill_", "aten::uniform_"}
    assert "aten::empty" in operations.names <= {"aten::empty", *fills}

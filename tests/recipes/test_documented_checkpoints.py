"""The commands of docs/other-models.md, as they stand, on files laid out as published."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from helpers.published import captions, multi30k
from helpers.published.regions import WIDTH, write_region_npz
from helpers.published.uc2_checkpoint import uc2_vqa_parameters
from helpers.text_encoder import save_text_encoder
from polyglance.cli import app
from polyglance.text import open_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "other-models.md"
HIDDEN, POSITIONS = 64, 130
VQA = ["polyglance", "train", "vqa-v2"]
"""Is run in test_published_datasets.py, which writes its files."""


def documented_commands() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split("## Published checkpoints of M3P and UC2")[1]
    return [line for line in section.splitlines() if line.startswith("polyglance ")]


def test_the_page_has_the_commands_that_are_run_here() -> None:
    words = [command.split()[:3] for command in documented_commands()]
    assert words == [
        ["polyglance", "features", "regions"],
        ["polyglance", "train", "uc2-multi30k"],
        ["polyglance", "train", "m3p-multi30k"],
        VQA,
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Flickr30K, Multi30K, UNITER's regions, XLM-R and both checkpoints."""
    captions.write_flickr30k(tmp_path / "DATA" / "flickr30k")
    multi30k.write_multi30k(tmp_path / "DATA" / "multi30k")
    names = [name.removesuffix(".jpg") for some in multi30k.IMAGES.values() for name in some]
    keys = [f"flickr30k_{int(name):012d}" for name in names]
    npz = write_region_npz(tmp_path / "npz", keys, classes=4)
    database = tmp_path / "FLICKR30K" / "feat_th0.2_max100_min10_compressed"
    database.mkdir(parents=True)
    with lmdb.open(str(database), map_size=1 << 22) as file, file.begin(write=True) as write:
        for key in keys:
            write.put(f"{key}.npz".encode(), (npz / f"{key}.npz").read_bytes())
        write.put(b"__keys__", json.dumps([f"{key}.npz" for key in keys]).encode())
    save_text_encoder(tmp_path / "xlm-roberta-base", captions.all_texts())
    words = open_tokenizer(tmp_path / "xlm-roberta-base").vocab_size
    torch.save(uc2_parameters(words), tmp_path / "uc2.pt")
    torch.save(
        {
            "epoch": 22,
            "best_metrics": {"valid_I2T_acc": np.float64(77.5)},
            "model": {f"module.{name}": value for name, value in m3p_parameters(words).items()},
            "params": {"lang2id": {"cs": 0, "de": 1, "en": 2}, "refine_image": False},
        },
        tmp_path / "m3p.pth",
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def uc2_parameters(words: int) -> dict[str, Tensor]:
    """Return what UC2's code saves after pre-training."""
    body = uc2_vqa_parameters(
        width=HIDDEN, words=words, positions=POSITIONS, visual_width=WIDTH, answers=5
    )
    shapes = {
        "cls.dense.weight": (HIDDEN, HIDDEN),
        "cls.dense.bias": (HIDDEN,),
        "cls.layer_norm.weight": (HIDDEN,),
        "cls.layer_norm.bias": (HIDDEN,),
        "cls.bias": (words,),
        "itm_output.weight": (2, HIDDEN),
        "itm_output.bias": (2,),
    }
    return {n: v for n, v in body.items() if not n.startswith("vqa_")} | filled(shapes)


def m3p_parameters(words: int) -> dict[str, Tensor]:
    """Return what M3P's code saves, with one layer and three languages."""
    square = [f"attentions.0.{part}_lin" for part in ("q", "k", "v", "out")]
    square += ["pooled_layer.dense", "transformer_obj.dense"]
    linear = dict.fromkeys(square, (HIDDEN, HIDDEN)) | {
        "ffns.0.lin1": (4 * HIDDEN, HIDDEN),
        "ffns.0.lin2": (HIDDEN, 4 * HIDDEN),
        "image_embeddings.image_embeddings": (HIDDEN, WIDTH),
        "image_embeddings.image_location_embeddings": (HIDDEN, 5),
        "seq_relationship": (1, HIDDEN),
        "mrfr_dense": (WIDTH, HIDDEN),
        "pred_obj_layer.proj": (1600, HIDDEN),
    }
    norms = ("layer_norm_emb", "layer_norm1.0", "layer_norm2.0", "image_embeddings.LayerNorm")
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": linear[name] for name in linear}
    shapes |= {f"{name}.bias": linear[name][:1] for name in linear}
    for norm in (*norms, "transformer_obj.LayerNorm"):
        shapes |= {f"{norm}.weight": (HIDDEN,), f"{norm}.bias": (HIDDEN,)}
    shapes |= {
        "embeddings.weight": (words, HIDDEN),
        "position_embeddings.weight": (POSITIONS, HIDDEN),
        "cross_lang_embeddings.weight": (3, HIDDEN),
        "pred_layer.proj.bias": (words,),
    }
    return filled(shapes)


def filled(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def test_the_documented_commands_run_as_they_stand(folder: Path) -> None:
    for command in documented_commands():
        if command.split()[:3] == VQA:
            continue
        done = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    for run in ("uc2-run", "m3p-run"):
        figures = json.loads((folder / run / "report.json").read_text())["test"]["all_pairs"]
        assert set(figures) >= {"en", "de", "fr", "cs"}
        assert all(0 < figures[code]["mR"] <= 100 for code in ("en", "de", "fr", "cs"))

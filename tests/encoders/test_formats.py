"""Formats are detected by files, and fingerprints depend on their content."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import polyglance
from helpers.clip_models import save_clip
from polyglance.encoders.formats import detect_format
from polyglance.encoders.model_folder import ModelFolder
from polyglance.errors import DataError, MissingExtraError, PolyglanceError


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return save_clip(tmp_path / "tiny-clip")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"model.json": {}}, "polyglance"),
        ({"text.onnx": {}}, "polyglance"),  # the description is missing
        ({"modules.json": [], "config.json": {"model_type": "clip"}}, "sentence-transformers"),
        ({"config.json": {"model_type": "clip"}}, "transformers"),
        ({"open_clip_config.json": {}}, "open_clip"),
        ({"open_clip_config.json": {}, "config.json": {"model_type": "clip"}}, "open_clip"),
        (
            {"open_clip_config.json": {}, "config.json": {"model_type": "clip"}}
            | {"model.safetensors": {}},
            "transformers",
        ),
    ],
)
def test_formats_are_detected_by_files(
    tmp_path: Path, files: dict[str, object], expected: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert detect_format(tmp_path) == expected


@pytest.mark.parametrize("config", [None, "no json", "[]", '{"hidden_size": 3}'])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(DataError, match="holds no known model"):
        polyglance.load(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "last.ckpt"])
def test_pickles_are_refused(clip: Path, name: str) -> None:
    (clip / "model.safetensors").rename(clip / name)
    with pytest.raises(PolyglanceError, match=f"{name}, a pickle, which can run any code"):
        polyglance.load(clip)


def test_a_pickle_beside_safetensors_is_ignored(clip: Path) -> None:
    (clip / "pytorch_model.bin").write_bytes(b"anything")
    assert polyglance.load(clip).width == 12


@pytest.mark.parametrize(
    ("package", "file", "extra"),
    [
        ("torch", "config.json", "train"),
        ("transformers", "config.json", "train"),
        ("open_clip", "open_clip_config.json", "open-clip"),
        ("sentence_transformers", "modules.json", "sentence-transformers"),
    ],
)
def test_a_missing_package_is_named(
    package: str, file: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "polyglance.encoders.formats.find_spec",
        lambda name: None if name == package else find_spec(name),
    )
    (tmp_path / file).write_text('{"model_type": "clip"}')
    with pytest.raises(MissingExtraError, match=f"polyglance\\[{extra}\\]"):
        polyglance.load(tmp_path)


def test_the_fingerprint_depends_on_content_alone(clip: Path, tmp_path: Path) -> None:
    first = polyglance.load(clip).fingerprint
    assert len(first) == 64
    copied = tmp_path / "other name"
    shutil.copytree(clip, copied)
    (copied / "README.md").write_text("What it is.")
    (copied / "results.json").write_text("{}")
    assert polyglance.load(copied).fingerprint == first
    for name in ("model.safetensors", "config.json", "processor_config.json", "tokenizer.json"):
        changed = tmp_path / name
        shutil.copytree(clip, changed)
        if name == "model.safetensors":
            weights = load_file(changed / name)
            weights["visual_projection.weight"][0, 0] += 1e-3
            save_file(weights, changed / name, metadata={"format": "pt"})
        else:
            (changed / name).write_text((changed / name).read_text() + " ")
        assert polyglance.load(changed).fingerprint != first


def test_the_fingerprint_of_exported_models(folder: Path, tmp_path: Path) -> None:
    own = polyglance.load(folder).fingerprint
    assert own != polyglance.load().fingerprint
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    plain = json.loads((copied / "model.json").read_text())
    for changes, same in (
        ({"name": "renamed", "version": "9", "figures": {"test": 1}}, True),
        ({"longest": 7}, False),
        ({"pictures": plain["pictures"] | {"resize": "centre"}}, False),
        ({"files": plain["files"] | {"text.onnx": {"bytes": 1, "sha256": "0"}}}, False),
    ):
        (copied / "model.json").write_text(json.dumps(plain | changes))
        assert (polyglance.load(copied).fingerprint == own) is same
        assert ModelFolder.open(copied).description.fingerprint == (
            polyglance.load(copied).fingerprint
        )


def test_a_model_in_the_hub_cache_has_its_own_name(clip: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--openai--clip-vit" / "snapshots" / "3d74acf9"
    snapshot.parent.mkdir(parents=True)
    clip.rename(snapshot)
    assert polyglance.load(snapshot).name == "clip-vit"

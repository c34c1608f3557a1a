"""Model folders that bring code are refused before a package opens them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polyglance
from polyglance.errors import PolyglanceError
from polyglance.text.huggingface import open_with_transformers
from polyglance.text.translation.transformers_translator import TransformersTranslator
from polyglance.weights.custom_code import refuse_custom_code

MARK = "ran.txt"


def write_model(folder: Path, config: dict[str, object], code: str | None = "modeling.py") -> Path:
    """A folder as a stranger publishes it: the configuration names a class in the file beside."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    if code is not None:
        ran = str(folder / MARK)
        (folder / code).write_text(f"open({ran!r}, 'w').close()\nclass Model: pass\n")
    return folder


HOSTILE: dict[str, tuple[dict[str, object], str | None, str]] = {
    "file": ({"model_type": "clip"}, "modeling.py", r"code of its own \(modeling\.py\)"),
    "compiled": ({"model_type": "clip"}, "fast.SO", r"code of its own \(fast\.SO\)"),
    "auto_map": (
        {"model_type": "clip", "auto_map": {"AutoModel": "modeling.Model"}},
        None,
        r"config\.json asks for code of its own \(auto_map\)",
    ),
    "other repository": (
        {"model_type": "clip", "auto_map": {"AutoModel": "owner/name--modeling.Model"}},
        None,
        r"\(auto_map\)",
    ),
    "inside": ({"model_type": "clip", "text_config": {"auto_map": {"A": "b.C"}}}, None, "auto_map"),
    "pipeline": ({"model_type": "clip", "custom_pipelines": {"a": {}}}, None, "custom_pipelines"),
    "trust": (
        {"model_type": "clip", "model_args": {"trust_remote_code": True}},
        None,
        r"\(trust_remote_code: True\)",
    ),
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_folder_with_code_is_refused_unopened(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, code, message = HOSTILE[case]
    folder = write_model(tmp_path / "model", config, code)
    # Were a package asked to open the folder, it would fail in another way.
    with pytest.raises(PolyglanceError, match=message):
        polyglance.load(folder)
    with pytest.raises(PolyglanceError, match=message):
        open_with_transformers(folder)
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "marian"}))
    with pytest.raises(PolyglanceError, match=message):
        TransformersTranslator(folder, "en", "de")
    assert not (folder / MARK).exists()


def test_escaped_keys_and_settings_beside_the_config_are_found(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", {}, None)
    refuse_custom_code(folder)
    (folder / "tokenizer_config.json").write_text('{"auto\\u005fmap": {"AutoTokenizer": ["a.B"]}}')
    with pytest.raises(PolyglanceError, match=r"tokenizer_config\.json asks for code"):
        refuse_custom_code(folder)


def test_words_of_a_vocabulary_are_no_settings(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", {"auto_map": None, "trust_remote_code": False}, None)
    (folder / "vocab.json").write_text('{"auto_map": 1}')
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"auto_map": 1}}}')
    (folder / "README.md").write_text("import os")
    refuse_custom_code(folder)


def test_deep_settings_are_one_sentence(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", {}, None)
    (folder / "processor_config.json").write_text("[" * 200_000)
    with pytest.raises(PolyglanceError, match="nested thousands deep"):
        refuse_custom_code(folder)

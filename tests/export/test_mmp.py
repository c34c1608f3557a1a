"""Export of MMP models: atomic, and only what the folder can hold."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from helpers.small_mmp import SmallModel, small_model, tokenizer
from polyglance.encoders import load, model_writer
from polyglance.encoders.model_folder import FILES, ModelFolder
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.from_run import export_run
from polyglance.export.mmp import export_mmp
from polyglance.text import Tokenizer
from polyglance.text.huggingface import FastTokenizer
from polyglance.text.words import WordTokenizer
from polyglance.weights.unigram import MASK, SPECIALS, xlmr_tokenizer


@pytest.fixture(scope="module")
def small() -> SmallModel:
    return small_model()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_description_matches_the_files(small: SmallModel, tmp_path: Path) -> None:
    folder = small.export(tmp_path / "deep" / "model", figures={"average": 48.5}, version="2")
    others = {"README.md", "config.json", "preprocessor_config.json"}
    others |= {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert set(contents(folder)) == {*FILES, "model.json", *others}
    description = ModelFolder.open(folder).description
    assert (description.name, description.version, description.width, description.max_length) == (
        "small",
        "2",
        64,
        40,
    )
    assert description.languages == ("en", "de")
    assert description.figures == {"average": 48.5}
    assert description.pictures == small.pictures
    for name, entry in description.files.items():
        assert entry["bytes"] == (folder / name).stat().st_size
    # what is stored is codes and scales, not the float32 that they stand for
    uncompressed = sum(4 * p.numel() for p in small.model.parameters())
    assert sum(entry["bytes"] for entry in description.files.values()) < 0.75 * uncompressed


def test_export_is_deterministic(small: SmallModel, tmp_path: Path) -> None:
    first, second = (contents(small.export(tmp_path / name)) for name in ("a", "b"))
    assert first == second


def test_an_existing_model_is_replaced(small: SmallModel, tmp_path: Path) -> None:
    folder = small.export(tmp_path / "model")
    (folder / "card.md").write_text("What it was trained on.")
    small.export(folder, name="newer")
    assert contents(folder)["card.md"] == b"What it was trained on."
    assert b"# newer" in contents(folder)["README.md"]
    (folder / "README.md").write_text("A card of my own.")
    small.export(folder, name="newest")
    assert contents(folder)["README.md"] == b"A card of my own."
    assert load(folder).name == "newest"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_of_other_files_is_refused(small: SmallModel, tmp_path: Path) -> None:
    photographs = tmp_path / "photographs"
    (photographs / "holiday").mkdir(parents=True)
    with pytest.raises(PolyglanceError, match="holds other files and no model"):
        small.export(photographs)
    assert (photographs / "holiday").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["photographs"]
    (tmp_path / "empty").mkdir()
    assert load(small.export(tmp_path / "empty")).name == "small"


def test_an_interrupted_export_keeps_the_old_model(
    small: SmallModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small.export(tmp_path / "model")
    before = contents(folder)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(model_writer.os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        small.export(folder, name="newer")
    assert contents(folder) == before
    monkeypatch.undo()
    small.export(folder, name="newer")  # a leftover partial folder does no harm
    assert load(folder).name == "newer"


def test_an_unwritable_folder_is_refused(small: SmallModel, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PolyglanceError, match="cannot be written"):
        small.export(tmp_path / "file" / "model")


def test_special_tokens_must_be_frequent(small: SmallModel, tmp_path: Path) -> None:
    order = small.compact["encoder.words.order"].clone()
    frequent = len(small.compact["encoder.words.finer_codes"])
    last = int((order == frequent).nonzero())
    order[1], order[last] = order[last].item(), order[1].item()
    wrong = SmallModel(small.model, small.compact | {"encoder.words.order": order}, small.pictures)
    with pytest.raises(PolyglanceError, match="special tokens"):
        wrong.export(tmp_path / "model")


@pytest.mark.parametrize("max_length", [0, 2, 49])
def test_a_maximum_length_out_of_range_is_refused(
    small: SmallModel, tmp_path: Path, max_length: int
) -> None:
    with pytest.raises(PolyglanceError, match="3 to 48"):
        small.export(tmp_path / "model", max_length=max_length)
    assert not list(tmp_path.iterdir())


def other_tokenizers() -> list[tuple[Tokenizer, str]]:
    pieces = [(name, 0.0) for name in (*SPECIALS, "▁a", MASK)]
    lower = xlmr_tokenizer(pieces, None)
    from tokenizers import pre_tokenizers

    lower.pre_tokenizer = pre_tokenizers.Whitespace()
    return [
        (WordTokenizer({"a": 1}, "en"), "WordTokenizer"),
        (FastTokenizer(xlmr_tokenizer(pieces, None)), "6 pieces"),
        (FastTokenizer(lower), "pre_tokenizer"),
        (FastTokenizer(xlmr_tokenizer([("▁a", 0.0), *pieces], None)), "this tokenizer"),
    ]


@pytest.mark.parametrize(("given", "message"), other_tokenizers())
def test_other_tokenizers_are_refused(
    small: SmallModel, tmp_path: Path, given: Tokenizer, message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        export_mmp(
            small.compact,
            small.model.config,
            given,
            tmp_path / "model",
            pictures=small.pictures,
            max_length=40,
            name="small",
        )


def test_other_image_networks_are_refused(small: SmallModel, tmp_path: Path) -> None:
    fewer = {k: v for k, v in small.compact.items() if not k.startswith("image_backbone.blocks.9.")}
    with pytest.raises(DataError, match="EfficientNet-Lite"):
        SmallModel(small.model, fewer, small.pictures).export(tmp_path / "model")


FIGURES = {"validation": {"average": 40.5}}


@pytest.fixture
def compressed_run(small: SmallModel, tmp_path: Path) -> Path:
    """The folder of a run with a section `compression`."""
    compact = tmp_path / "run" / "compact"
    compact.mkdir(parents=True)
    tokenizer().save(tmp_path / "words")
    save_file(small.compact, compact / "compact.safetensors")
    settings = {
        "model": asdict(small.model.config),
        "pictures": {"size": 64, "mean": list(small.pictures.mean), "std": [60.0, 61.0, 62.0]},
        "longest": 20,
        "tokenizer": str(tmp_path / "words"),
        "languages": ["en", "de"],
    }
    (compact / "config.json").write_text(json.dumps(settings))
    report = {"validation": {"average": 41.0}, "compressed": FIGURES}
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    return compact.parent


def test_a_run_is_exported(small: SmallModel, compressed_run: Path, tmp_path: Path) -> None:
    description = export_run(
        compressed_run, tmp_path / "model", name="small", version="3", max_length=40
    )
    assert description == ModelFolder.open(tmp_path / "model").description
    direct = small.export(tmp_path / "direct", version="3", figures=FIGURES)
    assert description == ModelFolder.open(direct).description
    assert description.languages == ("en", "de")
    assert description.figures == FIGURES
    shorter = export_run(compressed_run, tmp_path / "model", name="small", max_length=20)
    assert shorter.max_length == 20


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("report.json", None),
        ("report.json", "{}"),  # a run before its compression
        ("compact/config.json", "{}"),
        ("compact/compact.safetensors", "cut off"),
    ],
)
def test_a_run_without_a_compressed_model_is_refused(
    compressed_run: Path, tmp_path: Path, name: str, content: str | None
) -> None:
    (compressed_run / name).unlink()
    if content is not None:
        (compressed_run / name).write_text(content)
    with pytest.raises(
        DataError, match=r"no model that can be exported .*a finished run of a photo model"
    ):
        export_run(compressed_run, tmp_path / "model", name="x")
    assert not (tmp_path / "model").exists()


def test_numpy_arrays_and_tensors_give_the_same_model(small: SmallModel, tmp_path: Path) -> None:
    arrays: dict[str, Any] = {name: value.numpy() for name, value in small.compact.items()}
    first = SmallModel(small.model, arrays, small.pictures).export(tmp_path / "a")
    assert contents(first) == contents(small.export(tmp_path / "b"))
    assert all(isinstance(value, np.ndarray) for value in arrays.values())
    assert torch.is_tensor(small.compact["encoder.words.codes"])

"""A language that a trained model gets later, by the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from helpers.toy_smalr_corpus import RECIPE, make_toy_smalr_corpus
from polyglance.cli import app
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.smalr_folder import load_smalr
from polyglance.nn.packing import Packing
from polyglance.recipes.smalr.add_language import AddLanguageConfig, add_language
from polyglance.recipes.smalr.train import train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    make_toy_smalr_corpus(folder)
    recipe = replace(
        RECIPE,
        languages=("en", "de"),
        cache_dir=str(folder / "cache"),
        loop=replace(RECIPE.loop, steps=60),
    )
    train(recipe, folder, folder / "run")
    return folder


def test_a_language_is_added_and_the_others_stay(data: Path, tmp_path: Path) -> None:
    arguments = ["smalr", "add-language", data / "run", "fr", "--data", data, "--out", tmp_path]
    arguments += ["--batch", "64", "--steps", "40", "--learning-rate", "0.02"]
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "test.fr" in done.output
    report = json.loads((tmp_path / "report.json").read_text())
    before = json.loads((data / "run" / "report.json").read_text())
    assert report["test"]["fr"]["mR"] > 15  # random ranking gives 9
    for language in ("en", "de"):
        old = before["test"][language]["mR"]
        assert report["test"][language]["mR"] == pytest.approx(old, abs=1)  # half precision
    own_words, own_width, width = 12, 16, 24
    assert report["trainable_parameters"] == own_words * own_width + (own_width + 1) * width
    old, new = load_smalr(data / "run" / "words"), load_smalr(tmp_path / "words")
    assert new.languages == ("en", "de", "fr")
    ids, packing = torch.arange(2, 12), Packing.of([4, 6])
    torch.testing.assert_close(
        new.text.encode_text(ids, packing), old.text.encode_text(ids, packing)
    )
    assert len(new.lexicon) == len(old.lexicon) + report["words"]


def test_what_cannot_be_added_is_refused(data: Path, tmp_path: Path) -> None:
    config = AddLanguageConfig("it", RECIPE.train, RECIPE.validation, RECIPE.test)
    with pytest.raises(DataError, match="has no captions in it: translate some"):
        add_language(data / "run", config, data, tmp_path)
    with pytest.raises(PolyglanceError, match="knows de already"):
        add_language(data / "run", replace(config, language="de"), data, tmp_path)
    with pytest.raises(PolyglanceError, match="is the run of the old model"):
        add_language(data / "run", replace(config, language="fr"), data, data / "run")
    with pytest.raises(DataError, match="is not a run of SMALR"):
        add_language(data, config, data, tmp_path)

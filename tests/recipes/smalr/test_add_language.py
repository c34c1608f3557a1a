"""A language that a trained model gets later, by the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from helpers.toy_smalr_corpus import RECIPE
from polyglance.cli import app
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.smalr_folder import load_smalr
from polyglance.nn.packing import Packing
from polyglance.recipes.smalr.add_language import AddLanguageConfig, add_language
from polyglance.recipes.smalr.train import train


@pytest.fixture(scope="module")
def run(toy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of a model that knows English and German."""
    recipe = replace(
        RECIPE,
        languages=("en", "de"),
        cache_dir=str(toy_corpus / "cache"),
        loop=replace(RECIPE.loop, steps=40, validate_every=0),
    )
    folder = tmp_path_factory.mktemp("run")
    train(recipe, toy_corpus, folder)
    return folder


def test_a_language_is_added_and_the_others_stay(
    toy_corpus: Path, run: Path, tmp_path: Path
) -> None:
    arguments = ["smalr", "add-language", run, "fr", "--data", toy_corpus, "--out", tmp_path]
    arguments += ["--batch", "64", "--steps", "30", "--learning-rate", "0.02"]
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "test.fr" in done.output
    report = json.loads((tmp_path / "report.json").read_text())
    before = json.loads((run / "report.json").read_text())
    assert report["test"]["fr"]["mR"] > 15  # random ranking gives 9
    for language in ("en", "de"):
        old = before["test"][language]["mR"]
        assert report["test"][language]["mR"] == pytest.approx(old, abs=1)  # half precision
    own_words, own_width, width = 12, 16, 24
    assert report["trainable_parameters"] == own_words * own_width + (own_width + 1) * width
    old, new = load_smalr(run / "words"), load_smalr(tmp_path / "words")
    assert new.languages == ("en", "de", "fr")
    ids, packing = torch.arange(2, 12), Packing.of([4, 6])
    torch.testing.assert_close(
        new.text.encode_text(ids, packing), old.text.encode_text(ids, packing)
    )
    assert len(new.lexicon) == len(old.lexicon) + report["words"]


def test_what_cannot_be_added_is_refused(toy_corpus: Path, run: Path, tmp_path: Path) -> None:
    config = AddLanguageConfig("it", RECIPE.train, RECIPE.validation, RECIPE.test)
    with pytest.raises(DataError, match="has no captions in it: translate some"):
        add_language(run, config, toy_corpus, tmp_path)
    with pytest.raises(PolyglanceError, match="knows de already"):
        add_language(run, replace(config, language="de"), toy_corpus, tmp_path)
    with pytest.raises(PolyglanceError, match="is the run of the old model"):
        add_language(run, replace(config, language="fr"), toy_corpus, run)
    with pytest.raises(DataError, match="is not a run of SMALR"):
        add_language(toy_corpus, config, toy_corpus, tmp_path)

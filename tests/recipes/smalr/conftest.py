"""The toy corpus that tests of SMALR's recipes share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.toy_smalr_corpus import RECIPE, make_toy_smalr_corpus
from polyglance.recipes.smalr.data import load_data


@pytest.fixture(scope="session")
def toy_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder, with captions and word vectors in ``cache``."""
    folder = tmp_path_factory.mktemp("toy")
    make_toy_smalr_corpus(folder)
    load_data(replace(RECIPE, cache_dir=str(folder / "cache")), folder, "cpu")
    return folder

"""A small exported model and its encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.small_mmp import small_model
from polyglance.encoders import Encoder, load

SIZE = 64


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = small_model(size=SIZE, text_pooling="mean")
    return small.export(tmp_path_factory.mktemp("encoders") / "model")


@pytest.fixture(scope="session")
def encoder(folder: Path) -> Encoder:
    return load(folder, threads=1)

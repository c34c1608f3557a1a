from __future__ import annotations

import pytest

from helpers.toy_clips import ToyCorpus, make_toy_corpus


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyCorpus:
    return make_toy_corpus(tmp_path_factory.mktemp("toy"))

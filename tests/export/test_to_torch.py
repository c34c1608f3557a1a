"""Exported models are loaded back into torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.small_mmp import TEXTS, SmallModel, cosines, small_model, tokenizer, torch_texts
from polyglance.encoders.model_folder import ModelFolder
from polyglance.export.to_torch import load_torch, read_compact_state
from polyglance.nn.compression import ProductQuantisedEmbedding


@pytest.fixture(scope="module")
def small() -> SmallModel:
    return small_model()


@pytest.fixture(scope="module")
def folder(small: SmallModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.export(tmp_path_factory.mktemp("reading") / "model")


def test_every_stored_tensor_is_read_back(small: SmallModel, folder: Path) -> None:
    state = read_compact_state(folder)
    moved = {"codes", "finer_codes", "order"}
    assert state.keys() == small.compact.keys()
    for name, expected in small.compact.items():
        values = expected.numpy()
        if name in ("encoder.positions.weight", "encoder.segments.weight"):
            assert state[name].dtype == np.float16
            assert len(state[name]) == min(len(values), 42)  # the 40 of the longest text, and two
            np.testing.assert_allclose(state[name], values[: len(state[name])], atol=1e-3)
        elif name.removeprefix("encoder.words.") not in moved:
            assert state[name].dtype == values.dtype, name
            np.testing.assert_array_equal(state[name], values, err_msg=name)


def test_embeddings_keep_their_rows_in_the_table_s_order(small: SmallModel, folder: Path) -> None:
    def rows(state: dict[str, torch.Tensor]) -> torch.Tensor:
        words = {k.split(".")[-1]: v for k, v in state.items() if k.startswith("encoder.words.")}
        table = ProductQuantisedEmbedding(words["codes"], words["finer_codes"], words["order"], 64)
        table.load_state_dict(words)
        return table(torch.arange(len(words["order"]))).detach()

    state = {name: torch.tensor(value) for name, value in read_compact_state(folder).items()}
    order = state["encoder.words.order"].tolist()
    assert order[:4] == [0, 1, 2, 3]
    assert sorted(order) == list(range(len(order)))
    assert order != small.compact["encoder.words.order"].tolist()
    assert torch.equal(rows(state), rows(small.compact))


def test_the_loaded_model_equals_the_exported_one(small: SmallModel, folder: Path) -> None:
    model = load_torch(folder)
    ids = tokenizer().encode_batch(TEXTS[:20], max_length=40)
    assert cosines(torch_texts(model, ids), torch_texts(small.model, ids)).min() > 0.99999
    picture = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        maps = [one.image_backbone(picture) for one in (model, small.model)]  # type: ignore[operator]
    torch.testing.assert_close(*maps, rtol=1e-4, atol=1e-4)
    assert not model.training
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_a_second_export_is_the_same(small: SmallModel, folder: Path, tmp_path: Path) -> None:
    """From its own state, as after further training of an exported model."""
    state = {name: torch.tensor(value) for name, value in read_compact_state(folder).items()}
    again = SmallModel(load_torch(folder), state, small.pictures).export(tmp_path / "again")
    first, second = (ModelFolder.open(path).description for path in (folder, again))
    assert first == second

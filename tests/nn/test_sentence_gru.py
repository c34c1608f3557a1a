from __future__ import annotations

import pytest
import torch

from polyglance.nn.packing import Packing
from polyglance.nn.sentence_gru import LanguageBranches, PackedGRU, SentenceGRU

LENGTHS = [3, 1, 0, 7, 7, 2]


def rows_of(lengths: list[int], width: int = 5) -> torch.Tensor:
    return torch.randn(sum(lengths), width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_final_state_equals_that_of_each_sequence_alone(bidirectional: bool) -> None:
    torch.manual_seed(0)
    layer = PackedGRU(5, 4, bidirectional=bidirectional)
    rows = rows_of(LENGTHS)
    together = layer(rows, Packing.of(LENGTHS))
    for state, alone in zip(together, rows.split(LENGTHS), strict=True):
        if len(alone):
            _, states = layer.gru(alone[:, None])
            torch.testing.assert_close(state, states.flatten(), atol=1e-6, rtol=1e-6)
        else:
            assert not state.any()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_state_has_autocasts_dtype(bidirectional: bool) -> None:
    torch.manual_seed(0)
    layer = PackedGRU(5, 4, bidirectional=bidirectional)
    rows = rows_of(LENGTHS).requires_grad_(True)
    with torch.autocast("cpu", torch.bfloat16):
        states = layer(rows, Packing.of(LENGTHS))
    assert states.dtype == torch.bfloat16
    torch.testing.assert_close(
        states.float(), layer(rows, Packing.of(LENGTHS)), atol=2e-2, rtol=2e-2
    )
    states.float().sum().backward()
    assert rows.grad is not None
    assert rows.grad.any(1).all()


def test_gradients_reach_every_row_of_a_sentence_and_no_other() -> None:
    layer = SentenceGRU(5, 4, 6)
    rows = rows_of(LENGTHS).requires_grad_(True)
    vectors = layer(rows, Packing.of(LENGTHS))
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(6))
    vectors[3, 0].backward()
    assert rows.grad is not None
    moved = rows.grad.any(1).tolist()
    assert moved == [False] * 4 + [True] * 7 + [False] * 9


def test_empty_batches_have_no_vectors_and_empty_sentences_have_one() -> None:
    layer = PackedGRU(5, 4)
    assert layer(torch.zeros(0, 5), Packing.of([])).shape == (0, 4)
    assert not layer(torch.zeros(0, 5), Packing.of([0, 0])).any()


def test_every_language_has_its_own_branch() -> None:
    torch.manual_seed(0)
    layer = LanguageBranches(3, 5, 4, 6)
    rows, languages = rows_of(LENGTHS), torch.tensor([2, 0, 0, 2, 1, 1])
    together = layer(rows, Packing.of(LENGTHS), languages)
    for vector, alone, language in zip(together, rows.split(LENGTHS), languages, strict=True):
        expected = layer.branches[int(language)](alone, Packing.of([len(alone)]))[0]
        torch.testing.assert_close(vector, expected, atol=1e-6, rtol=1e-6)
    with pytest.raises(ValueError, match="needs the language of each sentence"):
        layer(rows, Packing.of(LENGTHS))

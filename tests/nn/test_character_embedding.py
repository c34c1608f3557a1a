from __future__ import annotations

import pytest
import torch

from polyglance.nn.character_embedding import CharacterEmbedding

WORDS = ["<pad>", "<mask>", "hund", "hunde", "пес", "犬"]


def test_a_word_is_its_characters_in_both_directions() -> None:
    torch.manual_seed(0)
    words = CharacterEmbedding(WORDS, characters_width=3, width=8)
    rows = words(torch.tensor([3, 5, 3, 1]))
    assert torch.equal(rows[0], rows[2])
    alphabet = sorted(set("hundeпес犬"))
    letters = torch.tensor([2 + alphabet.index(c) for c in "hunde"])
    _, states = words.word.gru(words.characters(letters)[:, None])
    torch.testing.assert_close(rows[0], states.flatten(), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(words.table()[[3, 5, 3, 1]], rows, atol=1e-6, rtol=1e-6)
    parameters = (2 + 9) * 3 + 2 * 3 * (4 * 3 + 4 * 4 + 4 + 4)
    assert sum(p.numel() for p in words.parameters()) == parameters


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="width is 7"):
        CharacterEmbedding(WORDS, characters_width=3, width=7)

"""Word vectors from characters: LIWE's light embedding (Wehrmann et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.packing import Packing
from polyglance.nn.sentence_gru import PackedGRU


class CharacterEmbedding(nn.Module):
    """A bidirectional GRU over a word's characters; its final states are the word's vector."""

    spelling: Tensor
    lengths: Tensor

    def __init__(self, words: Sequence[str], *, characters_width: int, width: int) -> None:
        """Build the embedding.

        Args:
            words: the vocabulary by id. Ids 0 (no word) and 1 (mask) are one character each.
            characters_width: the size of a character's embedding.
            width: the size of a word's vector, an even number.
        """
        super().__init__()
        if width % 2:
            raise ValueError(
                f"width is {width}: give an even number, half of it for each direction"
            )
        alphabet = sorted({character for word in words[2:] for character in word})
        ids = {character: number for number, character in enumerate(alphabet, 2)}
        spelled = [[0], [1], *([ids[character] for character in word] for word in words[2:])]
        self.width = width
        lengths = torch.tensor([len(word) for word in spelled])
        self.register_buffer("lengths", lengths)
        padded = Packing.of(lengths).pad(torch.tensor([c for word in spelled for c in word]))
        self.register_buffer("spelling", padded)
        self.characters = nn.Embedding(2 + len(alphabet), characters_width)
        self.word = PackedGRU(characters_width, width // 2, bidirectional=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vector of each word id; a word is computed once per batch."""
        words, inverse = torch.unique(ids, return_inverse=True)
        packing = Packing.of(self.lengths[words], ids.device)
        characters = self.spelling[words][:, : packing.max_seqlen]
        rows = self.word(self.characters(packing.unpad(characters)), packing)
        return F.embedding(inverse, rows)

    def table(self) -> Tensor:
        """Return the vectors of all words, ``(words, width)``."""
        rows: Tensor = self(self.slots)
        return rows

    @property
    def slots(self) -> Tensor:
        """Each word's row of `table`."""
        return torch.arange(len(self.spelling), device=self.spelling.device)

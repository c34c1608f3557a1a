"""Words from their letters: the light embedding of LIWE (Wehrmann et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.packing import Packing
from polyglance.nn.sentence_gru import PackedGRU


class CharacterEmbedding(nn.Module):
    """A GRU reads the characters of a word both ways; its two last states are the word's vector."""

    spelling: Tensor
    lengths: Tensor

    def __init__(self, words: Sequence[str], *, characters_width: int, width: int) -> None:
        """``words`` by number; the first is none at all and the second the mask.

        These two count as a character each.
        """
        super().__init__()
        if width % 2:
            raise ValueError(f"a width of {width} cannot be shared by two directions")
        alphabet = sorted({character for word in words[2:] for character in word})
        number = {character: place for place, character in enumerate(alphabet, 2)}
        spelled = [[0], [1], *([number[character] for character in word] for word in words[2:])]
        self.width = width
        lengths = torch.tensor([len(word) for word in spelled])
        self.register_buffer("lengths", lengths)
        padded = Packing.of(lengths).pad(torch.tensor([c for word in spelled for c in word]))
        self.register_buffer("spelling", padded)
        self.characters = nn.Embedding(2 + len(alphabet), characters_width)
        self.word = PackedGRU(characters_width, width // 2, bidirectional=True)

    def forward(self, ids: Tensor) -> Tensor:
        """The vector of each word, spelled once a batch."""
        words, again = torch.unique(ids, return_inverse=True)
        packing = Packing.of(self.lengths[words], ids.device)
        letters = self.spelling[words][:, : packing.max_seqlen]
        rows = self.word(self.characters(packing.unpad(letters)), packing)
        return F.embedding(again, rows)

    def table(self) -> Tensor:
        """The vectors of all words, for a table."""
        rows: Tensor = self(self.slots)
        return rows

    @property
    def slots(self) -> Tensor:
        """Each word's row of that table."""
        return torch.arange(len(self.spelling), device=self.spelling.device)

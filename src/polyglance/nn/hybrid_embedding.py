"""SMALR's hybrid embedding (section 3.1): frequent words have their own vectors, others share.

Each of the ``K`` most frequent words of a language has its own short vector, which a linear
layer projects into the universal space; every other word maps to one token of a latent
vocabulary shared by all languages. All of them are rows of one table, and ``slots`` maps a
word id to its row:

    none | mask | latent tokens ... | own words of language 0 | of language 1 | ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.errors import PolyglanceError
from polyglance.nn.latent_vocabulary import TokenChooser

Projection = Literal["language", "shared", "none"]

MASK = 1
"""The id of the mask; id 0 is no word."""
_SPECIALS = 2


class HybridEmbedding(nn.Module):
    """From word ids to vectors of the universal embedding space."""

    slots: Tensor
    none: Tensor

    def __init__(
        self,
        slots: Tensor,
        own: Sequence[Tensor],
        latent: Tensor,
        *,
        projection: Projection = "language",
        chooser: TokenChooser | None = None,
    ) -> None:
        """Build the table.

        Args:
            slots: each word's row of the table.
            own: for each language, the initial vectors of its frequent words.
            latent: the vectors of the latent tokens, ``(tokens, width)``.
            projection: a linear layer for each ``language``, as in MULE, which vectors whose
                axes differ between languages need; one ``shared`` by all, the other reading of
                the paper's "a fully connected layer"; or ``none``, if own vectors are as wide
                as latent ones.
            chooser: assigns the first rows of ``latent`` to words added later.
        """
        super().__init__()
        self.width = latent.shape[1]
        self.projection: Projection = projection
        self.register_buffer("slots", slots)
        self.register_buffer("none", torch.zeros(1, self.width))
        self.mask = nn.Parameter(torch.randn(1, self.width) * self.width**-0.5)
        self.latent = nn.Parameter(latent.clone())
        self.chooser = chooser
        self.own = nn.ParameterList()
        self.projections = nn.ModuleList()
        for vectors in own:
            self._add(vectors)

    @classmethod
    def build(
        cls,
        vectors: Tensor,
        language_of: Tensor,
        rank_in_language: Tensor,
        *,
        own_words: int | None,
        own_width: int,
        width: int,
        projection: Projection = "language",
        tokens: Tensor | None = None,
        latent: Tensor | None = None,
        chooser: TokenChooser | None = None,
    ) -> HybridEmbedding:
        """Build the embedding of a lexicon.

        Args:
            vectors: a pretrained vector of each word, ``(words, vector size)``.
            language_of: the language of each word; negative for none.
            rank_in_language: the frequency rank of each word in its language, from 0.
            own_words: how many words of each language have their own vector; None for all.
            own_width: the size of own vectors, initialised to principal components.
            width: the size of the universal space.
            projection: see the constructor.
            tokens: the latent token of each word; without it, other words have no vector.
            latent: the vectors of the latent tokens; those that no word uses are dropped.
            chooser: assigns latent tokens to words added later.
        """
        known = language_of >= 0
        owning = known if own_words is None else known & (rank_in_language < own_words)
        slots = torch.zeros(len(vectors), dtype=torch.int64)
        slots[MASK] = 1
        if tokens is None or latent is None:
            latent = torch.zeros(0, width)
        else:
            used, token_rows = torch.unique(tokens[known & ~owning], return_inverse=True)
            slots[known & ~owning] = _SPECIALS + token_rows
            latent = latent.detach()[used]
            chooser = chooser.only(used) if chooser is not None and len(used) else None
        own, total = [], _SPECIALS + len(latent)
        languages = 0 if own_words == 0 else int(language_of.max()) + 1
        for language in range(languages):
            in_language = language_of == language
            reduced = principal_components(vectors[in_language], own_width)[owning[in_language]]
            slots[in_language & owning] = torch.arange(total, total + len(reduced))
            own.append(reduced)
            total += len(reduced)
        return cls(slots, own, latent, projection=projection, chooser=chooser)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the universal embedding of each word id, ``(words, width)``."""
        return F.embedding(self.slots[ids], self.table())

    def table(self) -> Tensor:
        """Return the whole table, ``(rows, width)``: all that is needed after training."""
        own = [
            vectors if self.projection == "none" else self._layer(language)(vectors)
            for language, vectors in enumerate(self.own)
        ]
        return torch.cat([self.none, self.mask, self.latent, *own])

    def drift(self) -> Tensor:
        """Return the squared distance of own vectors from their initial values (MULE's penalty)."""
        total = self.none.sum()
        for language, vectors in enumerate(self.own):
            total = total + (vectors - self.get_buffer(f"initial_{language}")).pow(2).sum()
        return total

    def assign_tokens(self, vectors: Tensor) -> Tensor:
        """Return the latent token of each new word, by its pretrained vector."""
        if not len(vectors):
            return torch.zeros(0, dtype=torch.int64)
        if self.chooser is None:
            raise PolyglanceError(
                "this model has no latent tokens for the rare words of another language:"
                " add only as many words as get their own vector, or train with latent tokens"
            )
        if vectors.shape[1] != (width := self.chooser.weight.shape[1]):
            raise PolyglanceError(
                f"latent tokens were assigned by vectors of size {width}, not {vectors.shape[1]}:"
                " give vectors of the same kind"
            )
        tokens: Tensor = self.chooser(vectors)
        return tokens

    def add_language(self, own: Tensor, tokens: Tensor | None = None) -> None:
        """Add a language, whose word ids follow all others; freeze everything else.

        ``own`` are initial vectors of its frequent words; the words after them map to the
        latent ``tokens``, or to no vector where that is -1. With a projection per language, a
        new one is added and trained too.
        """
        self.requires_grad_(False)
        before = len(self.table())
        tokens = torch.zeros(0, dtype=torch.int64) if tokens is None else tokens.cpu()
        shared = torch.where(tokens < 0, 0, _SPECIALS + tokens)
        new = torch.cat([before + torch.arange(len(own)), shared])
        self.slots = torch.cat([self.slots, new.to(self.slots.device)])
        if len(own):
            self._add(own.to(self.mask.device))

    def _layer(self, language: int) -> nn.Module:
        return self.projections[language if self.projection == "language" else 0]

    def _add(self, vectors: Tensor) -> None:
        if self.projection == "none" and vectors.shape[1] != self.width:
            raise ValueError(
                f"own vectors of size {vectors.shape[1]} need a projection to {self.width}"
            )
        self.register_buffer(f"initial_{len(self.own)}", vectors.clone())
        self.own.append(nn.Parameter(vectors.clone()))
        if self.projection == "language" or (self.projection == "shared" and len(self.own) == 1):
            layer = nn.Linear(vectors.shape[1], self.width, device=vectors.device)
            self.projections.append(layer)


def principal_components(vectors: Tensor, width: int) -> Tensor:
    """Reduce vectors to their first ``width`` principal components, with fixed signs.

    Vectors that already have this size are returned as they are.
    """
    if vectors.shape[1] == width:
        return vectors
    centred = (vectors - vectors.mean(0)).double()
    _, axes = torch.linalg.eigh(centred.T @ centred)
    axes = axes.flip(1)[:, :width]
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    reduced: Tensor = centred @ (axes * largest.sign())
    return reduced.to(vectors.dtype)

"""SMALR's hybrid embedding (section 3.1): common words have vectors of their own, others share.

The commonest ``K`` words of each language own a short vector, which a fully
connected layer projects into the universal space; every other word points at one
token of a latent vocabulary that all languages share. All of them are rows of
one table, and a word is the number of its row:

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
"""The word that hides another one; word 0 is none at all."""
_SPECIALS = 2


class HybridEmbedding(nn.Module):
    """From words by number to vectors of the universal embedding space."""

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
        """``slots`` has each word's row; ``own`` the initial vectors of each language's own words.

        ``projection``: a fully connected layer for each ``language``, as MULE has
        it and as vectors whose axes mean something else in each language ask for;
        one ``shared`` by all, the other reading of the paper's "a fully connected
        layer"; or ``none``, where own vectors are as wide as latent ones.
        ``chooser`` assigns the first rows of ``latent`` to words that come later.
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
        """The embedding of a lexicon whose word vectors are ``vectors``.

        The commonest ``own_words`` of each language (None for all) begin as the
        ``own_width`` principal components of their vectors. The others take the
        latent token that ``tokens`` assigns to them, of the table ``latent``; tokens
        that no word takes are dropped, by ``chooser`` as well. Without ``tokens`` they
        have no vector.
        """
        known = language_of >= 0
        owning = known if own_words is None else known & (rank_in_language < own_words)
        slots = torch.zeros(len(vectors), dtype=torch.int64)
        slots[MASK] = 1
        if tokens is None or latent is None:
            latent = torch.zeros(0, width)
        else:
            used, place = torch.unique(tokens[known & ~owning], return_inverse=True)
            slots[known & ~owning] = _SPECIALS + place
            latent = latent.detach()[used]
            chooser = chooser.only(used) if chooser is not None and len(used) else None
        own, total = [], _SPECIALS + len(latent)
        languages = 0 if own_words == 0 else int(language_of.max()) + 1
        for language in range(languages):
            spoken = language_of == language
            reduced = principal_components(vectors[spoken], own_width)[owning[spoken]]
            slots[spoken & owning] = torch.arange(total, total + len(reduced))
            own.append(reduced)
            total += len(reduced)
        return cls(slots, own, latent, projection=projection, chooser=chooser)

    def forward(self, ids: Tensor) -> Tensor:
        """A row of the universal embedding for each word."""
        return F.embedding(self.slots[ids], self.table())

    def table(self) -> Tensor:
        """The whole table, which is all that words need after training."""
        own = [
            vectors if self.projection == "none" else self._layer(language)(vectors)
            for language, vectors in enumerate(self.own)
        ]
        return torch.cat([self.none, self.mask, self.latent, *own])

    def drift(self) -> Tensor:
        """The squared distance of all own vectors from where they began (MULE's regularisation)."""
        total = self.none.sum()
        for language, vectors in enumerate(self.own):
            total = total + (vectors - self.get_buffer(f"initial_{language}")).pow(2).sum()
        return total

    def assign_tokens(self, vectors: Tensor) -> Tensor:
        """The latent token of each word that comes later, by its vector."""
        if not len(vectors):
            return torch.zeros(0, dtype=torch.int64)
        if self.chooser is None:
            raise PolyglanceError(
                "this model keeps no latent tokens for rare words of another language:"
                " take in no more words than own a vector, or train it with latent tokens"
            )
        if vectors.shape[1] != (width := self.chooser.weight.shape[1]):
            raise PolyglanceError(
                f"tokens were assigned by vectors of {width} numbers, not of {vectors.shape[1]}:"
                " give vectors of the same kind"
            )
        tokens: Tensor = self.chooser(vectors)
        return tokens

    def add_language(self, own: Tensor, tokens: Tensor | None = None) -> None:
        """Take in another language, numbered after all words so far; freeze everything else.

        ``own`` are initial vectors of its commonest words; words that follow them
        point at rows ``tokens`` of the latent table, or with -1 have no vector. A
        projection of its own, where each language has one, is new and learned as well.
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
            raise ValueError(f"own vectors of {vectors.shape[1]} need a projection to {self.width}")
        self.register_buffer(f"initial_{len(self.own)}", vectors.clone())
        self.own.append(nn.Parameter(vectors.clone()))
        if self.projection == "language" or (self.projection == "shared" and len(self.own) == 1):
            layer = nn.Linear(vectors.shape[1], self.width, device=vectors.device)
            self.projections.append(layer)


def principal_components(vectors: Tensor, width: int) -> Tensor:
    """The first ``width`` principal components of these vectors, the signs fixed.

    As wide as they are already, vectors stay as they are.
    """
    if vectors.shape[1] == width:
        return vectors
    centred = (vectors - vectors.mean(0)).double()
    _, axes = torch.linalg.eigh(centred.T @ centred)
    axes = axes.flip(1)[:, :width]
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    reduced: Tensor = centred @ (axes * largest.sign())
    return reduced.to(vectors.dtype)

"""Masked language modelling (MLM): predict masked sub-words, next to an image or without one.

BERT's masking, shared by M3P's xMLM and MC-MLM (section 3.2) and UC2's MLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.linear_cross_entropy import linear_cross_entropy

AtLeastOne = Literal["no", "masked", "drawn"]


@dataclass(frozen=True)
class TokenMasking:
    """How sub-words are masked. The rates are those of BERT and of M3P."""

    mask_id: int
    words: tuple[int, int]
    """First id and end of the ordinary sub-words, which random replacements are drawn from."""
    rate: float = 0.15
    """The share of sub-words that are chosen."""
    masked: float = 0.8
    """The share of the chosen that become the mask."""
    random: float = 0.1
    """The share of the chosen that become a random sub-word; the rest are kept."""
    at_least_one: AtLeastOne = "no"
    """Choose the first sub-word of a sentence in which none was chosen, as the published code does:
    UC2's always masks it (``masked``), M3P's treats it as any other (``drawn``)."""

    def __post_init__(self) -> None:
        shares = ("rate", "masked", "random")
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", *shares)
        if self.masked + self.random > 1:
            raise PolyglanceError(
                "masked and random are shares of the same sub-words: their sum must be 1 or less"
            )


@dataclass(frozen=True, eq=False)
class MaskedTokens:
    """Packed sentences after masking."""

    ids: Tensor
    positions: Tensor
    """Rows of the chosen sub-words."""
    targets: Tensor
    """Their original ids."""


def mask_tokens(
    ids: Tensor,
    sentences: Packing,
    masking: TokenMasking,
    draws: ItemDraws,
    *,
    maskable: Tensor | None = None,
) -> MaskedTokens:
    """Mask some sub-words of packed sentences.

    Args:
        ids: ``(tokens,)``.
        sentences: the packing of ``ids``.
        masking: rates and ids.
        draws: random numbers of the sentences.
        maskable: ``(tokens,)``: which may be chosen; by default all but special tokens.
    """
    maskable = maskable_tokens(sentences) if maskable is None else maskable
    chosen = maskable & (draws.per_row("chosen tokens", sentences) < masking.rate)
    treatment = draws.per_row("treatment of tokens", sentences)
    if masking.at_least_one != "no":
        first = first_without(chosen, maskable, sentences.sequence_ids, len(sentences))
        chosen[first] = True
        if masking.at_least_one == "masked":
            treatment[first] = 0
    positions = chosen.nonzero()[:, 0]
    targets, treatment = ids[positions], treatment[positions]
    others = random_words(draws.per_row("random words", sentences)[positions], masking, ids.dtype)
    shown = torch.where(treatment < masking.masked + masking.random, others, targets)
    shown = torch.where(treatment < masking.masked, masking.mask_id, shown)
    return MaskedTokens(ids.index_copy(0, positions, shown), positions, targets)


def first_without(chosen: Tensor, eligible: Tensor, item_ids: Tensor, items: int) -> Tensor:
    """Return the first eligible row of each item of which no row is chosen.

    Args:
        chosen: ``(rows,)``.
        eligible: ``(rows,)``; an item without any such row has none in the result.
        item_ids: ``(rows,)``: the item of each row.
        items: their number.

    Returns:
        Rows, one for each such item.
    """
    rows, beyond = torch.arange(len(chosen), device=chosen.device), len(chosen)
    first = torch.full((items,), beyond, device=chosen.device)
    first.scatter_reduce_(0, item_ids, torch.where(eligible, rows, beyond), "amin")
    has_chosen = torch.zeros(items, dtype=torch.bool, device=chosen.device)
    has_chosen[item_ids[chosen]] = True
    return first[~has_chosen & (first < beyond)]


def random_words(uniform: Tensor, masking: TokenMasking, dtype: torch.dtype) -> Tensor:
    """Turn numbers in [0, 1) into ids of ordinary sub-words, all equally probable."""
    first, end = masking.words
    return (first + (uniform * (end - first)).long()).to(dtype)


def maskable_tokens(sentences: Packing) -> Tensor:
    """Return ``(tokens,)``: true except for the first and last token of each sentence."""
    last = sentences.cu_seqlens[1:][sentences.sequence_ids] - 1
    rows = torch.arange(sentences.num_tokens, device=last.device)
    return (sentences.positions > 0) & (rows < last)


def mlm_loss(rows: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of ``-log q(w_m | w_rest, v)`` over chosen sub-words; 0 if there are none.

    ``q`` is the softmax of ``rows @ table.T + bias``.

    Args:
        rows: ``(n, hidden_size)``, the model's output at the chosen sub-words.
        table: ``(vocab_size, hidden_size)``, the word embeddings.
        bias: ``(vocab_size,)``.
        targets: ``(n,)``, their original ids.
    """
    return linear_cross_entropy(rows, table, bias, targets)

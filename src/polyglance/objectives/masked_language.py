"""Masked language modelling: words told from their neighbours, and from a picture if there is one.

BERT's way, which xMLM and MC-MLM of M3P (section 3.2) and UC2's MLM share. Drawn
as dropout is, from torch's own generator, which training seeds at each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.nn.packing import Packing


@dataclass(frozen=True)
class TokenMasking:
    """How words are hidden. The rates are those of BERT and of M3P."""

    mask_id: int
    words: tuple[int, int]
    """The first ordinary word of the vocabulary and the end of them, for random words."""
    rate: float = 0.15
    masked: float = 0.8
    """The share of the chosen words that become the mask."""
    random: float = 0.1
    """The share that become another word; the rest stay as they are."""

    def __post_init__(self) -> None:
        shares = ("rate", "masked", "random")
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", *shares)
        if self.masked + self.random > 1:
            raise PolyglanceError("masked and random are shares of the same words: 1 at most")


@dataclass(frozen=True, eq=False)
class MaskedTokens:
    """Sentences with some words hidden."""

    ids: Tensor
    positions: Tensor
    """The rows of the chosen words."""
    targets: Tensor
    """What stood there."""


def mask_tokens(
    ids: Tensor, sentences: Packing, masking: TokenMasking, *, maskable: Tensor | None = None
) -> MaskedTokens:
    """Hide some words of packed sentences, of those that are ``maskable`` (`inner_words`)."""
    maskable = maskable_tokens(sentences) if maskable is None else maskable
    places = (maskable & (torch.rand(ids.shape, device=ids.device) < masking.rate)).nonzero()[:, 0]
    targets = ids[places]
    draw = torch.rand(places.shape, device=ids.device)
    others = torch.randint(*masking.words, places.shape, device=ids.device, dtype=ids.dtype)
    shown = torch.where(draw < masking.masked + masking.random, others, targets)
    shown = torch.where(draw < masking.masked, masking.mask_id, shown)
    return MaskedTokens(ids.index_copy(0, places, shown), places, targets)


def maskable_tokens(sentences: Packing) -> Tensor:
    """True for all but the first and the last of a sentence, the signs that begin and end it."""
    last = sentences.cu_seqlens[1:][sentences.sequence_ids] - 1
    rows = torch.arange(sentences.num_tokens, device=last.device)
    return (sentences.positions > 0) & (rows < last)


def mlm_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of ``-log q(w_m | w_rest, v)`` over the chosen words; zero where there are none."""
    total: Tensor = _CrossEntropy.apply(logits, targets)  # type: ignore[no-untyped-call]
    return total / max(1, len(targets))


class _CrossEntropy(torch.autograd.Function):
    """The sum of cross-entropies, in float32 whatever the logits are in.

    The vocabulary is wide: thousands of words have a gigabyte of logits. torch's own would
    copy them into float32 and keep as much again for the way back; here nothing is kept
    besides them.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        ctx.save_for_backward(logits, targets)
        with torch.autocast(logits.device.type, enabled=False):
            certain = torch.log_softmax(logits, dim=1, dtype=torch.float32)
        return -certain.gather(1, targets[:, None]).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        logits, targets = ctx.saved_tensors
        with torch.autocast(logits.device.type, enabled=False):
            found = torch.softmax(logits, dim=1)
        found[torch.arange(len(targets), device=targets.device), targets] -= 1
        return found.mul_(gradient), None

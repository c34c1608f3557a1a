"""Noise for MMP's intra-modal loss: inputs stay near their noised copies (section 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_language import maskable_tokens


def noise_tokens(
    ids: Tensor, sentences: Packing, draws: ItemDraws, *, mask_id: int, rate: float = 0.05
) -> Tensor:
    """Replace ``rate`` of the sub-words by the mask, but no special token.

    Args:
        ids: ``(tokens,)``.
        sentences: the packing of ``ids``.
        draws: random numbers of the sentences.
        mask_id: the tokenizer's mask.
        rate: the share of sub-words.
    """
    chosen = draws.per_row("noise", sentences) < rate
    return torch.where(maskable_tokens(sentences) & chosen, mask_id, ids)


def noise_features(
    features: Tensor, visuals: Packing, draws: ItemDraws, *, rate: float = 0.05
) -> Tensor:
    """Set ``rate`` of the rows (seconds of a clip, cells of an image) to zero.

    Args:
        features: ``(rows, width)``.
        visuals: the packing of ``features``.
        draws: random numbers of the clips or images.
        rate: the share of rows.
    """
    return features.masked_fill((draws.per_row("noise", visuals) < rate)[:, None], 0)

"""Noise for intra-modal learning: a sentence or clip must stay near its damaged self (MMP, 3.2).

It is drawn as dropout is, from torch's own generator, which training seeds at each step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyglance.nn.packing import Packing


def noise_tokens(
    ids: Tensor,
    sentences: Packing,
    *,
    mask_id: int,
    rate: float = 0.05,
) -> Tensor:
    """The same sentences with ``rate`` of their sub-words replaced by the mask.

    The first and the last stay: they are the signs that begin and end a sentence.
    """
    last = sentences.cu_seqlens[1:][sentences.sequence_ids] - 1
    rows = torch.arange(sentences.num_tokens, device=ids.device)
    inside = (sentences.positions > 0) & (rows < last)
    return torch.where(inside & _chosen(ids, rate), mask_id, ids)


def noise_features(features: Tensor, *, rate: float = 0.05) -> Tensor:
    """The same features with ``rate`` of their rows (seconds of a clip, cells) zeroed."""
    return features.masked_fill(_chosen(features[:, 0], rate)[:, None], 0)


def _chosen(like: Tensor, rate: float) -> Tensor:
    return torch.rand(like.shape, device=like.device) < rate

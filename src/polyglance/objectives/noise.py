"""Noise for MMP's intra-modal loss: inputs stay near their noised copies (section 3.2).

Random draws come from torch's default generator, as for dropout; training seeds it at each
step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyglance.nn.packing import Packing
from polyglance.objectives.masked_language import maskable_tokens


def noise_tokens(ids: Tensor, sentences: Packing, *, mask_id: int, rate: float = 0.05) -> Tensor:
    """Replace ``rate`` of the sub-words by the mask, but no special token.

    Args:
        ids: ``(tokens,)``.
        sentences: the packing of ``ids``.
        mask_id: the tokenizer's mask.
        rate: the share of sub-words.
    """
    return torch.where(maskable_tokens(sentences) & _chosen(ids, rate), mask_id, ids)


def noise_features(features: Tensor, *, rate: float = 0.05) -> Tensor:
    """Set ``rate`` of the rows (seconds of a clip, cells of an image) to zero."""
    return features.masked_fill(_chosen(features[:, 0], rate)[:, None], 0)


def _chosen(like: Tensor, rate: float) -> Tensor:
    return torch.rand(like.shape, device=like.device) < rate

"""Adversarial language classification of universal embeddings (SMALR, section 3.3)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.gradient_reversal import reverse_gradient


def language_adversary(
    rows: Tensor, languages: Tensor, classifier: nn.Module, strength: float | Tensor
) -> Tensor:
    """Return the cross-entropy of a language classifier behind a gradient reversal.

    The classifier learns to tell languages apart; the rows learn to prevent that.

    Args:
        rows: ``(sentences, width)``.
        languages: ``(sentences,)``.
        classifier: from ``width`` to logits of languages.
        strength: multiplies the reversed gradient.
    """
    return F.cross_entropy(classifier(reverse_gradient(rows, strength)).float(), languages)

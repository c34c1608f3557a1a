"""No one shall tell a sentence's language from its universal embedding (SMALR, section 3.3)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.gradient_reversal import reverse_gradient


def language_adversary(
    rows: Tensor, languages: Tensor, classifier: nn.Module, strength: float | Tensor
) -> Tensor:
    """The cross-entropy of a classifier that learns to tell languages apart.

    Its gradient reaches the rows reversed, times ``strength``: they learn to be
    taken for any language.
    """
    return F.cross_entropy(classifier(reverse_gradient(rows, strength)).float(), languages)

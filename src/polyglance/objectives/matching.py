"""Do a sentence and a picture belong together? (M3P's MC-VLM, UC2's ITM)"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.packing import to_device


def itm_loss(logits: Tensor, matched: Tensor) -> Tensor:
    """``BCE(s(w, v), y)``, the mean over pairs; ``matched`` is true for those that belong."""
    return F.binary_cross_entropy_with_logits(
        logits.float(), to_device(matched, logits.device).float()
    )

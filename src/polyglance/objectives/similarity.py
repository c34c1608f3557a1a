"""Cosine similarities, which all contrastive losses start from."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine of every row of ``first`` with every row of ``second``, ``(n, m)``.

    Never in half precision, whatever the model runs in: bfloat16 has three digits, and a
    temperature of 0.1 multiplies the error by ten.
    """
    with torch.autocast(first.device.type, enabled=False):
        rows, columns = (F.normalize(_at_least_float32(side), dim=1) for side in (first, second))
        return rows @ columns.T


def _at_least_float32(rows: Tensor) -> Tensor:
    return rows.to(torch.promote_types(rows.dtype, torch.float32))

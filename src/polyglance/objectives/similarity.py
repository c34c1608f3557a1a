"""How well each of these fits each of those: the cosine that all contrastive losses start from."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """The cosine of every row of ``first`` with every row of ``second``.

    Never in half precision, whatever the model runs in: bfloat16 knows three
    digits, and a temperature of 0.1 makes the error ten times as large.
    """
    with torch.autocast(first.device.type, enabled=False):
        rows, columns = (F.normalize(_precise(side), dim=1) for side in (first, second))
        return rows @ columns.T


def _precise(rows: Tensor) -> Tensor:
    return rows.to(torch.promote_types(rows.dtype, torch.float32))

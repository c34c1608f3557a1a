"""Layer norm that keeps the precision of its input."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` whose output has the dtype of its input.

    Statistics and weights are float32 all the same. Under autocast torch's own returns float32,
    which doubles the memory traffic of everything up to the next matrix product.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise rows, ``(..., hidden_size)``."""
        if input.dtype == torch.float32:
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            weight, bias = self.weight.float(), self.bias.float()
            rows = F.layer_norm(input.float(), self.normalized_shape, weight, bias, self.eps)
        return rows.to(input.dtype)

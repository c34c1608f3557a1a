"""Tensors on their way to an accelerator."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    """The tensor on a device, without waiting for what that is still at.

    Out of ordinary memory a copy begins only when the accelerator has come so far, and the
    processor waits with it, instead of preparing the next step; out of pinned memory it
    need not.
    """
    if device is None:
        return tensor
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)

"""Modules without weights, to be filled by ``load_state_dict(..., assign=True)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_FILLS = (nn.init.normal_, Tensor.normal_)


class _SkipNormal(TorchFunctionMode):
    """Leaves normal distributions out: on the meta device, the first one imports the compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build modules whose parameters have shapes but no memory.

    A plain ``torch.device("meta")`` does the same, 2.5 seconds of imports later.
    """
    with torch.device("meta"), _SkipNormal():
        yield

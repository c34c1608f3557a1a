"""Compile functions when they are first used, except where single operations must be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

_uncompiled = ContextVar("uncompiled", default=False)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that `torch.compile` compiles at its first call, for all sizes."""

    @cache  # torch.compile imports the compiler
    def compile_once() -> Callable[P, R]:
        return torch.compile(function, dynamic=True)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return (function if _uncompiled.get() else compile_once())(*args, **kwargs)

    return call


@contextmanager
def uncompiled() -> Iterator[None]:
    """Call functions of `compiled` as they are within the context.

    Whoever watches operations (a dispatch mode, such as one that counts them) needs this: a
    function that is first called under one is never compiled again, without a word.
    """
    token = _uncompiled.set(True)
    try:
        yield
    finally:
        _uncompiled.reset(token)

"""Decide whether a request comes from the machine itself, where folders may be added.

A server that others can reach, by its address or through a proxy, lets nobody change the library.
Where only this machine can reach it, each request must come from it directly: from a loopback
address, for a loopback host name, and without the headers that proxies add.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from polyglance.serve.auth import host_name, is_loopback
from polyglance.serve.errors import HTTPProblem

_PROXY_HEADERS = (
    "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
    "x-forwarded-server", "x-real-ip", "cf-connecting-ip",
)  # fmt: skip


class LocalAccess:
    """Who may change the library and open folders on the machine's screen."""

    def __init__(self, *, enabled: bool) -> None:
        """Allow it to whoever is on the machine, or to nobody."""
        self.enabled = enabled

    def allows(self, scope: Scope) -> bool:
        """Return whether a request comes from the machine itself."""
        if not self.enabled or not scope.get("client"):
            return False
        headers = Headers(scope=scope)
        return (
            is_loopback(scope["client"][0])
            and is_loopback(host_name(headers.get("host", "")))
            and not any(name in headers for name in _PROXY_HEADERS)
        )

    def check(self, scope: Scope) -> None:
        """Raise 403 unless a request comes from the machine itself."""
        if not self.allows(scope):
            raise HTTPProblem(
                403,
                "Folders are added and opened on the machine itself only: open the page there, at"
                " the address that `polyglance serve` prints without --host.",
            )

"""Proxies in front of the server: the public address, and who the client is.

A proxy ends TLS and connects from its own address, so the server sees neither the scheme nor the
client. ``--public-url`` names the address that browsers use. ``X-Forwarded-For`` and
``X-Forwarded-Proto`` are believed only from proxies that ``--trusted-proxy`` names: anyone else
could write any address into them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from polyglance.errors import PolyglanceError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_IPV6_CLIENT_BITS = 64
"""A client is usually given 64 bits of IPv6 addresses to choose from."""


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """The address that browsers use, where it differs from the one that the server listens on."""

    scheme: str
    host: str
    netloc: str

    @classmethod
    def parse(cls, text: str) -> PublicUrl:
        """Parse ``https://pictures.example``, with a port where it is not the usual one."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        else:
            if (
                parts.scheme not in _DEFAULT_PORTS
                or parts.path not in ("", "/")
                or parts.query
                or parts.fragment
                or "@" in parts.netloc
            ):
                host = None
        if not host or not host.isascii():
            raise PolyglanceError(
                f"{text!r} is no public address: give scheme and host without a path,"
                " such as https://pictures.example"
            )
        name = f"[{host}]" if ":" in host else host
        usual = port in (None, _DEFAULT_PORTS[parts.scheme])
        return cls(parts.scheme, host, name if usual else f"{name}:{port}")

    @property
    def origin(self) -> str:
        """The ``Origin`` header of requests by pages at this address."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def is_https(self) -> bool:
        """Whether browsers connect over TLS."""
        return self.scheme == "https"


class TrustedProxies:
    """The addresses whose ``X-Forwarded-*`` headers are believed."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        """Parse addresses and networks, such as ``127.0.0.1`` and ``10.0.0.0/8``."""
        self._networks = []
        for address in addresses:
            try:
                self._networks.append(ipaddress.ip_network(address))
            except ValueError:
                raise PolyglanceError(
                    f"{address!r} is no address of a proxy: give an IP address or a network,"
                    " such as 127.0.0.1 or 10.0.0.0/8"
                ) from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        try:
            parsed = _parse_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)

    def client(self, scope: Scope, headers: Headers) -> str:
        """Return the client of a request as `client_group` names it."""
        peer = scope["client"][0] if scope.get("client") else ""
        address = peer
        if peer in self:
            # Each proxy appends the address it was called from: the last that is no proxy counts.
            hops = ",".join(headers.getlist("x-forwarded-for")).split(",")
            for hop in reversed([hop.strip() for hop in hops]):
                if not is_address(hop):
                    break
                address = hop
                if hop not in self:
                    break
        return client_group(address)

    def is_https(self, scope: Scope, headers: Headers) -> bool:
        """Return whether the client connected over TLS, as a trusted proxy says."""
        if scope.get("client") and scope["client"][0] in self:
            return headers.get("x-forwarded-proto", "").strip().lower() == "https"
        return False


def is_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        _parse_address(text)
    except ValueError:
        return False
    return True


def client_group(address: str) -> str:
    """Return what limits count as one client: an IPv4 address, or a /64 network of IPv6."""
    try:
        parsed = _parse_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((int(parsed), _IPV6_CLIENT_BITS), strict=False))


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    parsed = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)  # ::ffff:10.0.0.1, on sockets for both versions
    return parsed if mapped is None else mapped

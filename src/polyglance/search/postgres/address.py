"""Where a library on PostgreSQL is: ``postgresql://user@host/database``; passwords stay hidden."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from polyglance.errors import MissingExtra, PolyglanceError, printable

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ModuleNotFoundError as missing:
    raise MissingExtra("a library on PostgreSQL", "postgres") from missing

# A server that is cut off is noticed within a minute; without them it could take hours.
_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
    "application_name": "polyglance",
}


@dataclass(frozen=True, slots=True)
class Address:
    """What leads to a database."""

    parts: dict[str, Any] = field(repr=False)
    """As libpq names them; those that are not given are libpq's, or from the environment."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Read an address; what is wrong with it is not repeated, it might be the password."""
        user, at, _ = url.partition("://")[2].rpartition("@")
        try:
            if at and any(sign in user for sign in "@/"):
                raise ValueError
            return cls({**_DEFAULTS, **conninfo_to_dict(url)})
        except (psycopg.Error, ValueError):
            raise PolyglanceError(
                "the address of the database cannot be read: write it as"
                " postgresql://user:password@host/database, with %40 for @, %2F for / and %25 for"
                " % in a name or password"
            ) from None

    @property
    def name(self) -> str:
        """The address as it is shown: user, server and database, and nothing else."""
        user, host, port, database = (
            quote(str(self.parts.get(part) or ""), safe=safe)
            for part, safe in (("user", ""), ("host", ",:[]/"), ("port", ","), ("dbname", ""))
        )
        server = f"{user}@" if user else ""
        if host.startswith("/"):  # a socket's folder
            return f"postgresql://{server}/{database}?host={host}" + (port and f"&port={port}")
        return f"postgresql://{server}{host}" + (port and f":{port}") + f"/{database}"

    def told(self, error: Exception) -> str:
        """The first line of what PostgreSQL says, without the password."""
        said = (str(error) or type(error).__name__).strip().splitlines()[0]
        password = self.parts.get("password")
        return printable(said.replace(str(password), "***") if password else said)

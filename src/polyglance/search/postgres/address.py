"""The address of a library on PostgreSQL, ``postgresql://user@host/database``.

The password never appears in a name or an error message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from polyglance.errors import MissingExtraError, PolyglanceError, printable

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ModuleNotFoundError as missing:
    raise MissingExtraError("a library on PostgreSQL", "postgres") from missing

# With these, a lost server is noticed within a minute; without, it could take hours.
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
    """Connection parameters of a database."""

    parts: dict[str, Any] = field(repr=False)
    """By libpq's names; missing ones are libpq's defaults or come from the environment."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse an address; the error does not repeat it, since it may hold a password."""
        user, at, _ = url.partition("://")[2].rpartition("@")
        try:
            if at and any(sign in user for sign in "@/"):
                raise ValueError
            return cls({**_DEFAULTS, **conninfo_to_dict(url)})
        except (psycopg.Error, ValueError):
            raise PolyglanceError(
                "the address of the database cannot be parsed: write it as"
                " postgresql://user:password@host/database, with %40 for @, %2F for / and %25 for"
                " % in a name or password"
            ) from None

    @property
    def name(self) -> str:
        """The address for display: user, server and database only."""
        user, host, port, database = (
            quote(str(self.parts.get(part) or ""), safe=safe)
            for part, safe in (("user", ""), ("host", ",:[]/"), ("port", ","), ("dbname", ""))
        )
        server = f"{user}@" if user else ""
        if host.startswith("/"):  # the folder of a Unix socket
            return f"postgresql://{server}/{database}?host={host}" + (port and f"&port={port}")
        return f"postgresql://{server}{host}" + (port and f":{port}") + f"/{database}"

    def error_message(self, error: Exception) -> str:
        """Return the first line of PostgreSQL's message, without the password."""
        message = (str(error) or type(error).__name__).strip().splitlines()[0]
        password = self.parts.get("password")
        return printable(message.replace(str(password), "***") if password else message)

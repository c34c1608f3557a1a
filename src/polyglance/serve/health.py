"""Whether a server answers: ``python -m polyglance.serve.health``, the health check of containers.

Without an access token in POLYGLANCE_TOKEN, a refusal (401) is an answer too; with one, the library
must be readable. Exits with status 0 or 1.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

_TIMEOUT = 5.0


def is_healthy(address: str, token: str | None = None) -> bool:
    """Return whether a server answers, and with a token whether its library can be read."""
    request = urllib.request.Request(f"{address.rstrip('/')}/api/library")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    # Never through a proxy of the environment: the server is in this container.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401 and not token
    except OSError:
        return False


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8017"
    sys.exit(0 if is_healthy(where, os.environ.get("POLYGLANCE_TOKEN")) else 1)

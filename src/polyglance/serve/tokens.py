"""Access tokens: which are strong enough, who has one, and how often anyone may guess."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from polyglance.errors import PolyglanceError
from polyglance.serve.errors import HTTPProblem

MIN_TOKEN_CHARS = 16
MIN_DISTINCT_CHARS = 6
MAX_GUESSES = 10
"""Wrong tokens that one client may send at once."""
SECONDS_PER_GUESS = 6.0
"""After which it may send another."""
_MAX_CLIENTS = 10_000
"""Clients and sessions to remember."""


def check_strength(token: str) -> None:
    """Raise an error for a token that is short, or long only by repetition."""
    suggestion = secrets.token_urlsafe(24)
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise PolyglanceError(
            f"an access token needs at least {MIN_TOKEN_CHARS} printable ASCII characters,"
            f" such as {suggestion}"
        )
    period = next(n for n in range(1, len(token) + 1) if token[n:] == token[: len(token) - n])
    repeats = period < MIN_TOKEN_CHARS and 2 * period <= len(token)
    if repeats or len(set(token)) < MIN_DISTINCT_CHARS:
        raise PolyglanceError(
            "the access token repeats itself and is easy to guess: use a random one,"
            f" such as {suggestion}"
        )


@dataclass(slots=True)
class _Guesses:
    left: float
    time: float
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=2 * MAX_GUESSES))


class AccessTokens:
    """Check tokens and cookies, and count the wrong ones of each client.

    A cookie is a random text with its signature under the token: valid after a restart, and
    without the token in it.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock = token.encode(), clock
        self._guesses: OrderedDict[str, _Guesses] = OrderedDict()
        self._sessions: OrderedDict[str, None] = OrderedDict()

    def check_token(self, token: str, client: str) -> bool:
        """Return whether a client's token is right; raise 429 if it has sent too many wrong ones.

        Nor is a right token accepted then: otherwise guessing would go on as before.
        """
        self._check_guesses(client)
        valid = hmac.compare_digest(token.encode(), self._token)
        if not valid:
            self._record_guess(token, client)
        return valid

    def issue_cookie(self) -> str:
        """Return a new cookie, for a client that has sent the token."""
        session = secrets.token_urlsafe(16)
        self._remember(session)
        return f"{session}.{self._sign(session)}"

    def check_cookie(self, cookie: str, client: str) -> bool:
        """Return whether a client's cookie is valid; raise 429 as `check_token` does.

        A cookie that was valid before stays so while others at the same address guess.
        """
        session, _, signature = cookie.partition(".")
        if session not in self._sessions:
            self._check_guesses(client)
        valid = hmac.compare_digest(signature.encode(), self._sign(session).encode())
        if valid:
            self._remember(session)
        else:
            self._record_guess(cookie, client)
        return valid

    def _sign(self, session: str) -> str:
        return hmac.new(self._token, b"cookie " + session.encode(), hashlib.sha256).hexdigest()

    def _remember(self, session: str) -> None:
        self._sessions[session] = None
        self._sessions.move_to_end(session)
        if len(self._sessions) > _MAX_CLIENTS:
            self._sessions.popitem(last=False)

    def _check_guesses(self, client: str) -> None:
        guesses = self._guesses.get(client)
        if guesses is None:
            return
        now = self._clock()
        earned = (now - guesses.time) / SECONDS_PER_GUESS
        guesses.left, guesses.time = min(MAX_GUESSES, guesses.left + earned), now
        if guesses.left < 1:
            wait = math.ceil((1 - guesses.left) * SECONDS_PER_GUESS)
            raise HTTPProblem(
                429,
                f"Too many wrong access tokens came from your address: wait {wait} seconds.",
                {"retry-after": str(wait)},
            )

    def _record_guess(self, credential: str, client: str) -> None:
        guesses = self._guesses.setdefault(client, _Guesses(MAX_GUESSES, self._clock()))
        self._guesses.move_to_end(client)
        if len(self._guesses) > _MAX_CLIENTS:
            self._guesses.popitem(last=False)
        digest = hashlib.sha256(credential.encode()).digest()
        # The same again is no guess: a page keeps sending the cookie of a token that was changed.
        if digest not in guesses.recent:
            guesses.recent.append(digest)
            guesses.left -= 1

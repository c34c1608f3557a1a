"""Access control and security headers."""

from __future__ import annotations

import itertools

import pytest
from starlette.testclient import TestClient

from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.auth import COOKIE, is_loopback
from polyglance.serve.errors import HTTPProblem
from polyglance.serve.proxies import PublicUrl
from polyglance.serve.server import check_token, page_url
from polyglance.serve.tokens import MAX_GUESSES, SECONDS_PER_GUESS, AccessTokens

TOKEN = "correct-horse-battery-staple"
NUMBERS = itertools.count()


@pytest.fixture
def protected_client(library: Library) -> TestClient:
    """A client on another machine, of a server with an access token."""
    app = create_app(library, token=TOKEN, loopback=False)
    return TestClient(app, base_url="http://pictures.example", follow_redirects=False)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:8017", "[::1]:8017", "LOCALHOST:1", "127.8.9.1"]
)
def test_loopback_hosts_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/api/library", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1", "0.0.0.0"],
)
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    for address in ("/", "/api/library"):
        response = client.get(address, headers={"host": host})
        assert response.status_code == 403
        assert response.json().keys() == {"error"}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:81"},
        {"origin": "http://["},
        {"origin": "http://[::1]]"},
        {"origin": "localhost"},
        {"origin": "file://localhost"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
)
def test_requests_from_other_sites_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/api/library", headers=headers).status_code == 403
    assert client.post("/api/pictures", headers=headers).status_code == 403


def test_links_from_other_sites_open_the_page(client: TestClient) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/?q=dog", headers=headers).status_code == 200
    same_origin = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert client.get("/api/library", headers=same_origin).status_code == 200


@pytest.mark.parametrize(
    "address", ["/", "/style.css", "/openapi.json", "/api/library", "/api/items/1/picture", "/no"]
)
def test_requests_without_the_token_are_refused(protected_client: TestClient, address: str) -> None:
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer "},
        {"cookie": f"{COOKIE}=wrong"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": f"{COOKIE}=."},
        {"cookie": "\x01;;=="},
    ):
        response = protected_client.get(address, headers=headers)
        assert response.status_code == 401
        assert "protected" in response.text


def test_bearer_token_is_accepted(protected_client: TestClient) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert protected_client.get("/api/library", headers=headers).status_code == 200


def test_token_in_a_link_becomes_a_cookie(protected_client: TestClient) -> None:
    response = protected_client.get("/", params={"token": TOKEN, "q": "ein Hund"})
    assert (response.status_code, response.headers["location"]) == (303, "/?q=ein+Hund")
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert protected_client.get("/api/library").status_code == 200  # with the cookie


def test_wrong_token_in_a_link_is_refused(protected_client: TestClient) -> None:
    for token in ("", TOKEN[:-1], TOKEN + "x", "ü"):
        response = protected_client.get("/", params={"token": token})
        assert response.status_code == 401
        assert "set-cookie" not in response.headers


@pytest.mark.parametrize("address", ["/", "/api/library", "/api/nothing", "/api/items/1/picture"])
def test_security_headers_are_set(client: TestClient, address: str) -> None:
    headers = client.get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


def test_internal_errors_reveal_nothing(library: Library) -> None:
    app = create_app(library)

    @app.get("/api/broken")
    async def broken() -> None:
        raise RuntimeError("/secret/place")

    response = TestClient(app, base_url="http://localhost").get("/api/broken")
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "nosniff" in response.headers["x-content-type-options"]


def test_public_hosts_need_a_strong_token() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "my-server"):
        with pytest.raises(PolyglanceError, match="token"):
            check_token(host, None)
        check_token(host, TOKEN)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_token(host, None)
        assert is_loopback(host)
    for weak in ("", "short", "ü" * 20, "a\n" * 10):
        with pytest.raises(PolyglanceError, match="16"):
            check_token("127.0.0.1", weak)
    for weak in ("a" * 40, "abcd" * 8, "passwordpassword", "0123456789" * 3, "aaaaaaaabbbbbbbbcd"):
        with pytest.raises(PolyglanceError, match="easy to guess"):
            check_token("127.0.0.1", weak)
    for strong in ("4e1f" * 3 + "0b92a7c6d853", "3141592653589793", "x" * 9 + "correct-horse"):
        check_token("0.0.0.0", strong)


def guesses(tokens: AccessTokens, client: str = "10.0.0.1") -> int:
    """Return how many wrong tokens a client can send before it is refused."""
    for count in range(10 * MAX_GUESSES):
        try:
            assert not tokens.check_token(f"wrong {next(NUMBERS)}", client)
        except HTTPProblem as problem:
            return count if problem.status == 429 else -1
    return -1


def test_wrong_tokens_are_rate_limited_for_each_address() -> None:
    now = 0.0
    tokens = AccessTokens(TOKEN, clock=lambda: now)
    cookie = tokens.issue_cookie()
    assert guesses(tokens) == MAX_GUESSES
    with pytest.raises(HTTPProblem, match="wait"):  # or guessing would go on
        tokens.check_token(TOKEN, "10.0.0.1")
    with pytest.raises(HTTPProblem, match="wait"):
        tokens.check_cookie("guessed.cookie", "10.0.0.1")
    assert tokens.check_cookie(cookie, "10.0.0.1")  # who had access keeps it
    assert tokens.check_token(TOKEN, "10.0.0.2")
    now += SECONDS_PER_GUESS
    assert tokens.check_token(TOKEN, "10.0.0.1")
    assert guesses(tokens) == 1
    now += 1000 * SECONDS_PER_GUESS
    assert guesses(tokens) == MAX_GUESSES


def test_repeating_a_wrong_token_is_no_guess() -> None:
    tokens = AccessTokens(TOKEN)
    for _ in range(10 * MAX_GUESSES):
        assert not tokens.check_token("that of last year", "10.0.0.1")
    assert tokens.check_token(TOKEN, "10.0.0.1")


def test_a_cookie_is_valid_after_a_restart_but_not_for_another_token() -> None:
    cookie = AccessTokens(TOKEN).issue_cookie()
    assert cookie != AccessTokens(TOKEN).issue_cookie()
    assert AccessTokens(TOKEN).check_cookie(cookie, "")
    assert not AccessTokens(TOKEN + "x").check_cookie(cookie, "")


def test_guessing_gets_429(protected_client: TestClient) -> None:
    addresses = ("/", "/api/library")
    for number in range(MAX_GUESSES):
        header = {"authorization": f"Bearer {number}"}
        assert protected_client.get(addresses[number % 2], headers=header).status_code == 401
    header = {"authorization": f"Bearer {TOKEN}"}
    for address in addresses:
        response = protected_client.get(address, headers=header)
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"].endswith(" seconds.")
    response = protected_client.get("/", params={"token": TOKEN})
    assert response.status_code == 429
    assert "set-cookie" not in response.headers


def test_page_url() -> None:
    assert page_url("127.0.0.1", 8017, None) == "http://127.0.0.1:8017/"
    assert page_url("::1", 8017, "a&b") == "http://[::1]:8017/?token=a%26b"
    public = PublicUrl.parse("https://pictures.example")
    assert page_url("127.0.0.1", 8017, "a&b", public) == "https://pictures.example/?token=a%26b"

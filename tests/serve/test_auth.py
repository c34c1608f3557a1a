"""Who may come in, and what browsers are told."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.auth import COOKIE, is_loopback
from polyglance.serve.server import check_token, link

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def guarded(library: Library) -> TestClient:
    """With a token, as others reach it."""
    app = create_app(library, token=TOKEN, loopback=False)
    return TestClient(app, base_url="http://pictures.example", follow_redirects=False)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:8017", "[::1]:8017", "LOCALHOST:1", "127.8.9.1"]
)
def test_names_of_this_machine_are_let_in(client: TestClient, host: str) -> None:
    assert client.get("/api/library", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1", "0.0.0.0"],
)
def test_other_names_that_lead_here_are_not(client: TestClient, host: str) -> None:
    for address in ("/", "/api/library"):
        answer = client.get(address, headers={"host": host})
        assert answer.status_code == 403
        assert answer.json().keys() == {"error"}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:81"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
)
def test_other_sites_may_not_use_it(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/api/library", headers=headers).status_code == 403
    assert client.post("/api/pictures", headers=headers).status_code == 403


def test_a_link_from_elsewhere_leads_to_the_page(client: TestClient) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/?q=dog", headers=headers).status_code == 200
    same = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert client.get("/api/library", headers=same).status_code == 200


@pytest.mark.parametrize(
    "address", ["/", "/style.css", "/openapi.json", "/api/library", "/api/items/1/picture", "/no"]
)
def test_nothing_is_told_without_the_token(guarded: TestClient, address: str) -> None:
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer "},
        {"cookie": f"{COOKIE}=wrong"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": "\x01;;=="},
    ):
        answer = guarded.get(address, headers=headers)
        assert answer.status_code == 401
        assert "protected" in answer.text


def test_the_token_opens_as_a_header(guarded: TestClient) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/library", headers=headers).status_code == 200


def test_the_token_opens_as_a_link_and_leaves_the_address(guarded: TestClient) -> None:
    answer = guarded.get("/", params={"token": TOKEN, "q": "ein Hund"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?q=ein+Hund")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert guarded.get("/api/library").status_code == 200  # with the cookie


def test_a_wrong_link_is_refused(guarded: TestClient) -> None:
    for token in ("", TOKEN[:-1], TOKEN + "x", "ü"):
        answer = guarded.get("/", params={"token": token})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("address", ["/", "/api/library", "/api/nothing", "/api/items/1/picture"])
def test_browsers_are_told_to_be_strict(client: TestClient, address: str) -> None:
    headers = client.get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


def test_what_goes_wrong_inside_is_not_told(library: Library) -> None:
    app = create_app(library)

    @app.get("/api/broken")
    async def broken() -> None:
        raise RuntimeError("/secret/place")

    answer = TestClient(app, base_url="http://localhost").get("/api/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "nosniff" in answer.headers["x-content-type-options"]


def test_the_world_is_not_listened_to_without_a_token() -> None:
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


def test_the_link_opens_the_page() -> None:
    assert link("127.0.0.1", 8017, None) == "http://127.0.0.1:8017/"
    assert link("::1", 8017, "a&b") == "http://[::1]:8017/?token=a%26b"

"""Behind a proxy: the public address, forwarded headers, and the documented configurations."""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from polyglance.errors import PolyglanceError
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.proxies import PublicUrl, TrustedProxies, client_group
from polyglance.serve.server import check_token
from polyglance.serve.tokens import MAX_GUESSES
from serve.conftest import running_server

TOKEN = "correct-horse-battery-staple"
HOST = "pictures.example"
DOCS = Path(__file__).parents[2] / "docs" / "serve.md"


@pytest.mark.parametrize(
    ("text", "origin", "host"),
    [
        ("https://pictures.example", "https://pictures.example", HOST),
        ("https://Pictures.Example:443/", "https://pictures.example", HOST),
        ("http://pictures.example:8080", "http://pictures.example:8080", HOST),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", "2001:db8::1"),
    ],
)
def test_public_addresses(text: str, origin: str, host: str) -> None:
    public = PublicUrl.parse(text)
    assert (public.origin, public.host) == (origin, host)
    assert public.is_https == text.startswith("https")


@pytest.mark.parametrize(
    "text",
    [
        "", "pictures.example", "ftp://pictures.example", "https://", "https://a/library", "http://[",
        "https://a?q=1", "https://a#b", "https://me@a", "https://a:port", "https://bücher.example",
    ],
)  # fmt: skip
def test_invalid_public_addresses_are_refused(text: str) -> None:
    with pytest.raises(PolyglanceError, match=r"such as https://pictures\.example"):
        PublicUrl.parse(text)


def test_a_public_address_needs_a_token() -> None:
    public = PublicUrl.parse("https://pictures.example")
    with pytest.raises(PolyglanceError, match=r"pictures\.example.*--token"):
        check_token("127.0.0.1", None, public)
    check_token("127.0.0.1", TOKEN, public)


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),  # not from a proxy
        ("127.0.0.1", None, "127.0.0.1"),
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "1.2.3.4, 198.51.100.7", "198.51.100.7"),  # the client wrote the first
        ("127.0.0.1", "1.2.3.4, 198.51.100.7, 10.1.2.3", "198.51.100.7"),  # two proxies
        ("127.0.0.1", "10.0.0.9", "10.0.0.9"),  # a visitor next to the proxy
        ("127.0.0.1", "unknown", "127.0.0.1"),
        ("127.0.0.1", "198.51.100.7, <script>", "127.0.0.1"),
        ("::ffff:127.0.0.1", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
    ],
)
def test_the_client_is_who_a_trusted_proxy_says(
    peer: str, forwarded: str | None, client: str
) -> None:
    proxies = TrustedProxies(["127.0.0.1", "10.0.0.0/8"])
    headers = Headers({} if forwarded is None else {"x-forwarded-for": forwarded})
    assert proxies.client({"client": (peer, 1)}, headers) == client


def test_invalid_proxies_are_refused() -> None:
    for address in ("", "localhost", "10.0.0.0/40", "10.0.0.1/8"):
        with pytest.raises(PolyglanceError, match=r"such as 127\.0\.0\.1"):
            TrustedProxies([address])


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    assert client_group("2001:db8::1") == client_group("2001:db8::ffff:1")
    assert client_group("2001:db8::1") != client_group("2001:db8:0:1::1")
    assert client_group("::ffff:192.0.2.1") == "192.0.2.1"


@pytest.fixture(scope="module")
def behind_proxy(library: Library) -> Callable[..., TestClient]:
    """Make clients of a server on 127.0.0.1 with a public address, as a proxy calls it."""

    def make(proxy: str = "127.0.0.1") -> TestClient:
        app = create_app(
            library,
            token=TOKEN,
            public_url=PublicUrl.parse("https://pictures.example"),
            proxies=TrustedProxies([proxy]),
        )
        return TestClient(
            app,
            base_url="http://pictures.example",
            follow_redirects=False,
            client=("127.0.0.1", 50000),
            headers={"authorization": f"Bearer {TOKEN}"},
        )

    return make


@pytest.mark.parametrize("host", [HOST, f"{HOST}:443", "127.0.0.1:8017"])
def test_the_page_at_the_public_address_may_upload(
    behind_proxy: Callable[..., TestClient], host: str
) -> None:
    client = behind_proxy()
    for origin, status in {
        "https://pictures.example": 415,  # allowed, but no picture
        "http://pictures.example": 403,
        "https://pictures.example:444": 403,
        "https://evil.example": 403,
        "https://pictures.example.evil": 403,
    }.items():
        headers = {"host": host, "origin": origin, "sec-fetch-site": "same-origin"}
        assert client.post("/api/pictures", content=b"a", headers=headers).status_code == status


def test_other_hosts_are_refused_behind_a_proxy(behind_proxy: Callable[..., TestClient]) -> None:
    response = behind_proxy().get("/api/library", headers={"host": "evil.example"})
    assert response.status_code == 403
    assert "--public-url" in response.json()["error"]


def test_cookies_are_secure_behind_https(library: Library) -> None:
    forwarded = {"x-forwarded-proto": "https"}
    for public, proxies, headers, secure in (
        ("https://localhost", [], {}, True),
        ("http://localhost", [], {}, False),
        (None, ["127.0.0.1"], forwarded, True),
        (None, ["127.0.0.1"], {"x-forwarded-proto": "http"}, False),
        (None, ["10.0.0.1"], forwarded, False),
    ):
        app = create_app(
            library,
            token=TOKEN,
            public_url=None if public is None else PublicUrl.parse(public),
            proxies=TrustedProxies(proxies),
        )
        client = TestClient(
            app, base_url="http://localhost", follow_redirects=False, client=("127.0.0.1", 50000)
        )
        cookie = client.get("/", params={"token": TOKEN}, headers=headers).headers["set-cookie"]
        assert ("Secure" in cookie) == secure


def test_guesses_count_for_the_forwarded_address(behind_proxy: Callable[..., TestClient]) -> None:
    def statuses(client: TestClient, address: str) -> list[int]:
        return [
            client.get(
                "/api/library",
                headers={"authorization": f"Bearer {n}", "x-forwarded-for": f"{n}.1.1.1,{address}"},
            ).status_code
            for n in range(1, MAX_GUESSES + 2)
        ]

    client = behind_proxy()
    for address in ("198.51.100.7", "198.51.100.8"):
        assert statuses(client, address) == [401] * MAX_GUESSES + [429]
    untrusted = behind_proxy("10.0.0.1")
    statuses(untrusted, "198.51.100.7")
    assert statuses(untrusted, "198.51.100.8") == [429] * (MAX_GUESSES + 1)


def documented(language: str) -> str:
    """Return the only code block of a language in docs/serve.md."""
    [block] = re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def nginx_command(folder: Path, port: int, upstream: str) -> list[str]:
    server = documented("nginx").replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    server = re.sub(r"/etc/ssl/pictures\.example", str(folder / "certificate"), server)
    built = subprocess.run(["nginx", "-V"], capture_output=True, text=True, check=True).stderr
    modules = ("proxy", "fastcgi", "uwsgi", "scgi")
    present = [name for name in modules if f"--without-http_{name}_module" not in built]
    folders = [f"client_body_temp_path {folder}/body;"]
    folders += [f"{name}_temp_path {folder}/{name};" for name in present]
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;\n"
        f"events {{}}\nhttp {{ access_log off; {' '.join(folders)}\n"
        + server.replace("127.0.0.1:8017", upstream) + "}"
    )  # fmt: skip
    return ["nginx", "-e", f"{folder}/log", "-c", str(config)]


def caddy_command(folder: Path, port: int, upstream: str) -> list[str]:
    certificate = f"{folder}/certificate.pem {folder}/certificate.key"
    site = documented("caddyfile").replace(
        "pictures.example {",
        f"https://pictures.example:{port} {{\n    bind 127.0.0.1\n    tls {certificate}\n",
    )
    config = folder / "Caddyfile"
    config.write_text(
        "{\n    admin off\n    auto_https disable_redirects\n}\n"
        + site.replace("127.0.0.1:8017", upstream)
    )
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(config)]


@contextmanager
def running_proxy(command: list[str], folder: Path, port: int) -> Iterator[None]:
    environment = {"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS": "1"}
    with (
        (folder / "output").open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            while True:
                assert process.poll() is None, (folder / "output").read_text()
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.02)
            yield
        finally:
            process.kill()


class Visitor:
    """A client of a proxy, from an address of its own."""

    def __init__(self, port: int, certificate: Path, address: str) -> None:
        self._port, self._address = port, address
        self._context = ssl.create_default_context(cafile=certificate)

    def request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> http.client.HTTPResponse:
        raw = socket.create_connection(("127.0.0.1", self._port), 120, (self._address, 0))
        connection = http.client.HTTPConnection(f"{HOST}:{self._port}")
        with self._context.wrap_socket(raw, server_hostname=HOST) as connection.sock:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            response.read()
            return response


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_the_documented_proxy(library: Library, tmp_path: Path, name: str) -> None:
    if not shutil.which(name, path="/usr/sbin:/usr/bin") or not shutil.which("openssl"):
        pytest.skip(f"{name} and openssl are not installed: apt-get install {name} openssl")
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"),
            *("-out", str(certificate), "-keyout", str(certificate.with_suffix(".key"))),
        ],
        check=True,
        capture_output=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    origin, proxies = f"https://{HOST}:{port}", TrustedProxies(["127.0.0.1"])
    app = create_app(library, token=TOKEN, public_url=PublicUrl.parse(origin), proxies=proxies)
    command = {"nginx": nginx_command, "caddy": caddy_command}[name]
    with running_server(app, proxies=proxies) as url:
        arguments = command(tmp_path, port, url.removeprefix("http://"))
        with running_proxy(arguments, tmp_path, port):
            visitor = Visitor(port, certificate, "127.0.0.3")
            login = visitor.request("GET", f"/?token={TOKEN}", {})
            cookie = login.headers["set-cookie"]
            assert (login.status, login.headers["location"]) == (303, "/")
            assert "Secure" in cookie

            headers = {"cookie": cookie.partition(";")[0], "origin": origin}
            assert visitor.request("GET", "/api/library", headers).status == 200
            megabytes = bytes(1_500_000)
            upload = visitor.request("POST", "/api/pictures", headers, megabytes)
            assert upload.status == 415  # it reached the server, and is no picture
            foreign = headers | {"origin": "https://evil.example"}
            assert visitor.request("POST", "/api/pictures", foreign, b"a").status == 403

            # Limits count visitors, whatever address they claim.
            for address, expected in (("127.0.0.4", 429), ("127.0.0.5", 401)):
                other = Visitor(port, certificate, address)
                for number in range(MAX_GUESSES + 1 if expected == 429 else 1):
                    wrong = {
                        "authorization": f"Bearer {number}",
                        "x-forwarded-for": f"1.1.1.{number}",
                    }
                    status = other.request("GET", "/api/library", wrong).status
                assert status == expected

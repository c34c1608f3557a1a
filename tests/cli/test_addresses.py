"""Passwords on the command line, which every user of the machine can read."""

from __future__ import annotations

import pytest

from polyglance.cli import main

SECRET = "corr3ct-horse"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["polyglance", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


ADDRESSES = [
    f"postgresql://me:{SECRET}@server/photos",
    f"postgres://me:{SECRET}@server",
    f"postgresql://me:{SECRET}@work@server/photos",
    f"postgresql:///photos?host=/run/x&password={SECRET}",
    f"postgresql://server/photos?sslpassword={SECRET}",
]
COMMANDS = [
    ["index", "--library"],
    ["search", "a dog", "-l"],
    ["serve", "--library"],
    ["library", "verify", "-l"],
    ["library", "merge"],
]


@pytest.mark.parametrize(("command", "address"), list(zip(COMMANDS, ADDRESSES, strict=True)))
def test_a_password_in_an_address_is_refused_and_not_repeated(
    command: list[str],
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *command, address) == 2
    output = " ".join("".join(capsys.readouterr()).split())
    assert "a password on the command line shows in the list of processes" in output
    assert "PGPASSFILE" in output
    assert SECRET not in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me@[::1]:1/p",
        "postgresql://me:@localhost:1/photos",
        "postgresql://127.0.0.1:1/p?connect_timeout=2",
    ],
)
def test_an_address_without_a_password_is_tried(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    assert run(monkeypatch, "library", "info", "--library", address) == 2
    assert "list of processes" not in capsys.readouterr().err


def test_the_variable_may_hold_a_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("POLYGLANCE_LIBRARY", f"postgresql://me:{SECRET}@localhost:1/photos")
    assert run(monkeypatch, "library", "info") == 2
    output = "".join(capsys.readouterr())
    assert "list of processes" not in output
    assert "postgresql://me@localhost:1/photos" in output
    assert SECRET not in output

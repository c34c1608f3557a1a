"""The commands and the server with a library in PostgreSQL."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from benchmarks.postgres_server import Server
from polyglance.cli import app, main
from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library
from polyglance.serve.app import create_app

SECRET = "s3cr3t"
NAMES = ("cow", "duck", "windmill")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert SECRET not in done.output
    return done.output


def make_client(library: Library) -> TestClient:
    return TestClient(create_app(library), base_url="http://127.0.0.1")


def test_all_commands(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The test servers accept any password; this one must not appear in any output.
    monkeypatch.setenv("PGPASSWORD", SECRET)
    url, other = (postgres.database().replace("postgres:@", "postgres@") for _ in range(2))
    pictures = [str(FOLDER / f"{name}.webp") for name in NAMES]
    output = run("index", *pictures, "-l", url, "--quiet", "--threads", "1")
    assert output.startswith("postgresql://postgres@/library")
    assert "3 added" in output
    hits = json.loads(run("search", "eine Windmühle", "-l", url, "-k", "1", "--json"))
    assert [Path(hit["path"]).stem for hit in hits] == ["windmill"]
    monkeypatch.setenv("POLYGLANCE_LIBRARY", url.replace("postgres@", f"postgres:{SECRET}@"))
    assert "3 pictures and 0 clips" in run("library", "info")
    assert "no damage" in run("library", "verify", "--files")
    assert "3 added" in run("library", "merge", url, "-l", other)
    assert "3 added" in run("library", "merge", other, "-l", str(tmp_path / "my.polyglance"))
    assert "1 removed; 2 in all" in run("library", "remove", pictures[0], "-l", other)
    with Library(other, threads=1) as library, make_client(library) as client:
        answer = client.get("/api/search", params={"q": "ein Vogel im Wasser", "limit": 1}).json()
        assert [hit["name"] for hit in answer["hits"]] == ["duck.webp"]
        assert SECRET not in str(client.get("/api/library").json())


def test_unreachable_server_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://me:{SECRET}@127.0.0.1:1/photos"
    monkeypatch.setenv("POLYGLANCE_LIBRARY", url)
    monkeypatch.setattr(sys, "argv", ["polyglance", "search", "dog"])
    with pytest.raises(SystemExit) as ended:
        main()
    message = capsys.readouterr().err
    assert ended.value.code != 0
    assert "postgresql://me@127.0.0.1:1/photos does not answer" in message
    assert SECRET not in message
    assert "Traceback" not in message

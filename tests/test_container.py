"""Containerfile against the repository: its files, extras, options and variables exist.

There is no container engine among the tests' requirements, so the image itself is not built.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import typer.main

from polyglance.cli import app
from polyglance.serve.health import is_healthy
from tools.requirements import pinned, requirements

ROOT = Path(__file__).parent.parent
KNOWN = {
    "ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "VOLUME", "USER", "EXPOSE", "HEALTHCHECK",
    "ENTRYPOINT", "CMD",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined if line.strip()]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def values(stage: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for given, rest in stage if given == name]


def test_instructions_are_known_and_images_have_versions() -> None:
    assert {name for name, _ in instructions()} <= KNOWN
    [python] = [rest.removeprefix("PYTHON=") for name, rest in instructions() if name == "ARG"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = project["requires-python"].removeprefix(">=")
    assert tuple(map(int, python.split("."))) >= tuple(map(int, least.split(".")))
    bases = [rest for name, rest in instructions() if name == "FROM"]
    assert all(base.startswith("docker.io/library/python:${PYTHON}-slim") for base in bases)


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    build, final = stages()
    sources = {word for rest in values(build, "COPY") for word in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in sources)
    kept = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert sources == kept
    assert values(final, "COPY") == ["--from=build /opt/polyglance /opt/polyglance"]
    # Whatever building reads besides: the readme and the licence that pyproject.toml names.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"], "src"} <= sources


def test_packages_are_those_of_the_lock() -> None:
    [install] = [rest for rest in values(stages()[0], "RUN") if "requirements.py" in rest]
    extras = re.search(r"tools/requirements\.py ([\w ]+) >", install)
    assert extras is not None
    lines = pinned(requirements(extras[1].split()))
    lock = (ROOT / "constraints-hashed.txt").read_text().lower()
    assert {"fastapi", "pi-heif", "onnxruntime"} <= {re.split(r"[\[=]", line)[0] for line in lines}
    for line in lines:
        name, version = re.split(r"(?:\[[^]]*\])?==", line.partition(";")[0].strip())
        assert f"\n{re.sub('[-_.]+', '-', name).lower()}=={version}" in lock.replace("_", "-")
    assert "--require-hashes" in install
    assert not [line for line in lines if line.startswith("torch")]


def test_the_command_runs_without_rights_and_with_options_that_exist() -> None:
    _, final = stages()
    names = [name for name, _ in final]
    assert values(final, "USER") == ["polyglance"]
    assert names.index("USER") < names.index("CMD")
    assert names.index("USER") > max(n for n, name in enumerate(names) if name == "RUN")
    assert json.loads(values(final, "ENTRYPOINT")[0]) == ["polyglance"]
    arguments = json.loads(values(final, "CMD")[0])
    group = typer.main.get_command(app)
    command = group.get_command(typer.Context(group), arguments[0])  # type: ignore[attr-defined]
    context = command.make_context("serve", arguments[1:])
    assert context.params["host"] == "0.0.0.0"  # which then needs an access token
    assert str(context.params["port"]) == values(final, "EXPOSE")[0]
    assert context.params["manage"] is False
    variables = set(re.findall(r"POLYGLANCE_\w+", values(final, "ENV")[0]))
    search = ["grep", "-rhoE", "POLYGLANCE_[A-Z]+", "--include=*.py", "src"]
    known = subprocess.run(search, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert variables <= set(known.split())
    assert json.loads(values(final, "VOLUME")[0]) == values(final, "WORKDIR") == ["/library"]


def test_the_health_check_asks_the_server() -> None:
    [check] = values(stages()[1], "HEALTHCHECK")
    module = json.loads(check[check.index("CMD ") + 4 :])
    assert module == ["python", "-m", "polyglance.serve.health"]
    status, asked = 200, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for code, without_token, with_token in ((200, True, True), (401, True, False),
                                                (503, False, False)):  # fmt: skip
            status = code
            assert is_healthy(address) is without_token, code
            assert is_healthy(address, "a token") is with_token, code
        server.shutdown()
    assert asked[:2] == [("/api/library", None), ("/api/library", "Bearer a token")]
    assert not is_healthy(address)  # nobody answers


@pytest.mark.parametrize("name", ["Containerfile", ".dockerignore"])
def test_files_end_in_a_line_break(name: str) -> None:
    assert (ROOT / name).read_text().endswith("\n")

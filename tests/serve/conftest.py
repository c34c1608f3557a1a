"""Fixtures of the server tests: a library of photographs and clips, and servers for it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import av
import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from fastapi import FastAPI
from PIL import Image
from playwright.sync_api import Browser, Page, Route, expect
from playwright.sync_api import Error as PlaywrightError
from starlette.testclient import TestClient

import polyglance
from helpers.browser import PAGE_TIMEOUT, launched_chromium
from helpers.tiny_cross_encoders import save_cross_encoder, save_vqa_model, tiny_uc2, write_parts
from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.vqa import VQA
from polyglance.demo.photographs import photographs
from polyglance.encoders import Encoder
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.serve.connections import ConnectionLimits
from polyglance.serve.proxies import TrustedProxies
from polyglance.serve.server import server_config

ANIMALS = """
bee butterfly camels cat-face cow crab dogs-at-door german-shepherd giraffes
golden-retriever horse owl parrot penguin polar-bear sheep swans tabby-cat
"""
PLACES = """
beach bridge castle chinese-tower city-night city-sunset eiffel-tower kitchen lake-sunset
pancakes racing-car snowy-mountain stadium windmill
"""


def write_clip(path: Path, scenes: Sequence[Path], *, seconds: int, rate: int = 4) -> None:
    """Write a WebM in VP8, which every browser plays, that shows each picture for some seconds."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libvpx", rate=rate, options={"deadline": "realtime", "threads": "1"}
        )
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        stream.gop_size = rate
        for scene in scenes:
            picture = Image.open(scene).convert("RGB").resize((320, 240))
            for _ in range(seconds * rate):
                container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode(None))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``holiday`` and ``films`` of July 2023, and ``holiday/animals`` of March 2024."""
    root = tmp_path_factory.mktemp("served")
    by_name = {photo.path.stem: photo.path for photo in photographs()}
    march, july = datetime(2024, 3, 5, 12), datetime(2023, 7, 9, 12)
    for folder, names, taken in (
        ("holiday/animals", ANIMALS, march),
        ("holiday", PLACES, july),
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in names.split():
            path = root / folder / f"{name}.webp"
            shutil.copyfile(by_name[name], path)
            os.utime(path, (taken.timestamp(), taken.timestamp()))
    (root / "films").mkdir()
    scenes = [by_name[name] for name in ("beach", "orchestra", "rocket")]
    write_clip(root / "films" / "journey.webm", scenes, seconds=3)
    os.utime(root / "films" / "journey.webm", (july.timestamp(), july.timestamp()))
    return root


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    """The default model, loaded once for small libraries."""
    return polyglance.load(threads=1)


@pytest.fixture(scope="session")
def library(photos: Path) -> Iterator[Library]:
    # By the model's name, so that another process can open it.
    with Library(photos / "my.polyglance", threads=1) as opened:
        opened.add(photos / "holiday", photos / "films")
        yield opened


@pytest.fixture(scope="session")
def client(library: Library) -> TestClient:
    """A client on the same machine."""
    return TestClient(create_app(library), base_url="http://localhost")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Tiny models that explain hits and answer questions, with random weights."""
    folder = tmp_path_factory.mktemp("models")
    parts = write_parts(folder, ["a horse on the meadow and two dogs at a door", "what is it"])
    return {
        "explainer": Explainer.open(save_cross_encoder(folder / "pair", parts, tiny_uc2(parts))),
        "answerer": VQA.open(save_vqa_model(folder / "vqa", parts)),
    }


@pytest.fixture(scope="session")
def explaining_client(library: Library, models: dict[str, Any]) -> TestClient:
    """A client of a server with those models."""
    return TestClient(create_app(library, **models), base_url="http://localhost")


@pytest.fixture(scope="session")
def base_url(library: Library) -> Iterator[str]:
    """Address of a real server."""
    with running_server(create_app(library)) as url:
        yield url


@pytest.fixture(scope="session")
def explaining_url(library: Library, models: dict[str, Any]) -> Iterator[str]:
    """Address of a real server with those models."""
    with running_server(create_app(library, **models)) as url:
        yield url


@contextmanager
def running_server(
    app: FastAPI,
    limits: ConnectionLimits | None = None,
    proxies: TrustedProxies | None = None,
) -> Iterator[str]:
    """Run a server in a thread and give its address."""
    listening = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            try:
                await super().startup(sockets)
            finally:
                listening.set()

    config = server_config(app, limits or ConnectionLimits(), proxies)
    config.port = 0
    server = Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    listening.wait()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")  # its event loop must end before other tests start theirs
def browser() -> Iterator[Browser]:
    # All pages in one process: starting another takes as long as a short test.
    with launched_chromium("--renderer-process-limit=1") as launched:
        expect.set_options(timeout=PAGE_TIMEOUT)
        yield launched


def unfold(route: Route) -> None:
    """Answer a search without a fold between certain and less certain hits."""
    try:
        response = route.fetch()
        if response.ok:
            route.fulfill(response=response, json=response.json() | {"fold": None, "fits": None})
        else:
            route.fulfill(response=response)
    except PlaywrightError:
        pass  # the page has given the search up


@pytest.fixture
def open_page(browser: Browser, base_url: str) -> Iterator[Callable[..., Page]]:
    """Open the page in a browser; script errors fail the test.

    All hits count as certain, whatever the model's probabilities, unless a test routes searches.
    """
    with page_opener(browser, base_url) as open_in_browser:
        yield open_in_browser


@contextmanager
def page_opener(browser: Browser, base_url: str) -> Iterator[Callable[..., Page]]:
    """Give a function that opens the page of a server; see `open_page`."""
    contexts, errors = [], []

    def open_in_browser(path: str = "/", *, locale: str = "en-GB", **settings: Any) -> Page:
        context = browser.new_context(locale=locale, base_url=base_url, **settings)
        context.set_default_timeout(PAGE_TIMEOUT)
        context.route("**/api/search?*", unfold)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else 0)
        page.goto(path)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_in_browser
    for context in contexts:
        context.unroute_all(behavior="ignoreErrors")
        context.close()
    assert errors == []


@pytest.fixture(scope="session")
def violations() -> Callable[..., list[str]]:
    """List the accessibility violations that axe finds on a page, minor ones excepted."""

    def list_violations(page: Page, *rules: str) -> list[str]:
        page.wait_for_load_state("networkidle")
        # Contrast is measured wrongly while elements fade in.
        page.evaluate("Promise.all(document.getAnimations().map((one) => one.finished))")
        options = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else None
        response = Axe().run(page, options=options).response
        return [
            f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
            for violation in response["violations"]
            if violation["impact"] in ("serious", "critical", "moderate")
        ]

    return list_violations

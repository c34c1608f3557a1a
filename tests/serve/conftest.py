"""What tests of the service share: one library of photographs and clips, one server."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from fastapi import FastAPI
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.testclient import TestClient

from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.vqa import Answerer
from polyglance.demo.photographs import photographs
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from tiny_readers import make_parts, save_answerer, save_reader, tiny_uc2

ANIMALS = """
bee butterfly camels cat-face cow crab dogs-at-door german-shepherd giraffes
golden-retriever horse owl parrot penguin polar-bear sheep swans tabby-cat
"""
PLACES = """
beach bridge castle chinese-tower city-night city-sunset eiffel-tower kitchen lake-sunset
pancakes racing-car snowy-mountain stadium windmill
"""


def write_clip(path: Path, scenes: Sequence[Path], *, seconds: int, rate: int = 4) -> None:
    """Write a WebM of VP8, which every browser plays, that shows each picture for some seconds."""
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
    """Two folders, ``holiday`` with ``animals`` in it and ``films``."""
    root = tmp_path_factory.mktemp("served")
    by_name = {photo.path.stem: photo.path for photo in photographs()}
    for folder, names in {"holiday/animals": ANIMALS, "holiday": PLACES}.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in names.split():
            shutil.copyfile(by_name[name], root / folder / f"{name}.webp")
    (root / "films").mkdir()
    scenes = [by_name[name] for name in ("beach", "orchestra", "rocket")]
    write_clip(root / "films" / "journey.webm", scenes, seconds=3)
    return root


@pytest.fixture(scope="session")
def library(photos: Path) -> Iterator[Library]:
    with Library(photos / "my.polyglance", threads=1) as made:
        made.add(photos / "holiday", photos / "films")
        yield made


@pytest.fixture(scope="session")
def client(library: Library) -> TestClient:
    """As a program on this machine asks."""
    return TestClient(create_app(library), base_url="http://localhost")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Small ones for a closer look, with random weights."""
    folder = tmp_path_factory.mktemp("models")
    parts = make_parts(folder, ["a horse on the meadow and two dogs at a door", "what is it"])
    return {
        "explainer": Explainer.open(save_reader(folder / "pair", parts, tiny_uc2(parts))),
        "answerer": Answerer.open(save_answerer(folder / "vqa", parts)),
    }


@pytest.fixture(scope="session")
def knowing(library: Library, models: dict[str, Any]) -> TestClient:
    """Asks a service that has those models."""
    return TestClient(create_app(library, **models), base_url="http://localhost")


@pytest.fixture(scope="session")
def address(library: Library) -> Iterator[str]:
    """Of a real server."""
    with listening(create_app(library)) as link:
        yield link


@pytest.fixture(scope="session")
def knowing_address(library: Library, models: dict[str, Any]) -> Iterator[str]:
    """Of one that has models for a closer look."""
    with listening(create_app(library, **models)) as link:
        yield link


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("the page is tested in Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens the page as somebody's browser would; nothing may go wrong in it."""
    contexts, complaints = [], []

    def opened(path: str = "/", *, locale: str = "en-GB", **settings: Any) -> Page:
        context = browser.new_context(locale=locale, base_url=address, **settings)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else 0)
        page.goto(path)
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def violations() -> Callable[[Page], list[str]]:
    """What axe finds on a page that is more than a trifle."""

    def found_on(page: Page) -> list[str]:
        page.wait_for_timeout(400)  # until nothing fades any more
        found = Axe().run(page).response["violations"]
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in found
            if one["impact"] in ("serious", "critical", "moderate")
        ]

    return found_on

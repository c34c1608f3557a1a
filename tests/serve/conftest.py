"""What tests of the service share: one library of photographs and clips, one server."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import av
import pytest
import uvicorn
from PIL import Image
from starlette.testclient import TestClient

from polyglance.demo.photographs import photographs
from polyglance.search.library import Library
from polyglance.serve.app import create_app

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
        stream = container.add_stream("libvpx", rate=rate, options={"deadline": "realtime"})
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
def address(library: Library) -> Iterator[str]:
    """Of a real server."""
    config = uvicorn.Config(create_app(library), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)

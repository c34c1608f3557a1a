"""The static page in Chromium: its tokenizer, its hits and its vectors are those of Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

import polyglance
from helpers.browser import PAGE_TIMEOUT, launched_chromium
from helpers.many_texts import many_texts
from helpers.small_mmp import cosines
from polyglance.cli import app
from polyglance.demo import static_page
from polyglance.demo.onnxruntime_web import FILES, runtime_folder
from polyglance.demo.photographs import photographs
from polyglance.demo.static_page import write_static_page
from polyglance.encoders.model_folder import VOCABULARY, ModelFolder
from polyglance.encoders.unigram import UnigramTokenizer
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import PolyglanceError

PHOTOS = photographs()[::22]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        runtime_folder()
    except PolyglanceError as error:  # a machine without the npm registry
        pytest.skip(str(error))
    out = tmp_path_factory.mktemp("static")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_page, "photographs", lambda: PHOTOS)
        assert write_static_page(out) < 60_000_000
    return out


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Page]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    errors: list[str] = []
    with launched_chromium() as browser:
        opened = browser.new_page()
        opened.set_default_timeout(PAGE_TIMEOUT)
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda line: errors.append(line.text) if line.type == "error" else 0)
        opened.goto(f"http://127.0.0.1:{server.server_port}/")
        opened.wait_for_selector("body[data-ready]")
        yield opened
    server.shutdown()
    assert errors == []


def test_the_page_searches_as_python_does(folder: Path, page: Page) -> None:
    encoder = polyglance.load(threads=1)
    vectors = np.fromfile(folder / "vectors.bin", "<f4").reshape(-1, encoder.width)
    np.testing.assert_array_equal(vectors[:1], encoder.encode_pictures([PHOTOS[0].path]))
    captions = page.locator("#hits p")
    for text in ("a bird on a branch", "雪の中の山"):
        scores = (encoder.encode_texts([text]) @ vectors.T)[0]
        expected = {photo.title: score for photo, score in zip(PHOTOS, scores, strict=True)}
        page.evaluate("document.querySelector('#hits').replaceChildren()")
        page.get_by_role("searchbox").fill(text)
        page.get_by_role("button", name="Search").click()
        expect(captions).to_have_count(len(PHOTOS), timeout=PAGE_TIMEOUT)
        found = [line.split(" · ", 1) for line in captions.all_inner_texts()]
        assert found[0][1] == max(expected, key=lambda title: expected[title])
        # The runtime rounds a query's numbers differently in WebAssembly.
        assert {title: float(score) for score, title in found} == pytest.approx(expected, abs=0.02)
    # The page's networks on the page's own input: a picture that was squeezed by the browser.
    vector = page.evaluate(
        """async () => {
          const { BrowserModel } = await import("./search.js");
          const { settings } = await fetch("model/settings.json")
            .then((answer) => answer.json()).then((settings) => ({ settings }));
          const model = new BrowserModel(settings, null, null);
          const { source } = (await (await fetch("photos.json")).json())[0];
          return [...(await model.encodePicture(await (await fetch(source)).blob()))];
        }"""
    )
    assert cosines(np.array([vector], np.float32), vectors[:1]).min() > 0.99


def test_the_page_s_tokenizer_gives_python_s_ids(page: Page) -> None:
    model = ModelFolder.open()
    tokenizer = UnigramTokenizer(Vocabulary.from_bytes(model.read_file(VOCABULARY)))
    texts = [*many_texts(), "a </s> spelled out", "\ud800 a lone surrogate"]
    found = page.evaluate(
        """async (texts) => {
          const { loadTokenizer } = await import("./tokenizer.js");
          const tokenizer = await loadTokenizer("model/vocabulary.bin.gz");
          return texts.map((text) => tokenizer.encode(text, 64));
        }""",
        texts,
    )
    for text, ids in zip(texts, found, strict=True):
        assert ids == tokenizer.encode(text, 64), ascii(text)


def test_what_the_page_cannot_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="is not the package onnxruntime-web"):
        runtime_folder(tmp_path)
    for name in FILES:
        (tmp_path / name).touch()
    old = Path(__file__).parents[1] / "fixtures" / "model_format_2"
    with pytest.raises(PolyglanceError, match="has an earlier format"):
        write_static_page(tmp_path / "out", model=old, onnxruntime_web=tmp_path)
    done = CliRunner().invoke(app, ["demo", "--onnxruntime-web", str(tmp_path)])
    assert "without --static there is no --onnxruntime-web" in str(done.exception)

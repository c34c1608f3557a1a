"""Load and scroll the web page of a library of 100,000 pictures in Chromium.

    python -m benchmarks.speed.page_scroll

The library is synthetic: the packaged photographs' thumbnails, repeated, with dates over twelve
years. A real ``polyglance serve`` hands it out. The page is loaded several times, in an open tab of
a new browser profile, until the first picture is shown and until all in the window are. Then it is
scrolled from a script, which runs in every frame, at the speeds of reading, of skimming and of a
fling, and by jumps of the scrubber through the whole library. A frame's length is the time between
two animation frames. What other programs take of the cores makes frames longer too, so the CPU time
of the longest task of the page's main thread stands beside it. Frames are short if nothing is
shown, so there is also the share of tiles with pictures while scrolling (of jumps: before the
next), and how long after it the window is full. Takes about two minutes. Writes
results/page_scroll.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import polyglance
from benchmarks.results_io import write_results
from benchmarks.speed.serve_load import serving
from polyglance.demo.photographs import photographs
from polyglance.search.files import make_thumbnail
from polyglance.search.library import Library
from polyglance.search.store import Entry, FileSignature, Item

YEARS = 12
BATCH = 2000
WINDOW = {"width": 1440, "height": 900}
SPEEDS = {"reading": 1_500, "skimming": 6_000, "a fling": 40_000}
"""Pixels a second."""
SLOW_FRAME_MS = 50

SHOWN = """() => document.querySelectorAll("#grid .loaded").length
  / document.querySelectorAll("#grid .tile").length"""
SCROLL = """async ([pixels, seconds]) => {
  const frames = [], shares = [], start = performance.now(), top = scrollY;
  let last = start;
  await new Promise((done) => requestAnimationFrame(function step(now) {
    frames.push(now - last);
    if (frames.length % 15 === 0) shares.push((SHOWN)());
    last = now;
    const share = (now - start) / 1000 / seconds;
    scrollTo(0, top + pixels * Math.min(1, share));
    if (share < 1) requestAnimationFrame(step); else done();
  }));
  return [frames.slice(2), shares];
}""".replace("SHOWN", SHOWN)
IDLE_MS = 600
"""Until the processes of a new tab have started."""
JUMP = """async (jumps) => {
  const frames = [], shares = [], height = document.documentElement.scrollHeight - innerHeight;
  let last = performance.now();
  for (let i = 0; i < jumps; i++) {
    scrollTo(0, height * ((i * 0.618) % 1));
    for (let frame = 0; frame < 12; frame++) {
      await new Promise((done) => requestAnimationFrame((now) => {
        frames.push(now - last);
        last = now;
        done();
      }));
    }
    shares.push((SHOWN)());
  }
  return [frames.slice(2), shares];
}""".replace("SHOWN", SHOWN)
IN_WINDOW = """() => {
  const tiles = [...document.querySelectorAll("#grid .tile")].filter((tile) => {
    const { top, bottom } = tile.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  });
  const lowest = Math.max(...tiles.map((tile) => tile.getBoundingClientRect().bottom));
  return lowest > innerHeight - 100 && tiles.every((tile) => tile.querySelector("img.loaded"));
}"""
"""Whether tiles fill the window, and all have their pictures."""


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=6.0, help="of scrolling, at each speed")
    parser.add_argument("--loads", type=int, default=5, help="how often the page is loaded")
    parser.add_argument("--library", type=Path, help="kept and used again, if given")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        path = options.library or Path(temporary) / "large.polyglance"
        if not path.exists():
            fill(path, options.items)
        load_average = os.getloadavg()[0]
        with serving(path) as (_, port), sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            figures = measure(
                browser, f"http://127.0.0.1:{port}/", loads=options.loads, seconds=options.seconds
            )
            browser.close()
    figures = {"items": options.items, "load_average_before": round(load_average, 1), **figures}
    write_results("page_scroll", figures, options.out)


def fill(path: Path, count: int) -> None:
    """Fill a library with pictures that do not exist, but have thumbnails."""
    shapes, thumbnails = [], []
    for photograph in photographs():
        with Image.open(photograph.path) as picture:
            shapes.append(picture.size)
            thumbnails.append(make_thumbnail(picture.convert("RGB")))
    partial = path.with_name(f"filling-{path.name}")
    rng = np.random.default_rng(0)
    with Library(partial, model=polyglance.load(threads=1).name) as library:
        store = library._store(create=True)
        width = store.model_info.width
        for start in range(0, count, BATCH):
            numbers = range(start, min(count, start + BATCH))
            vectors = rng.standard_normal((len(numbers), width), np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            store.put(entries(numbers, vectors, shapes, thumbnails, count))
    partial.rename(path)


def entries(
    numbers: Sequence[int],
    vectors: np.ndarray[Any, np.dtype[np.float32]],
    shapes: Sequence[tuple[int, int]],
    thumbnails: Sequence[bytes],
    count: int,
) -> Iterator[Entry]:
    """Build entries of pictures over the years, more of them in later ones.

    Args:
        numbers: Numbers of the pictures.
        vectors: ``[len(numbers), width]``.
        shapes: Widths and heights to choose from.
        thumbnails: The thumbnails of these shapes.
        count: Number of pictures in the whole library.
    """
    newest = datetime(2026, 11, 1)
    for number, vector in zip(numbers, vectors, strict=True):
        age = YEARS * 365 * (number / count) ** 1.5
        taken = (newest - timedelta(days=age)).isoformat(timespec="seconds")
        chosen = number * 7919 % len(shapes)
        width, height = (12 * side for side in shapes[chosen])
        item = Item(
            f"/synthetic/{taken[:4]}/{number % 100}/{number}.jpg", "picture",
            FileSignature(number, number), f"{number:032x}", taken, width, height,
        )  # fmt: skip
        yield Entry(item, vector[None], thumbnail=thumbnails[chosen])


def measure(browser: Browser, address: str, *, loads: int, seconds: float) -> dict[str, Any]:
    """Load the page several times, then scroll it.

    Args:
        browser: The browser.
        address: The page.
        loads: How often it is loaded.
        seconds: Seconds of scrolling at each speed.
    """
    first, whole = zip(*(load(browser, address) for _ in range(loads)), strict=True)
    page = open_page(browser, address)
    page.wait_for_function(IN_WINDOW)
    scrolled = {
        name: scroll(browser, page, SCROLL, [speed * seconds, seconds]) | {"pixels_a_second": speed}
        for name, speed in SPEEDS.items()
    }
    scrolled["jumps"] = scroll(browser, page, JUMP, int(seconds * 5))
    return {
        "first_picture_ms": times(first),
        "window_full_ms": times(whole),
        "scrolling": scrolled,
        "nodes": page.evaluate("document.getElementById('grid').querySelectorAll('*').length"),
        "height_pixels": page.evaluate("document.documentElement.scrollHeight"),
    }


def open_page(browser: Browser, address: str) -> Page:
    """Open the page in a new profile, whose empty tab was there before, as a user's is."""
    page = browser.new_context(viewport=WINDOW).new_page()
    page.wait_for_timeout(IDLE_MS)
    page.goto(address, wait_until="commit")
    return page


def load(browser: Browser, address: str) -> tuple[float, float]:
    """Return the milliseconds until the first picture and all in the window are shown."""
    page = open_page(browser, address)
    page.wait_for_selector("img.loaded")
    first = page.evaluate("performance.now()")
    page.wait_for_function(IN_WINDOW)
    whole = page.evaluate("performance.now()")
    page.context.close()
    return first, whole


def scroll(browser: Browser, page: Page, script: str, argument: Any) -> dict[str, Any]:
    """Scroll by a script that returns lengths of frames and shares of pictures; trace tasks."""
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    lengths, shown = page.evaluate(script, argument)
    begin = page.evaluate("performance.now()")
    page.wait_for_function(IN_WINDOW)
    full = page.evaluate("performance.now()") - begin
    frames = np.array(lengths)
    tasks = main_thread_tasks(json.loads(browser.stop_tracing())["traceEvents"])
    return {
        "frames": len(frames),
        "median_ms": round(float(np.median(frames)), 1),
        "p99_ms": round(float(np.percentile(frames, 99)), 1),
        "longest_ms": round(float(frames.max()), 1),
        "over_50_ms": int((frames > SLOW_FRAME_MS).sum()),
        "longest_task_cpu_ms": round(max(tasks), 1),
        "pictures_shown": round(float(np.mean(shown)), 2),
        "window_full_after_ms": round(full, 1),
    }


def main_thread_tasks(events: Sequence[dict[str, Any]]) -> list[float]:
    """Return the CPU milliseconds of the tasks of the thread that ran the page's scripts."""
    scripts = Counter(
        (event["pid"], event["tid"]) for event in events if event["name"] == "FunctionCall"
    )
    ((thread, _),) = scripts.most_common(1)
    return [
        event["tdur"] / 1000
        for event in events
        if event["name"].endswith("RunTask")
        and (event["pid"], event["tid"]) == thread
        and "tdur" in event
    ]


def times(milliseconds: Sequence[float]) -> dict[str, float]:
    """Summarise times."""
    return {
        "median": round(float(np.median(milliseconds)), 1),
        "longest": round(max(milliseconds), 1),
    }


if __name__ == "__main__":
    main()

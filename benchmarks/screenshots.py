"""Photograph the web page for the docs, with the packaged photographs as its library.

    python -m benchmarks.screenshots

Writes docs/images/page-*.webp: the timeline on a desktop, a search in the dark theme, the viewer,
folders in Arabic, and the timeline on a phone.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from benchmarks.results_io import DOCS
from benchmarks.speed.serve_load import serving
from polyglance.demo.photographs import photographs
from polyglance.search.library import Library

FOLDERS = ("Animals", "Cities", "Food", "Journeys", "Mountains", "People")
NEWEST = datetime(2026, 10, 18, 12)
DAYS_BETWEEN = 3
QUALITY = 78


@dataclass(frozen=True)
class Screenshot:
    """A picture of the page at an address."""

    name: str
    address: str
    locale: str = "en-GB"
    size: tuple[int, int] = (1360, 850)
    dark: bool = False
    wait: str = ".tile img.loaded"
    """What the page shows when it is ready."""


SCREENSHOTS = (
    Screenshot("timeline", "/"),
    Screenshot("search-dark", "/?q=ein+Vogel+auf+einem+Ast", locale="de-DE", dark=True),
    Screenshot("viewer", "/?q=a+city+by+the+water&photo={first}", wait="#alike img"),
    Screenshot("arabic", "/", locale="ar"),
    Screenshot("phone", "/", size=(360, 740)),
    Screenshot("phone-dark", "/?view=folders", size=(360, 740), dark=True, wait=".card img"),
)


def main() -> None:
    """Index the photographs, serve them, and photograph the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=DOCS / "images")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        library = index(Path(temporary))
        with serving(library) as (_, port), sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for screenshot in SCREENSHOTS:
                path = options.out / f"page-{screenshot.name}.webp"
                path.write_bytes(photograph(browser, f"http://127.0.0.1:{port}", screenshot))
                print(f"wrote {path}")
            browser.close()


def index(root: Path) -> Path:
    """Copy the photographs into folders, with dates over three years, and index them."""
    photos = root / "Photos"
    for number, photo in enumerate(photographs()):
        path = photos / FOLDERS[number % len(FOLDERS)] / photo.path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(photo.path, path)
        # Many pictures in recent months, some in earlier ones.
        taken = NEWEST - timedelta(days=DAYS_BETWEEN * number + number**2 / 16)
        os.utime(path, (taken.timestamp(), taken.timestamp()))
    with Library(root / "photos.polyglance") as library:
        library.add(photos, thumbnails=True)
    return root / "photos.polyglance"


def photograph(browser: Browser, url: str, screenshot: Screenshot) -> bytes:
    """Return a WebP of the page in a window of the given size."""
    width, height = screenshot.size
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        locale=screenshot.locale,
        color_scheme="dark" if screenshot.dark else "light",
        is_mobile=width < 500,
        has_touch=width < 500,
        device_scale_factor=2 if width < 500 else 1,
    )
    page = context.new_page()
    page.goto(screenshot.address.partition("&photo")[0])
    page.wait_for_selector("body[data-ready]")
    if "{first}" in screenshot.address:
        page.wait_for_selector(".tile img.loaded")
        page.locator(".tile").first.click()
    page.wait_for_selector(screenshot.wait)
    page.wait_for_load_state("networkidle")
    for code in ("ar", "ja", "zh"):  # without a font for it, an example would be empty boxes
        command = ["fc-list", f":lang={code}"]
        if not subprocess.run(command, capture_output=True, check=False).stdout:
            page.evaluate(
                "code => document.querySelector(`#examples [lang=${code}]`)?.parentNode.remove()",
                code,
            )
    png, webp = page.screenshot(), io.BytesIO()
    context.close()
    Image.open(io.BytesIO(png)).convert("RGB").save(webp, "WEBP", quality=QUALITY, method=6)
    return webp.getvalue()


if __name__ == "__main__":
    main()

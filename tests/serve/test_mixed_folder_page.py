"""A newcomer's day in the browser, with a folder of mixed files, from adding it to searching."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from helpers.colour_encoder import ColourEncoder
from helpers.mixed_folder import MixedFolder, write_mixed_folder
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from polyglance.vision import heif, raw
from serve.conftest import page_opener, running_server

NUM_FILES = int(os.environ.get("POLYGLANCE_MIXED_FILES", "120"))
"""Files in the folder; 2000 take about 25 seconds of CPU time."""

pytestmark = pytest.mark.skipif(
    not (heif.can_read_heif() and raw.can_read_raw()), reason="needs the extra photos"
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> MixedFolder:
    """The folder."""
    return write_mixed_folder(tmp_path_factory.mktemp("mixed") / "Pictures", NUM_FILES)


@pytest.fixture
def page(mixed: MixedFolder, browser: Browser) -> Iterator[Page]:
    """The page of a library that is still empty; its model knows colours."""
    with Library(mixed.path.parent / "my.polyglance", model=ColourEncoder()) as library:
        library._store(create=True)
        with running_server(create_app(library)) as url, page_opener(browser, url) as open_page:
            yield open_page("/", viewport={"width": 1280, "height": 900})


def test_a_day_in_the_browser(page: Page, mixed: MixedFolder) -> None:
    total = mixed.pictures + mixed.clips
    status, headings = page.locator("#status"), page.get_by_role("rowheader")

    # Index: the empty page leads to the folders of the machine; a folder that is added is scanned.
    page.locator("#welcome").get_by_role("link", name="Add pictures").click()
    page.get_by_role("button", name="Choose a folder").click()
    path = page.get_by_role("textbox", name="Path of the folder")
    expect(path).not_to_have_value("")
    path.fill(str(mixed.path.parent))
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator("#chooser-list").get_by_role("button", name="Pictures", exact=True).click()
    expect(path).to_have_value(str(mixed.path))
    page.get_by_role("button", name="Add this folder").click()
    expect(page.locator("#scan-status")).to_have_text("The scan is complete.")
    expect(page.locator("#scan-counts")).to_contain_text(f"Added: {total:,}")
    expect(page.locator("#library-size")).to_contain_text(f"{mixed.pictures:,} pictures")

    # What cannot be read is listed whole, with reasons.
    unreadable = page.get_by_role("list", name=f"{len(mixed.bad)} files could not be read")
    expect(unreadable).to_be_visible()
    while page.locator("#unreadable-more").is_visible():
        listed = unreadable.get_by_role("listitem").count()
        page.locator("#unreadable-more").click()
        expect(unreadable.get_by_role("listitem").nth(listed)).to_be_attached()
    lines = [line.inner_text().split("\n") for line in unreadable.get_by_role("listitem").all()]
    assert {Path(line[0]).name for line in lines} == mixed.bad
    assert all(reason for _, reason in lines)

    # Browse: the timeline has the newest first and leads down to the oldest.
    page.get_by_role("link", name="Photos").click()
    expect(status).to_have_text(f"{total:,} items")
    page.get_by_role("slider", name="Date").press("End")
    expect(page.get_by_role("rowheader", name="June 2022")).to_be_in_viewport()
    expect(tile(page, total - 1).locator("img.loaded")).to_be_visible()
    assert page.locator(".tile").count() < 250, "only those near the window exist"
    page.get_by_role("link", name="Recently added").click()
    expect(tile(page, 0).locator("img.loaded")).to_be_visible()

    # A folder that is chosen shows its pictures.
    page.get_by_role("link", name="Folders").click()
    page.locator(".card", has_text="blue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("blue")
    expect(status).to_have_text(f"{files_in(mixed.path / 'blue')} items")

    # Filters work without words.
    page.locator("#folder").select_option("")
    page.get_by_role("radio", name="Clips").check()
    expect(status).to_have_text(f"{mixed.clips} items")
    page.get_by_role("radio", name="Pictures").check()
    expect(status).to_have_text(f"{mixed.pictures:,} items")
    page.get_by_label("To", exact=True).fill("2022-12-31")
    expect(headings.first).to_have_text("December 2022")
    page.get_by_role("button", name="Clear all").click()
    expect(status).to_have_text(f"{total:,} items")

    # A picture of a phone, one of a camera and a clip: each has an address, and Back closes it.
    page.goto("/?folder=Pictures%2Fgreen&since=2024-06")
    for name in ("IMG_0001.HEIC", "IMG_0001.DNG", "IMG_0001.MOV"):
        page.get_by_role("link", name=re.compile(re.escape(name))).click()
        page.wait_for_url("**&photo=*")
        page.reload()
        expect(page.get_by_role("dialog", name=name)).to_be_visible()
        if name.endswith("MOV"):
            page.wait_for_function("() => document.querySelector('video')?.currentTime > 0.1")
        else:  # first its thumbnail, then the picture in a format that browsers show
            expect(page.locator(".frame img[src$='/picture']")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("dialog")).to_be_hidden()
        assert "photo" not in page.url

    # Search in two languages, and by a picture of the library; what looks the same is stacked.
    page.get_by_role("link", name="Polyglance").click()
    best = tile(page, 0).locator("img.loaded")
    for words, colour in (("grün", "green"), ("أزرق", "blue")):
        page.get_by_role("searchbox").fill(words)
        page.keyboard.press("Enter")
        expect(best).to_have_attribute("alt", re.compile(rf"in Pictures/{colour}, \d+ pictures"))
        expect(page).to_have_title(re.compile(words))
    tile(page, 0).click()
    page.get_by_role("button", name="More like this").click()
    expect(page.locator(".chip img")).to_be_visible()
    expect(tile(page, 0)).to_be_focused()
    expect(best).to_have_attribute("alt", re.compile(r"in Pictures/blue, \d+ pictures"))


def tile(page: Page, index: int) -> Locator:
    return page.locator(f'.tile[data-index="{index}"]')


def files_in(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())

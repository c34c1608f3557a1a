"""Browsing in a real browser: the timeline, folders, the viewer, and adding folders."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from benchmarks.speed.page_scroll import IN_WINDOW
from helpers.colour_encoder import ColourEncoder, write_image
from polyglance.demo.photographs import FOLDER
from polyglance.search.library import Library
from polyglance.serve.app import create_app
from serve.conftest import running_server

Open = Callable[..., Page]
SHAPES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def tile(page: Page, index: int) -> Locator:
    return page.locator(f'.tile[data-index="{index}"]')


def scrolled(page: Page) -> float:
    return float(page.evaluate("scrollY"))


def test_timeline_folders_and_recently_added(open_page: Open) -> None:
    page = open_page()
    months = page.get_by_role("rowheader")
    expect(months.first).to_have_text("March 2024")
    expect(tile(page, 0).locator("img.loaded")).to_be_visible()
    scrubber = page.get_by_role("slider", name="Date")
    expect(scrubber).to_have_attribute("aria-valuetext", "March 2024")
    scrubber.focus()
    page.keyboard.press("End")
    expect(page.get_by_role("rowheader", name="July 2023")).to_be_in_viewport()
    before = scrolled(page)
    assert before > 0
    page.get_by_role("link", name="Folders").click()
    expect(page.locator(".card")).to_have_count(2)
    expect(page.get_by_role("link", name=re.compile("holiday"))).to_contain_text("32 files")
    page.get_by_role("link", name=re.compile("holiday")).click()
    expect(page.locator("#status")).to_have_text("32 items")
    page.locator(".card", has_text="animals").click()
    expect(page.locator("#status")).to_have_text("18 items")
    expect(page.get_by_role("navigation", name="Path of the folder")).to_contain_text("holiday")
    expect(page.locator("#folder")).to_have_value("holiday/animals")
    page.get_by_role("link", name="Recently added").click()
    expect(page.locator("#status")).to_have_text("33 items")
    expect(months.first).to_have_text(re.compile(r"\d+ \w+ 20\d\d"))  # the day of the scan
    for _ in range(4):
        page.go_back()
    expect(page.get_by_role("heading", name="Photos")).to_be_visible()
    page.wait_for_function("before => Math.abs(scrollY - before) < 2", arg=before)


def test_every_picture_has_an_address_and_back_closes_it(open_page: Open) -> None:
    page = open_page()
    tile(page, 2).click()
    dialog, heading = page.get_by_role("dialog"), page.locator("#viewer-name")
    expect(dialog).to_be_visible()
    name = heading.inner_text()
    page.wait_for_url("**/?photo=*")
    address = page.url
    page.keyboard.press("ArrowRight")  # takes the place of the address
    page.wait_for_url(lambda url: url != address)
    second = heading.inner_text()
    page.go_back()
    expect(dialog).to_be_hidden()
    assert "photo" not in page.url
    expect(tile(page, 3)).to_be_focused()
    page.go_forward()
    expect(heading).to_have_text(second)
    expect(page.locator("#alike img").first).to_be_visible()
    page.locator("#alike a").first.click()  # a similar one has its own entry
    expect(heading).not_to_have_text(second)
    page.keyboard.press("Escape")  # closes all of them
    expect(dialog).to_be_hidden()
    assert "photo" not in page.url
    page.goto(address)  # a link that somebody sent
    expect(heading).to_have_text(name)
    expect(page.get_by_role("button", name="Next")).to_be_enabled()
    page.get_by_role("button", name="Previous").click()
    expect(heading).not_to_have_text(name)
    page.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    expect(tile(page, 1)).to_be_focused()


def test_details_download_and_zoom(open_page: Open, photos: Path) -> None:
    page = open_page("/?folder=holiday/animals")
    page.route("**/api/items/*/details", lambda route: route.fulfill(json=details(route)))
    page.route("**/api/items/*/reveal", lambda route: route.fulfill(status=204))
    tile(page, 0).click()
    facts = page.locator("#viewer-facts")
    expect(facts).to_contain_text("5 March 2024")
    expect(facts).to_contain_text("Pixel 8")
    expect(facts.get_by_role("link", name="Roma")).to_have_attribute("href", "/?place=Roma")
    expect(facts).to_contain_text("1.23 MB")
    name = page.locator("#viewer-name").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == (photos / "holiday/animals" / name).read_bytes()
    with page.expect_request("**/reveal") as revealed:
        page.get_by_role("button", name="Open its folder").click()
    assert revealed.value.method == "POST"

    def scale() -> float:
        matrix = page.locator(".frame").evaluate("frame => getComputedStyle(frame).transform")
        return 1.0 if matrix == "none" else float(matrix.split("(")[1].split(",")[0])

    page.mouse.move(400, 400)
    page.mouse.wheel(0, -300)
    page.wait_for_function("document.querySelector('.stage').classList.contains('zoomed')")
    zoomed = scale()
    assert zoomed > 1.5
    page.mouse.down()
    page.mouse.move(300, 400, steps=3)
    page.mouse.up()
    expect(page.locator("#viewer-name")).to_have_text(name)  # dragging moves the zoomed picture
    page.keyboard.press("0")
    assert scale() == 1
    page.get_by_role("button", name="Zoom").click()
    assert scale() == pytest.approx(2.5)
    page.keyboard.press("0")
    page.mouse.move(500, 400)
    page.mouse.down()
    page.mouse.move(300, 410, steps=4)
    page.mouse.up()
    expect(page.locator("#viewer-name")).not_to_have_text(name)  # swiped to the next
    page.mouse.move(500, 300)
    page.mouse.down()
    page.mouse.move(505, 500, steps=4)
    page.mouse.up()
    expect(page.get_by_role("dialog")).to_be_hidden()  # swiped down


def details(route: Route) -> dict[str, Any]:
    known = route.fetch().json()
    return known | {"camera": "Pixel 8", "place": "Roma", "bytes": 1_230_000}


def test_two_fingers_zoom(open_page: Open) -> None:
    page = open_page(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tile(page, 0).tap()
    expect(page.locator(".frame > img")).to_be_visible()
    page.evaluate(
        """() => {
          const stage = document.getElementById("stage");
          stage.setPointerCapture = () => {};
          const send = (type, pointerId, clientY) => stage.dispatchEvent(new PointerEvent(type,
            { pointerId, clientX: 180, clientY, bubbles: true, pointerType: "touch" }));
          send("pointerdown", 1, 350);
          send("pointerdown", 2, 390);
          for (let i = 0; i <= 100; i += 20) send("pointermove", 2, 390 + i);
          send("pointerup", 1, 350);
          send("pointerup", 2, 490);
        }"""
    )
    matrix = page.locator(".frame").evaluate("frame => getComputedStyle(frame).transform")
    assert float(matrix.split("(")[1].split(",")[0]) == pytest.approx(3.5, abs=0.1)
    expect(page.get_by_role("dialog")).to_be_visible()


def test_a_clip_plays_the_segment_that_was_found(open_page: Open) -> None:
    page = open_page("/?q=an+orchestra+plays&kind=clip")
    expect(page.locator(".badge")).to_contain_text("0:03–0:06")
    page.locator(".tile").click()
    page.wait_for_function("() => document.querySelector('video')?.currentTime > 3.1")
    assert page.evaluate("document.querySelector('video').currentTime") < 6
    page.evaluate("document.querySelector('video').playbackRate = 2")
    page.wait_for_function("() => document.querySelector('video').paused")
    assert page.evaluate("document.querySelector('video').currentTime") >= 6
    assert not page.evaluate("document.querySelector('video').ended")
    page.get_by_role("button", name="Play this segment").click()
    page.wait_for_function("() => document.querySelector('video').currentTime < 6")
    page.keyboard.press("Escape")
    expect(page.locator("video")).to_have_count(0)


def test_a_hundred_thousand_pictures_take_few_nodes(open_page: Open) -> None:
    total, months = 100_000, 100
    webp = (FOLDER / "owl.webp").read_bytes()

    def item(rank: int) -> dict[str, Any]:
        return {
            "id": rank + 1, "rank": rank, "kind": "picture", "name": f"{rank}.jpg", "folder": "f",
            "taken": "2024-01-01T00:00:00+00:00", "width": 300, "height": 200, "seconds": None,
            "span": None, "stack": 1,
        }  # fmt: skip

    def page_of_items(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        start, limit = int(query["offset"][0]), int(query["limit"][0])
        items = [item(rank) for rank in range(start, min(total, start + limit))]
        route.fulfill(json={"snapshot": "s", "total": total, "offset": start, "items": items})

    shape = SHAPES[round(32 + 16 * math.log2(1.5))]
    buckets = [
        {
            "date": f"{2024 - i // 12}-{12 - i % 12:02}", "count": total // months,
            "offset": i * total // months, "shapes": shape * (total // months),
        }
        for i in range(months)
    ]  # fmt: skip
    page = open_page("/?view=folders")
    page.route(
        "**/api/timeline?*",
        lambda route: route.fulfill(json={"snapshot": "s", "total": total, "buckets": buckets}),
    )
    page.route("**/api/items?*", page_of_items)
    page.route("**/thumbnail?*", lambda route: route.fulfill(body=webp, content_type="image/webp"))
    page.get_by_role("link", name="Photos").click()
    expect(tile(page, 0).locator(".name")).to_have_text("0.jpg")
    grid = page.get_by_role("grid")
    assert int(grid.get_attribute("aria-rowcount") or 0) > 10_000
    tile(page, 0).focus()
    page.keyboard.press("Control+End")
    expect(tile(page, total - 1)).to_be_focused()
    expect(tile(page, total - 1).locator(".name")).to_have_text("99999.jpg")
    assert tile(page, total - 1).bounding_box()["y"] < page.viewport_size["height"]  # type: ignore[index]
    assert page.locator(".tile").count() < 150
    row = tile(page, total - 1).locator("xpath=ancestor::*[@role='row']")
    assert row.get_attribute("aria-rowindex") == grid.get_attribute("aria-rowcount")
    box = page.locator("#scrubber").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    middle = page.locator(".tile").first
    page.wait_for_function(
        "() => { const first = [...document.querySelectorAll('.tile[data-id]')]"
        ".map((tile) => Number(tile.dataset.index)).sort((a, b) => a - b)[1];"
        " return first > 40000 && first < 60000 }"
    )
    expect(middle).to_be_attached()
    assert page.locator(".tile").count() < 150
    page.wait_for_function(IN_WINDOW)  # all pictures, once the page lies still
    page.wait_for_function(  # and rows that were used again are in order for screen readers
        "() => { const rows = [...document.querySelectorAll('#grid > [role=row]')]"
        ".map((row) => Number(row.ariaRowIndex));"
        " return rows.every((row, i) => !i || row > rows[i - 1]) }"
    )


@pytest.fixture(scope="module")
def empty_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address of a server with an empty library, and a folder of three files, one broken."""
    root = tmp_path_factory.mktemp("adding")
    folder = root / "pictures"
    folder.mkdir()
    for colour in ("red", "green"):
        write_image(folder / f"{colour}.png", colour)
    (folder / "broken.jpg").write_bytes(b"no picture")
    with Library(root / "new.polyglance", model=ColourEncoder()) as library:
        library._store(create=True)
        with running_server(create_app(library)) as url:
            yield url, folder


def test_folders_are_added_on_the_machine_itself(
    open_page: Open, empty_url: tuple[str, Path], violations: Callable[..., list[str]]
) -> None:
    url, folder = empty_url
    page = open_page(f"{url}/", bypass_csp=True)
    expect(page.locator("#welcome")).to_contain_text("still empty")
    page.locator("#welcome-add").click()
    expect(page.locator("#sources-none")).to_be_visible()
    page.get_by_role("button", name="Choose a folder").click()
    path = page.get_by_role("textbox", name="Path of the folder")
    expect(path).not_to_have_value("")
    page.evaluate("window.sent = fetch; fetch = async () => new Response('{}', {status: 404})")
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page.locator("#chooser-problem")).to_contain_text("cannot be read")
    page.evaluate("() => { fetch = window.sent; }")
    path.fill(str(folder.parent))
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator("#chooser-list").get_by_role("button", name="pictures", exact=True).click()
    expect(path).to_have_value(str(folder))
    assert violations(page) == []
    page.get_by_role("button", name="Add this folder").click()
    expect(page.locator("#sources")).to_contain_text(str(folder))
    expect(page.locator("#scan-status")).to_have_text("The scan is complete.")
    expect(page.locator("#scan-counts")).to_contain_text("Added: 2")
    expect(page.locator("#unreadable-list")).to_contain_text("broken.jpg")
    expect(page.locator("#sources")).to_contain_text("2 files")
    assert violations(page) == []
    page.get_by_role("link", name="Photos").click()
    expect(page.locator("#status")).to_have_text("2 items")
    page.get_by_role("link", name="Add pictures").click()
    page.on("dialog", lambda question: question.accept())
    page.get_by_role("button", name=re.compile("^Remove")).click()
    expect(page.locator("#sources-none")).to_be_visible()

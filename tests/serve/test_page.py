"""The page in a real browser: with a mouse, with the keyboard alone, and on a phone."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from polyglance.demo.photographs import FOLDER
from polyglance.serve.page import LANGUAGES, page_files

Open = Callable[..., Page]
Violations = Callable[..., list[str]]


def search(page: Page, words: str) -> None:
    page.get_by_role("searchbox").fill(words)
    page.keyboard.press("Enter")
    page.wait_for_function("words => document.title.startsWith(words)", arg=words)
    page.wait_for_selector("body:not(.busy) .tile")


def names(page: Page, count: int = 100) -> list[str]:
    """Return the file names of the first hits, in order."""
    shown = page.locator(".tile .name").all_text_contents()
    return [name.partition(".")[0] for name in shown[:count]]


def upload(name: str) -> dict[str, str]:
    """Return a photograph as `DISPATCH` takes it."""
    data = base64.b64encode((FOLDER / f"{name}.webp").read_bytes()).decode()
    return {"name": f"{name}.webp", "data": data}


DISPATCH = """([kind, {name, data}]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, {type: "image/webp"}));
  const event = kind === "paste"
    ? new ClipboardEvent("paste", {clipboardData: transfer, bubbles: true, cancelable: true})
    : new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true});
  document.body.dispatchEvent(event);
}"""


@pytest.mark.parametrize(
    ("locale", "words", "expected", "status"),
    [
        ("de-AT", "zwei Giraffen zwischen Bäumen", "giraffes", "33 Ergebnisse"),
        ("zh-CN", "夜晚水边的高楼大厦", "city-night", "33 个结果"),
        ("ar-EG", "زرافتان بين الأشجار", "giraffes", "33 نتيجة"),
    ],
)
def test_search_and_interface_in_several_languages(
    open_page: Open, locale: str, words: str, expected: str, status: str
) -> None:
    page = open_page(locale=locale)
    search(page, words)
    assert expected in names(page, 3)
    expect(page.get_by_role("status")).to_have_text(status)
    code = locale.partition("-")[0]
    assert page.evaluate("document.documentElement.lang") == code
    assert page.evaluate("document.documentElement.dir") == ("rtl" if code == "ar" else "ltr")
    first, second = (page.locator(".tile").nth(i).bounding_box() for i in (0, 1))
    assert first is not None
    assert second is not None
    assert (first["x"] > second["x"]) == (code == "ar")


def test_the_interface_has_every_language(open_page: Open) -> None:
    page = open_page(locale="fi-FI")  # not an interface language
    assert page.evaluate("document.documentElement.lang") == "en"
    headings = set()
    for code in LANGUAGES:
        page.get_by_role("combobox").first.select_option(code)
        page.wait_for_function("code => document.documentElement.lang === code", arg=code)
        headings.add(page.locator("#welcome h2").inner_text())
    assert len(headings) == len(LANGUAGES)
    page.reload()
    expect(page.locator("html")).to_have_attribute("lang", "ar")  # the choice is remembered


def test_search_by_a_dropped_and_a_pasted_picture(open_page: Open) -> None:
    page = open_page()
    page.evaluate(DISPATCH, ["dragover", upload("penguin")])
    expect(page.locator("#drop")).to_be_visible()
    page.evaluate(DISPATCH, ["drop", upload("penguin")])
    expect(page.locator(".tile .name").first).to_have_text("penguin.webp")
    expect(page.locator("#drop")).to_be_hidden()
    expect(page.locator(".chip img")).to_have_js_property("naturalWidth", 320)
    page.get_by_role("button", name=re.compile("^Remove")).click()
    expect(page.locator("#welcome")).to_be_visible()
    page.evaluate(DISPATCH, ["paste", upload("owl")])
    expect(page.locator(".tile .name").first).to_have_text("owl.webp")


def test_an_unreadable_picture_is_reported_in_the_users_language(open_page: Open) -> None:
    page = open_page(locale="de-DE")
    page.evaluate("fetch = async () => new Response('{}', {status: 415})")
    page.locator("#file").set_input_files(FOLDER / "owl.webp")
    expect(page.get_by_role("alert")).to_contain_text("nicht als Bild lesen")


def test_a_failed_search_clears_the_previous_hits(open_page: Open) -> None:
    page = open_page("/?q=a+dog")
    page.evaluate("fetch = async () => new Response('{}', {status: 503})")
    page.get_by_role("searchbox").fill("a cat")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Try again in a moment")
    expect(page.locator(".tile")).to_have_count(0)


def test_filters_and_excluded_words(open_page: Open) -> None:
    page = open_page("/?q=a+city")
    page.get_by_role("radio", name="Clips").check()
    expect(page.locator(".tile")).to_have_count(1)
    page.get_by_role("radio", name="All").check()
    page.get_by_label("Folder").select_option("holiday/animals")
    expect(page.locator(".tile")).to_have_count(18)
    page.get_by_label("From").fill("2200-01-01")
    expect(page.get_by_role("status")).to_contain_text("Nothing was found")
    assert "since=2200-01-01" in page.url
    page.get_by_role("button", name="Clear all").click()
    expect(page.locator(".tile")).to_have_count(33)
    before = names(page, 10)
    page.get_by_label("Without", exact=True).fill("night")
    page.keyboard.press("Enter")
    expect(page.locator(".chip.excluded")).to_contain_text("night")
    page.wait_for_selector("body:not(.busy) .tile")
    assert names(page, 10) != before
    page.go_back()
    expect(page.locator(".chip")).to_have_count(0)
    expect(page.locator(".tile .name").first).to_have_text(f"{before[0]}.webp")


def test_keyboard_alone_suffices(open_page: Open) -> None:
    page = open_page()
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("/")
    page.keyboard.type("a horse")
    page.keyboard.press("Enter")
    expect(page.locator(".tile .name").first).to_have_text("horse.webp")
    page.keyboard.press("ArrowDown")

    def focused() -> int:
        script = "[...document.querySelectorAll('.tile')].indexOf(document.activeElement)"
        return int(page.evaluate(script))

    assert focused() == 0
    page.keyboard.press("ArrowRight")
    assert focused() == 1
    page.keyboard.press("ArrowDown")
    below = focused()
    assert below > 2
    page.keyboard.press("ArrowUp")
    assert focused() in (0, 1, 2)
    page.keyboard.press("End")
    assert focused() == 32
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_role("heading")).to_have_text("horse.webp")
    expect(dialog.get_by_role("heading")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(dialog.get_by_role("heading")).not_to_have_text("horse.webp")
    for _ in range(12):  # focus stays in the dialog
        page.keyboard.press("Tab")
        inside = (
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator(".tile").nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_adding_and_excluding_pictures(open_page: Open) -> None:
    page = open_page("/?q=a+dog")
    first = names(page, 1)[0]
    page.locator(".tile").first.click()
    page.get_by_role("button", name="Less like this").click()
    expect(page.locator(".chip.excluded img")).to_be_visible()
    expect(page.locator(".tile .name").first).not_to_have_text(f"{first}.webp")
    expect(page.locator(".tile").first).to_be_focused()
    page.get_by_role("button", name="Excluded. Press to include.").click()
    expect(page.locator(".tile .name").first).to_have_text(f"{first}.webp")
    page.locator(".tile").nth(1).click()
    page.get_by_role("button", name="More like this").click()
    expect(page.locator(".chip")).to_have_count(1)
    expect(page.get_by_role("searchbox")).to_have_value("")


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


def test_rows_fill_the_width_and_keep_aspect_ratios(open_page: Open) -> None:
    page = open_page("/?q=a+dog", viewport={"width": 1280, "height": 900})
    boxes = page.evaluate(
        "[...document.querySelectorAll('.tile')].map((tile) => {"
        " const {top, right, width, height} = tile.getBoundingClientRect();"
        " const image = tile.querySelector('img');"
        " return {top, right, width, height, id: tile.dataset.id} })"
    )
    edge = page.evaluate("document.querySelector('#grid').getBoundingClientRect().right")
    rows: dict[float, list[dict[str, float]]] = {}
    for box in boxes:
        rows.setdefault(box["top"], []).append(box)
    for row in list(rows.values())[:-1]:
        assert row[-1]["right"] == pytest.approx(edge, abs=1)
        assert len({box["height"] for box in row}) == 1
    for box in boxes[::5]:
        item = page.evaluate("id => fetch(`/api/items/${id}`).then((a) => a.json())", box["id"])
        assert box["width"] / box["height"] == pytest.approx(
            item["width"] / item["height"], rel=0.06
        )


def test_a_phone_needs_no_horizontal_scrolling(open_page: Open) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = open_page("/?q=" + "一只狗", locale="zh-TW", **phone)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".tile").first.tap()
    for button in ("#close", "#similar", "#original"):
        box = page.locator(button).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["y"] + box["height"] <= 740
        assert box["height"] >= 24
    page.locator("#close").tap()
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_light_and_dark_theme(open_page: Open) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    page = open_page(color_scheme="dark")
    dark = page.evaluate(paper)
    switch = page.get_by_role("button", name=re.compile("^Appearance"))
    switch.click()
    expect(switch).to_have_accessible_name("Appearance: light")
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    assert page.evaluate(paper) == light


# The schemes differ in their colours only.
@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))])
def test_axe_finds_no_violations(
    open_page: Open, violations: Violations, scheme: str, rules: tuple[str, ...]
) -> None:
    page = open_page("/", color_scheme=scheme, bypass_csp=True)
    assert violations(page, *rules) == []
    page.goto("/?q=a+horse&like=1&not=people")
    page.wait_for_selector("body[data-ready] .tile")
    assert violations(page, *rules) == []
    page.locator(".tile").first.click()
    assert violations(page, *rules) == []


def test_messages_are_complete_in_every_language() -> None:
    texts = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for address, path in page_files().items()
        if address.startswith("/messages/")
    }
    assert set(texts) == set(LANGUAGES)

    def placeholders(message: str | dict[str, str]) -> set[str]:
        text = message["other"] if isinstance(message, dict) else message
        return set(re.findall(r"\{\w+\}", text))

    for code, messages in texts.items():
        assert messages.keys() == texts["en"].keys(), code
        for key, message in messages.items():
            assert placeholders(message) == placeholders(texts["en"][key]), (code, key)
    forms = {code: set(messages["count"]) for code, messages in texts.items()}
    assert forms["ar"] == {"zero", "one", "two", "few", "many", "other"}
    assert {"one", "few", "other"} <= forms["cs"]
    used = "".join(
        path.read_text(encoding="utf-8")
        for path in page_files().values()
        if path.suffix in (".js", ".html")
    )
    assert [key for key in texts["en"] if f'"{key}"' not in used] == []

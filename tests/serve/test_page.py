"""The page in a real browser: with a mouse, with the keyboard alone, and on a phone."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from polyglance.demo.photographs import FOLDER
from polyglance.serve.page import HOME_REQUESTS, LANGUAGES, interface_languages, page_files

Open = Callable[..., Page]
Violations = Callable[..., list[str]]


def search(page: Page, words: str, wait: str = ".tile") -> None:
    page.get_by_role("searchbox").fill(words)
    page.keyboard.press("Enter")
    page.wait_for_function("words => document.title.startsWith(words)", arg=words)
    page.wait_for_selector(f"body:not(.busy) {wait}")


def tile(page: Page, index: int) -> Locator:
    """Return the tile of an item; tiles that are used again do not keep their order."""
    return page.locator(f'.tile[data-index="{index}"]')


def names(page: Page, count: int = 100) -> list[str]:
    """Return the file names of the first hits, in order."""
    shown = page.evaluate(
        "[...document.querySelectorAll('.tile')].sort((a, b) => a.dataset.index - b.dataset.index)"
        ".map((tile) => tile.querySelector('.name').textContent)"
    )
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
        ("de-AT", "zwei Giraffen zwischen Bäumen", "giraffes", "Ergebnis"),
        ("ar-EG", "زرافتان بين الأشجار", "giraffes", "نت"),
    ],
)
def test_search_and_interface_in_several_languages(
    open_page: Open, locale: str, words: str, expected: str, status: str
) -> None:
    page = open_page(locale=locale)
    search(page, words)
    assert expected in names(page, 3)
    expect(page.locator("#status")).to_contain_text(status)
    code = locale.partition("-")[0]
    assert page.evaluate("document.documentElement.lang") == code
    assert page.evaluate("document.documentElement.dir") == ("rtl" if code == "ar" else "ltr")
    first, second = (tile(page, i).bounding_box() for i in (0, 1))
    assert first is not None
    assert second is not None
    assert (first["x"] > second["x"]) == (code == "ar")


def test_the_interface_has_every_language(open_page: Open) -> None:
    page = open_page(locale="fi-FI")  # not an interface language
    assert page.evaluate("document.documentElement.lang") == "en"
    texts = set()
    for code in LANGUAGES:
        page.locator("#language").select_option(code)
        page.wait_for_function("code => document.documentElement.lang === code", arg=code)
        texts.add(page.locator("#views").inner_text() + page.locator(".heading").first.inner_text())
    assert len(texts) == len(LANGUAGES)
    page.reload()
    expect(page.locator("html")).to_have_attribute("lang", "ar")  # the choice is remembered


def test_the_home_asks_for_its_pictures_once_and_at_once(open_page: Open) -> None:
    page = open_page(locale="de-DE")
    started = page.evaluate(
        "performance.getEntriesByType('resource')"
        ".map(({name, startTime}) => [name.replace(location.origin, ''), startTime])"
    )
    times = {url: [time for name, time in started if name == url] for url, _ in started}
    (script,) = times["/app.js"]
    for url in (*HOME_REQUESTS, "/messages/de.json"):
        (asked,) = times[url]  # once: the page asks for what the server told the browser to load
        assert asked <= script, url
    panels = times["/viewer.js"][0]  # not needed for the first pictures
    assert panels > min(time for url, _ in started for time in times[url] if "thumbnail" in url)
    offered = page.locator("#language option").evaluate_all(
        "options => options.map(({value, textContent, dir}) => [value, textContent, dir])"
    )
    assert [tuple(one) for one in offered] == [
        (one["code"], one["name"], one["direction"]) for one in interface_languages()
    ]


def test_search_by_a_dropped_and_a_pasted_picture(open_page: Open) -> None:
    page = open_page()
    page.evaluate(DISPATCH, ["dragover", upload("penguin")])
    expect(page.locator("#drop")).to_be_visible()
    page.evaluate(DISPATCH, ["drop", upload("penguin")])
    expect(tile(page, 0).locator(".name")).to_have_text("penguin.webp")
    expect(page.locator("#drop")).to_be_hidden()
    expect(page.locator(".chip img")).to_have_js_property("naturalWidth", 320)
    page.get_by_role("button", name=re.compile("^Remove")).click()
    expect(page.get_by_role("heading", name="Photos")).to_be_visible()  # the timeline
    page.evaluate(DISPATCH, ["paste", upload("owl")])
    expect(tile(page, 0).locator(".name")).to_have_text("owl.webp")


def test_errors_are_reported_in_the_users_language(open_page: Open) -> None:
    page = open_page("/?q=a+dog", locale="de-DE")
    page.evaluate("fetch = async () => new Response('{}', {status: 415})")
    page.locator("#file").set_input_files(FOLDER / "owl.webp")
    expect(page.get_by_role("alert")).to_contain_text("nicht als Bild lesen")
    page.evaluate("fetch = async () => new Response('{}', {status: 503})")
    page.get_by_role("searchbox").fill("a cat")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("gleich noch einmal")
    expect(page.locator(".tile")).to_have_count(0)  # those of the search before


def test_filters_work_with_words_and_without(open_page: Open) -> None:
    page = open_page("/?folder=films")
    expect(page.locator(".tile")).to_have_count(1)
    page.get_by_role("button", name="Clear all").click()
    expect(page.locator("#status")).to_have_text("33 items")
    page.get_by_label("To", exact=True).fill("2023-12-31")
    expect(page.locator("#status")).to_have_text("15 items")
    page.get_by_label("From", exact=True).fill("2023-12-01")
    expect(page.locator("#status")).to_contain_text("nothing here")
    page.goto("/?q=a+city")
    page.get_by_role("radio", name="Clips").check()
    expect(page.locator(".tile")).to_have_count(1)
    page.get_by_role("radio", name="All").check()
    page.locator("#folder").select_option("holiday/animals")
    expect(page.locator(".tile .name", has_text="castle")).to_have_count(0)
    assert "folder=holiday%2Fanimals" in page.url
    page.get_by_role("button", name="Clear all").click()
    expect(page.locator(".tile .name", has_text="city")).to_have_count(2)
    before = names(page, 10)
    page.get_by_label("Without", exact=True).fill("night")
    page.keyboard.press("Enter")
    expect(page.locator(".chip.excluded")).to_contain_text("night")
    page.wait_for_selector("body:not(.busy) .tile")
    assert names(page, 10) != before
    page.get_by_role("searchbox").fill("")  # what remains is what is not wanted
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Results")).to_be_visible()
    page.wait_for_selector("body:not(.busy) .tile")
    assert "city-night" not in names(page, 10)
    page.go_back()
    page.go_back()
    expect(page.locator(".chip")).to_have_count(0)
    expect(tile(page, 0).locator(".name")).to_have_text(f"{before[0]}.webp")


def test_keyboard_alone_suffices(open_page: Open) -> None:
    page = open_page()
    page.locator("body").click(position={"x": 5, "y": 800})
    page.keyboard.press("/")
    page.keyboard.type("a horse")
    page.keyboard.press("Enter")
    expect(tile(page, 0).locator(".name")).to_have_text("horse.webp")
    page.keyboard.press("ArrowDown")

    def focused() -> int:
        return int(page.evaluate("document.activeElement.dataset.index"))

    assert focused() == 0
    page.keyboard.press("ArrowRight")
    assert focused() == 1
    page.keyboard.press("ArrowDown")
    assert focused() > 2
    page.keyboard.press("ArrowUp")
    assert focused() in (0, 1, 2)
    page.keyboard.press("Control+End")
    assert focused() > 3
    page.keyboard.press("Control+Home")
    page.keyboard.press("End")  # of the row
    assert focused() in (2, 3, 4, 5, 6)
    page.keyboard.press("Home")
    assert focused() == 0
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    heading = page.locator("#viewer-name")
    expect(heading).to_have_text("horse.webp")
    expect(heading).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(heading).not_to_have_text("horse.webp")
    for _ in range(12):  # focus stays in the dialog
        page.keyboard.press("Tab")
        inside = (
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(tile(page, 1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_adding_and_excluding_pictures(open_page: Open) -> None:
    page = open_page("/?q=ein+Haustier")
    first = names(page, 1)[0]
    tile(page, 0).click()
    page.get_by_role("button", name="Less like this").click()
    expect(page.locator(".chip.excluded img")).to_be_visible()
    expect(tile(page, 0).locator(".name")).not_to_have_text(f"{first}.webp")
    expect(tile(page, 0)).to_be_focused()
    page.get_by_role("button", name="Excluded. Press to include.").click()
    expect(tile(page, 0).locator(".name")).to_have_text(f"{first}.webp")
    tile(page, 1).click()
    page.get_by_role("button", name="More like this").click()
    expect(page.locator(".chip")).to_have_count(1)
    expect(page.get_by_role("searchbox")).to_have_value("")


def test_less_certain_hits_are_behind_a_button(open_page: Open) -> None:
    page = open_page()
    fold, fits = 3, True

    def patched(route: Route) -> None:
        answer = route.fetch(url=route.request.url.partition("&off=")[0]).json()
        for i, hit in enumerate(answer["hits"]):
            hit |= {"probability": 0.9**i, "stack": 1 + (i == 1)}
        answer |= {
            "fold": fold, "fits": fits, "corrected": None if fits else "a dog",
            "understood": {"since": "2023-06-01", "until": "2023-08-31"},
        }  # fmt: skip
        route.fulfill(json=answer)

    page.route("**/api/search?*", patched)
    search(page, "a dog")
    expect(page.locator(".tile")).to_have_count(3)
    expect(page.locator("#status")).to_have_text("3 results")
    expect(page.locator(".tile .percent")).to_have_text(["100%", "90%", "81%"])
    expect(tile(page, 1).locator("img")).to_have_attribute("alt", re.compile("2 pictures in a sta"))
    expect(page.locator("#note")).to_contain_text("1 Jun 2023")
    page.get_by_role("button", name="More, less certain").click()
    expect(page.get_by_role("rowheader", name="Less certain")).to_be_visible()
    expect(tile(page, 3)).to_be_focused()
    assert page.locator(".tile").count() > 3
    fold, fits = 0, False
    search(page, "asdfghjkl", wait="#nothing-fits:not([hidden])")
    expect(page.get_by_role("heading", name="Nothing fits this well")).to_be_visible()
    expect(page.locator(".tile")).to_have_count(0)
    expect(page.locator("#note")).to_contain_text("Searched for “a dog”")
    page.get_by_role("button", name="Remove: Taken from").click()  # not meant as a date
    page.wait_for_url("**off=dates**")
    page.wait_for_selector("body:not(.busy) #nothing-fits:not([hidden])")
    page.unroute_all(behavior="wait")


def test_rows_fill_the_width_and_keep_aspect_ratios(open_page: Open) -> None:
    page = open_page("/", viewport={"width": 1280, "height": 900})
    boxes = page.evaluate(
        "[...document.querySelectorAll('.tile')].map((tile) => {"
        " const {top, right, width, height} = tile.getBoundingClientRect();"
        " return {top, right, width, height, id: tile.dataset.id} })"
    )
    edge = page.evaluate("document.querySelector('#grid').getBoundingClientRect().right")
    rows: dict[float, list[dict[str, float]]] = {}
    for box in boxes:
        rows.setdefault(box["top"], []).append(box)
    assert len(rows) >= 3
    for row in rows.values():
        assert len({box["height"] for box in row}) == 1
    full = [row for row in rows.values() if row[-1]["right"] == pytest.approx(edge, abs=1)]
    assert len(full) >= len(rows) - 2  # the last rows of the two months may be short
    items = page.evaluate("fetch('/api/items?limit=100').then((a) => a.json())")["items"]
    ratios = {str(item["id"]): item["width"] / item["height"] for item in items}
    for box in boxes:
        assert box["width"] / box["height"] == pytest.approx(ratios[str(box["id"])], rel=0.06)


def test_a_phone_needs_no_horizontal_scrolling(open_page: Open) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = open_page("/", locale="zh-TW", **phone)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    tile(page, 0).tap()
    page.locator("#info").tap()
    for button in ("#close", "#download", "#similar", "#original"):
        page.locator(button).scroll_into_view_if_needed()
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
    for address in ("/?q=a+horse&like=1&not=people", "/?folder=holiday", "/?view=folders"):
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        assert violations(page, *rules) == [], address
    page.goto("/?q=a+horse&photo=1")
    page.wait_for_selector("body[data-ready] #alike img")
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

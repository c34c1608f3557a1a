"""Explanations and questions in the browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

Open = Callable[..., Page]
NO_ATTRIBUTION = {"words": [{"word": "a", "cells": [[0, 1]]}, {"word": "horse", "cells": [[0, 0]]}]}


def test_clicking_a_word_highlights_the_picture(open_page: Open, explaining_url: str) -> None:
    page = open_page(f"{explaining_url}/?q=a+horse+on+the+meadow")
    page.locator(".tile").first.click()
    page.get_by_role("button", name="Show the words").click()
    words = page.get_by_role("group", name="Words of the search").get_by_role("button")
    expect(words).to_have_text(["a", "horse", "on", "the", "meadow"])
    expect(page.locator(".words [aria-pressed=true]")).to_have_text("meadow")
    expect(page.locator("#why-status")).to_contain_text("meadow")
    mask, picture = (
        page.locator(f"#stage {name}").bounding_box() for name in ("canvas", ".frame > img")
    )
    assert mask == picture
    shape = "canvas => canvas.width / canvas.height"
    natural = "image => image.naturalWidth / image.naturalHeight"
    assert page.locator("#stage canvas").evaluate(shape) == pytest.approx(
        page.locator("#stage .frame > img").evaluate(natural), rel=0.01
    )
    before = page.locator("#stage canvas").screenshot()
    words.nth(1).click()
    assert page.locator("#stage canvas").screenshot() != before
    words.nth(1).click()
    expect(page.locator("#stage canvas")).to_have_count(0)
    page.keyboard.press("ArrowRight")
    expect(words).to_have_count(0)


def test_a_word_without_attribution_leaves_the_picture_unchanged(
    open_page: Open, explaining_url: str
) -> None:
    page = open_page(f"{explaining_url}/?q=a+horse")
    page.route("**/why?*", lambda route: route.fulfill(json=NO_ATTRIBUTION))
    page.locator(".tile").first.click()
    page.get_by_role("button", name="Show the words").click()
    expect(page.locator(".words [aria-pressed=true]")).to_have_text("a")
    expect(page.locator("#stage canvas")).to_have_count(1)
    page.locator(".words button").last.click()
    expect(page.locator("#why-status")).to_have_text(
        "“horse” matches no part of the picture in particular."
    )
    expect(page.locator("#stage canvas")).to_have_count(0)


def test_questions_get_answers(open_page: Open, explaining_url: str) -> None:
    page = open_page(f"{explaining_url}/?q=a+horse", locale="de-DE")
    page.locator(".tile").first.click()
    question = page.get_by_role("textbox", name="Fragen Sie etwas zu diesem Bild")
    question.fill("what is it")
    question.press("ArrowLeft")  # moves the cursor, not to another hit
    expect(page.locator("#viewer-name")).to_have_text("horse.webp")
    question.press("Enter")
    answers = page.get_by_role("list", name="Antworten").get_by_role("listitem")
    expect(answers).to_have_count(3)
    expect(answers.first).to_contain_text("%")
    expect(page.locator("#question-languages")).to_have_text("Antwortet auf Englisch und Deutsch.")
    page.evaluate("fetch = async () => new Response('{}', {status: 503})")
    page.get_by_role("button", name="Fragen").click()
    expect(page.locator("#question-status")).to_contain_text("Versuchen Sie es gleich noch einmal")
    expect(answers).to_have_count(0)


def test_explaining_a_clip_shows_its_middle_frame(open_page: Open, explaining_url: str) -> None:
    page = open_page(f"{explaining_url}/?q=a+rocket&kind=clip")
    page.locator(".tile").click()
    page.get_by_role("button", name="Show the words").click()
    expect(page.locator("#stage .highlight img")).to_have_js_property("naturalWidth", 320)
    assert page.evaluate("document.querySelector('video').paused")


def test_without_models_nothing_is_offered(open_page: Open, explaining_url: str) -> None:
    page = open_page("/?q=a+horse")
    page.locator(".tile").first.click()
    expect(page.locator("#similar")).to_be_visible()
    for part in ("#why-open", "#question"):
        expect(page.locator(part)).to_be_hidden()
    page = open_page(f"{explaining_url}/?like=1")  # a search without words
    page.locator(".tile").first.click()
    expect(page.locator("#question")).to_be_visible()
    expect(page.locator("#why")).to_be_hidden()


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))])
def test_axe_finds_no_violations(
    open_page: Open,
    violations: Callable[..., list[str]],
    explaining_url: str,
    scheme: str,
    rules: tuple[str, ...],
) -> None:
    page = open_page(f"{explaining_url}/?q=a+horse", color_scheme=scheme, bypass_csp=True)
    page.locator(".tile").first.click()
    page.locator("#question-words").fill("what")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answers li")
    page.locator("#why-open").click()
    page.wait_for_selector(".words button")
    assert violations(page, *rules) == []


@pytest.mark.parametrize("locale", ["fr-FR", "ar-EG"])
def test_panels_fit_on_a_phone(open_page: Open, explaining_url: str, locale: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = open_page(f"{explaining_url}/?q=a+horse+on+the+meadow", locale=locale, **phone)
    page.locator(".tile").first.tap()
    page.locator("#info").tap()
    page.locator("#why-open").tap()
    page.wait_for_selector(".words button")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.querySelector('.facts').scrollWidth") <= 360
    for part in ("#why-open", ".words button:last-child", "#question-words", "#question button"):
        page.locator(part).scroll_into_view_if_needed()
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["height"] >= 24

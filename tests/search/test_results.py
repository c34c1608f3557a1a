from __future__ import annotations

import base64
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from polyglance.search.render.html_page import write_html_page
from polyglance.search.render.results import QueryResult, RenderedHit
from polyglance.search.render.terminal import half_blocks, results_table


@pytest.fixture
def results() -> list[QueryResult]:
    red, blue = Image.new("RGB", (400, 200), "red"), Image.new("RGBA", (8, 8), "blue")
    hits = [
        RenderedHit(red, 0.91, 'a<b>"c".jpg', is_correct=True),
        RenderedHit(blue, 0.2, "d.png", is_correct=False),
    ]
    return [
        QueryResult("كلب <script>", "ar", hits, "a dog <b>"),
        QueryResult("ein Hund", "de", hits[:1]),
    ]


def test_half_blocks_show_the_upper_pixel_above_the_lower() -> None:
    picture = Image.new("RGB", (4, 4), "blue")
    picture.paste("red", (0, 0, 4, 1))
    text = half_blocks(picture, columns=4)
    assert text.plain == "▀▀▀▀\n▀▀▀▀\n"
    first = text.get_style_at_offset(Console(), 0)
    assert str(first.color and first.color.name) == "#ff0000"
    assert str(first.bgcolor and first.bgcolor.name) == "#0000ff"


@pytest.mark.parametrize(("size", "lines"), [((40, 40), 4), ((80, 40), 2), ((8, 900), 8)])
def test_half_blocks_keep_the_aspect_ratio(size: tuple[int, int], lines: int) -> None:
    assert half_blocks(Image.new("RGB", size), columns=8).plain == ("▀" * 8 + "\n") * lines


def test_the_terminal_shows_languages_queries_and_scores(results: list[QueryResult]) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(results_table(results, title="Found"))
    shown = console.export_text()
    for expected in ("Found", "Arabic", "German", "ein Hund", "a dog <b>", "0.91 ✓", "0.20 ✗"):
        assert expected in shown
    assert 'a<b>"c".jpg' in shown


def test_four_hits_with_long_names_fit_beside_each_other_in_a_terminal() -> None:
    picture = Image.new("RGB", (8, 8))
    name = "a folder/with a very long name/and a picture in it.jpg"
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(results_table([QueryResult("?", None, [RenderedHit(picture, 0.5, name)] * 4)]))
    lines = console.export_text().splitlines()
    assert sum(line.count("0.50") for line in lines) == 4
    [scores] = [line for line in lines if "0.50" in line]
    assert scores.count("0.50") == 4
    assert max(map(len, lines)) == 80


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_contains_its_images_and_escapes_text(
    results: list[QueryResult], tmp_path: Path
) -> None:
    write_html_page(tmp_path / "sheet.html", results, title="Search & find")
    text = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert [image["alt"] for image in images] == ['a<b>"c".jpg', "d.png", 'a<b>"c".jpg']
    source = images[0]["src"] or ""
    picture = Image.open(io.BytesIO(base64.b64decode(source.split(",", 1)[1])))
    assert picture.size == (256, 128)
    assert picture.getpixel((9, 9))[0] > 240  # type: ignore[index]
    spans = {attrs.get("lang"): attrs.get("dir") for tag, attrs in page.tags if tag == "span"}
    assert spans == {"ar": "rtl", "de": "ltr"}
    assert "script" not in {tag for tag, _ in page.tags}
    assert sum(attrs.get("class") == "right" for tag, attrs in page.tags if tag == "li") == 2


def test_the_direction_of_an_unknown_language_is_automatic(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 8))
    write_html_page(
        tmp_path / "sheet.html",
        [QueryResult("שלום", None, [RenderedHit(picture, 0.5, "a")])],
        title="t",
    )
    text = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert [attrs for tag, attrs in page.tags if tag == "span"] == [{"dir": "auto"}]
    assert "<footer" not in text


def test_probabilities_are_shown_instead_of_scores(tmp_path: Path) -> None:
    hit = RenderedHit(Image.new("RGB", (8, 8)), 0.123, "a.jpg", label="87%")
    results = [QueryResult("?", None, [hit])]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(results_table(results, numbered=True))
    write_html_page(tmp_path / "sheet.html", results, title="t")
    for shown in (console.export_text(), (tmp_path / "sheet.html").read_text(encoding="utf-8")):
        assert "87%" in shown
        assert "0.12" not in shown


def test_the_page_credits_each_image_once(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 8))
    hits = [
        RenderedHit(
            picture, 0.5, "A dog", credit="Ann <x>, CC0-1.0", link='https://example.org/?a="b"'
        ),
        RenderedHit(picture, 0.4, "A cat", credit="Bob, CC-BY-4.0"),
        RenderedHit(picture, 0.3, "My cat"),
    ]
    results = [QueryResult("a", "en", hits), QueryResult("b", "en", hits)]
    write_html_page(tmp_path / "sheet.html", results, title="t")
    text = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    foot = text[text.index("<footer") :]
    page = _Page()
    page.feed(text)
    assert foot.count("A dog") == foot.count("A cat") == 1
    assert foot.index("A cat") < foot.index("A dog")
    assert "Ann &lt;x&gt;, CC0-1.0" in foot
    assert "My cat" not in foot
    assert [a["href"] for tag, a in page.tags if tag == "a"] == ['https://example.org/?a="b"']
    tips = [attrs.get("title") for tag, attrs in page.tags if tag == "img"]
    assert tips == ["Ann <x>, CC0-1.0", "Bob, CC-BY-4.0", None] * 2


def test_a_page_has_the_fold_the_folders_and_the_reasons(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 8))
    hits = [
        RenderedHit(
            picture, 0.3, "IMG_1.jpg", file=tmp_path / folder / "IMG_1.jpg", label=f"{chance:.0%}",
            reasons=reasons,
        )
        for folder, chance, reasons in (("Oma & Opa", 1.0, "name: Oma"), ("Paris", 0.1, ""))
    ]  # fmt: skip
    for fold, heading in ((1, "Less certain"), (0, "Nothing fits well")):
        write_html_page(tmp_path / "page.html", [QueryResult("Oma", None, hits, fold=fold)],
                        title="t")  # fmt: skip
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        before, _, after = text.partition(f"<h3>{heading}")
        assert before.count("<li") == fold
        assert after.count("<li") == 2 - fold
        assert "Oma &amp; Opa/IMG_1.jpg</a><small>name: Oma</small>" in text
        assert ">Paris/IMG_1.jpg</a></figcaption>" in text
    write_html_page(tmp_path / "page.html", [QueryResult("Oma", None, hits)], title="t")
    assert "<h3>" not in (tmp_path / "page.html").read_text(encoding="utf-8")

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from polyglance.search.results import Answer, Hit
from polyglance.search.sheet import write_sheet
from polyglance.search.terminal import answers_table, half_blocks


@pytest.fixture
def answers() -> list[Answer]:
    red, blue = Image.new("RGB", (400, 200), "red"), Image.new("RGBA", (8, 8), "blue")
    hits = [Hit(red, 0.91, 'a<b>"c".jpg', right=True), Hit(blue, 0.2, "d.png", right=False)]
    return [Answer("كلب <script>", "ar", hits), Answer("ein Hund", "de", hits[:1])]


def test_half_blocks_show_the_upper_pixel_above_the_lower() -> None:
    picture = Image.new("RGB", (4, 4), "blue")
    picture.paste("red", (0, 0, 4, 1))
    text = half_blocks(picture, columns=4)
    assert text.plain == "▀▀▀▀\n▀▀▀▀\n"
    first = text.get_style_at_offset(Console(), 0)
    assert str(first.color and first.color.name) == "#ff0000"
    assert str(first.bgcolor and first.bgcolor.name) == "#0000ff"


@pytest.mark.parametrize(("size", "lines"), [((40, 40), 4), ((80, 40), 2), ((8, 900), 8)])
def test_half_blocks_keep_a_picture_s_shape(size: tuple[int, int], lines: int) -> None:
    assert half_blocks(Image.new("RGB", size), columns=8).plain == ("▀" * 8 + "\n") * lines


def test_the_terminal_shows_languages_queries_and_scores(answers: list[Answer]) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(answers_table(answers, title="Found"))
    shown = console.export_text()
    for expected in ("Found", "Arabic", "German", "ein Hund", "0.91 ✓", "0.20 ✗"):
        assert expected in shown


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_sheet_holds_its_pictures_and_escapes_what_users_write(
    answers: list[Answer], tmp_path: Path
) -> None:
    write_sheet(tmp_path / "sheet.html", answers, title="Search & find")
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

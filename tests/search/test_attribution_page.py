from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFont

from polyglance.errors import PolyglanceError
from polyglance.search.render import attribution_page
from polyglance.search.render.attribution_page import (
    AttributionRow,
    draw_attribution,
    highlight,
    missing_glyphs,
    write_attribution_page,
)

GREY = Image.new("RGB", (70, 70), (120, 120, 120))


def corner() -> np.ndarray:
    cells = np.zeros((7, 7), np.float32)
    cells[0, 6] = 0.02
    return cells


def test_an_image_is_bright_where_the_attribution_is_high() -> None:
    shown = np.asarray(highlight(GREY, corner())).astype(int)
    assert shown[:8, 62:].mean() > 110
    assert shown[30:, :40].max() < 40


def test_a_page_is_self_contained_with_a_row_per_sentence(tmp_path: Path) -> None:
    rows = [
        AttributionRow("a <red> dog", "en", ["a", "<red>", "dog"], np.stack([corner()] * 3)),
        AttributionRow("كلب أحمر", "ar", ["كلب", "أحمر"], np.stack([corner()] * 2)),
        AttributionRow("ein Hund", None, ["ein", "Hund"], np.stack([corner()] * 2)),
    ]
    write_attribution_page(tmp_path / "attribution.html", GREY, rows, note="so & so")
    page = (tmp_path / "attribution.html").read_text(encoding="utf-8")
    assert page.count("data:image/webp;base64,") == 7
    assert re.search(r'(?:src|href)="(?!data:)', page) is None
    assert "&lt;red&gt;" in page
    assert "<red>" not in page
    assert '<section lang="ar" dir="rtl">' in page
    assert '<section dir="auto">' in page
    drawn = draw_attribution(GREY, rows)
    width, height = 200 + 12, 30 + 200 + 30 + 12
    assert drawn.size == (12 + 4 * width, 12 + 3 * height)
    with pytest.raises(PolyglanceError, match=r"none\.ttf cannot be opened as a font .*--font"):
        draw_attribution(GREY, rows, fonts=[tmp_path / "none.ttf"])


def tile(drawn: Image.Image, column: int, line: int = 0, *, head: int = 1) -> np.ndarray:
    """Return an image of the drawing's first row, whose sentence takes ``head`` lines."""
    left, top = 12 + column * 212, 12 + head * 30 + line * 242
    return np.asarray(drawn.crop((left, top, left + 200, top + 200))).astype(int)


def brightness(drawn: Image.Image, columns: int) -> list[float]:
    return [tile(drawn, column).mean() for column in range(columns)]


@pytest.mark.parametrize(("sentence", "language"), [("كلب أحمر", "ar"), ("כלב", None)])
def test_words_run_in_reading_direction(sentence: str, language: str | None) -> None:
    """The plain image comes first, then a word attributed everywhere, then one to a corner."""
    cells = np.stack([np.ones((7, 7), np.float32), corner()])
    plain, all_over, little = brightness(
        draw_attribution(GREY, [AttributionRow("a b", "en", ["a", "b"], cells)]), 3
    )
    assert little < plain < all_over
    drawn = draw_attribution(GREY, [AttributionRow(sentence, language, ["a", "b"], cells)])
    assert brightness(drawn, 3) == [little, all_over, plain]
    above = np.asarray(drawn.convert("L").crop((0, 0, drawn.width, 12 + 30)))
    written = np.flatnonzero((above < 100).any(0))
    assert drawn.width - 30 < written.max() < drawn.width
    assert written.min() > drawn.width / 2


def test_a_word_without_attribution_is_labelled(tmp_path: Path) -> None:
    none = np.zeros((7, 7), np.float32)
    row = AttributionRow("a dog", "en", ["a", "dog"], np.stack([none, corner()]))
    pale = np.asarray(highlight(GREY, none))
    assert pale.min() > 160, "not dark, which is how a picture is where a word does not look"
    drawn = draw_attribution(GREY, [row])
    assert (tile(drawn, 1) < 60).any(), "something is written on it"
    assert np.median(tile(drawn, 1)) > 160
    write_attribution_page(tmp_path / "attribution.html", GREY, [row], note="")
    page = (tmp_path / "attribution.html").read_text(encoding="utf-8")
    assert '>a <small lang="en">no region</small></figcaption>' in page
    assert ">dog</figcaption>" in page


def test_many_words_and_long_sentences_wrap() -> None:
    words = [f"word{number}" for number in range(30)]
    row = AttributionRow(" ".join(words), "en", words, np.stack([corner()] * 30))
    drawn = draw_attribution(GREY, [row])
    assert drawn.width == 12 + 12 * 212
    assert drawn.height == 12 + 30 + 3 * 242
    assert tile(drawn, 6, 2).min() < 60
    assert tile(drawn, 7, 2).min() == 255, "31 pictures"
    # A long sentence above few images is wrapped, with or without spaces.
    for sentence in (" ".join(["answer"] * 30), "x" * 200):
        drawn = draw_attribution(GREY, [AttributionRow(sentence, None, ["x"], corner()[None])])
        assert drawn.height > 12 + 3 * 30 + 242
        assert np.asarray(drawn)[:, -8:].min() == 255


def one_word(word: str) -> AttributionRow:
    return AttributionRow(word, None, [word], corner()[None])


def below_the_picture(row: AttributionRow, *fonts: str) -> bytes:
    """Return the drawing of a word below its image."""
    drawn = draw_attribution(GREY, [row], fonts=fonts)
    return drawn.crop((0, 242, *drawn.size)).tobytes()


def test_missing_glyphs_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution_page, "_FONTS", ("no-such-font.ttf",))
    rows = [one_word("a dog"), one_word("红狗, 红"), one_word("หมา")]
    assert missing_glyphs(rows[:1]) == []
    # One sentence per script, so that none hides another.
    assert missing_glyphs(rows) == [(rows[1], "红狗"), (rows[2], "หมา")]
    draw_attribution(GREY, rows)


def test_each_sentence_is_drawn_in_a_font_that_has_its_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serif, sans = "DejaVuSerif.ttf", "DejaVuSans.ttf"
    try:
        ImageFont.truetype(serif)
        ImageFont.truetype(sans)
    except OSError:
        pytest.skip("there is no DejaVu here, whose serif has no Arabic letters")
    arabic, english = one_word("كلب"), one_word("dog")
    monkeypatch.setattr(attribution_page, "_FONTS", ())
    ((_, letters),) = missing_glyphs([arabic, english], fonts=[serif])
    assert set(letters) == set("كلب")
    assert missing_glyphs([arabic, english], fonts=[serif, sans]) == []
    in_serif, boxes = (below_the_picture(row, serif) for row in (english, arabic))
    in_sans, read = (below_the_picture(row, sans) for row in (english, arabic))
    assert read != boxes
    # The first given font that has the letters is used.
    assert below_the_picture(arabic, serif, sans) == read
    assert below_the_picture(english, serif, sans) == in_serif
    assert below_the_picture(english, sans, serif) == in_sans
    monkeypatch.setattr(attribution_page, "_FONTS", (serif, sans))
    assert missing_glyphs([arabic, english]) == []
    assert below_the_picture(arabic) == read
    assert below_the_picture(english) == in_serif
    assert below_the_picture(english, sans) == in_sans
    # Installed fonts are used for letters that no given font has.
    assert below_the_picture(arabic, serif) == read

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFont

from polyglance.errors import PolyglanceError
from polyglance.search.showing import looks_sheet
from polyglance.search.showing.looks_sheet import (
    Row,
    draw_looks,
    lit,
    missing_letters,
    write_looks_page,
)

GREY = Image.new("RGB", (70, 70), (120, 120, 120))


def corner() -> np.ndarray:
    cells = np.zeros((7, 7), np.float32)
    cells[0, 6] = 0.02
    return cells


def test_a_picture_is_bright_where_a_word_looks_and_nowhere_else() -> None:
    shown = np.asarray(lit(GREY, corner())).astype(int)
    assert shown[:8, 62:].mean() > 110
    assert shown[30:, :40].max() < 40
    dark = np.asarray(lit(GREY, np.zeros((7, 7), np.float32)))
    assert dark.max() < 40


def test_a_page_has_a_row_a_sentence_and_all_it_needs(tmp_path: Path) -> None:
    rows = [
        Row("a <red> dog", "en", ["a", "<red>", "dog"], np.stack([corner()] * 3)),
        Row("كلب أحمر", "ar", ["كلب", "أحمر"], np.stack([corner()] * 2)),
        Row("ein Hund", None, ["ein", "Hund"], np.stack([corner()] * 2)),
    ]
    write_looks_page(tmp_path / "looks.html", GREY, rows, note="so & so")
    page = (tmp_path / "looks.html").read_text(encoding="utf-8")
    assert page.count("data:image/webp;base64,") == 7
    assert re.search(r'(?:src|href)="(?!data:)', page) is None
    assert "&lt;red&gt;" in page
    assert "<red>" not in page
    assert '<section lang="ar" dir="rtl">' in page
    assert '<section dir="auto">' in page
    drawn = draw_looks(GREY, rows)
    width, height = 200 + 12, 200 + 30 + 12
    assert drawn.size == (12 + 4 * width, 12 + 3 * height)
    with pytest.raises(PolyglanceError, match=r"none\.ttf cannot be opened as a font .*--font"):
        draw_looks(GREY, rows, font=tmp_path / "none.ttf")


def one_word(word: str) -> Row:
    return Row(word, None, [word], corner()[None])


def below_the_picture(row: Row, **font: str) -> bytes:
    """A word as it is drawn below its picture."""
    drawn = draw_looks(GREY, [row], **font)
    return drawn.crop((0, 212, *drawn.size)).tobytes()


def test_letters_that_no_font_has_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks_sheet, "_FONTS", ("no-such-font.ttf",))
    rows = [one_word("a dog"), one_word("红狗, 红")]
    assert missing_letters(rows[:1]) == ""
    assert missing_letters(rows) == "红狗"
    draw_looks(GREY, rows)


def test_each_sentence_is_drawn_in_a_font_that_has_its_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serif, sans = "DejaVuSerif.ttf", "DejaVuSans.ttf"
    try:
        ImageFont.truetype(serif)
        ImageFont.truetype(sans)
    except OSError:
        pytest.skip("there is no DejaVu here, whose serif has no Arabic letters")
    monkeypatch.setattr(looks_sheet, "_FONTS", (serif, sans))
    arabic, english = one_word("كلب"), one_word("dog")
    assert missing_letters([arabic, english]) == ""
    assert set(missing_letters([arabic], font=serif)) == set("كلب")
    assert below_the_picture(arabic) == below_the_picture(arabic, font=sans)
    assert below_the_picture(arabic) != below_the_picture(arabic, font=serif)
    assert below_the_picture(english) == below_the_picture(english, font=serif)

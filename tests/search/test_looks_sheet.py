from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.search.showing.looks_sheet import Row, draw_looks, lit, write_looks_page

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
    with pytest.raises(OSError, match="cannot open"):
        draw_looks(GREY, rows, font=tmp_path / "none.ttf")

"""Where words look, drawn: the picture once a word, bright where it looks, a row a sentence.

Sentences in several languages lie below each other, as in UC2's Figure 3, on a page
that needs nothing beside it and as one picture.
"""

from __future__ import annotations

import html
import io
import unicodedata
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from polyglance.errors import PolyglanceError
from polyglance.languages import describe, is_right_to_left
from polyglance.records import replacing

_DARK = 0.22
"""What is left of the picture's light where a word does not look at all."""
_PALE, _PALENESS = 236, 0.7
"""What a picture fades into for a word that looks nowhere, and how far."""
_NOWHERE = "no region"
"""What such a picture says."""
_NOTE = f' <small lang="en">{_NOWHERE}</small>'
_WARM = np.array([255, 168, 38], np.float32)
_FONTS = (
    "NotoSans-Regular.ttf", "DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf",
    # Chinese, Japanese and Korean: of Linux, macOS and Windows.
    "NotoSansCJK-Regular.ttc", "NotoSansCJK-VF.ttc", "NotoSansCJKsc-Regular.otf",
    "wqy-microhei.ttc", "wqy-zenhei.ttc", "DroidSansFallbackFull.ttf", "DroidSansFallback.ttf",
    "Hiragino Sans GB.ttc", "PingFang.ttc", "AppleSDGothicNeo.ttc",
    "msyh.ttc", "msgothic.ttc", "malgun.ttf",
    # Thai, Hindi, Bengali, Tamil, Hebrew.
    "NotoSansThai-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "NotoSansBengali-Regular.ttf",
    "NotoSansTamil-Regular.ttf", "NotoSansHebrew-Regular.ttf", "FreeSans.ttf",
    "Nirmala.ttf", "LeelawUI.ttf",
)  # fmt: skip
"""Sought by Pillow wherever the system keeps its fonts; of those that draw a sentence equally
well the first does."""
_NO_LETTER = "\U0010ffff"
"""Never a letter, so that fonts draw what stands for a missing one."""
_Letters = ImageFont.FreeTypeFont | ImageFont.ImageFont
_SIZE = 17
_SIDE, _GAP, _LINE = 200, 12, 30
_ACROSS = 12
"""The most pictures beside each other; the words of longer sentences go on below."""

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.4 system-ui, sans-serif; }
:root { --paper: light-dark(#ffffff, #0d1117); --ink: light-dark(#1f2328, #e6edf3); }
:root { --soft: light-dark(#59636e, #9198a1); }
body { max-width: 88rem; margin: 2rem auto; padding: 0 1.5rem; }
body { background: var(--paper); color: var(--ink); }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; }
h1 + p { margin: 0 0 1.6rem; color: var(--soft); max-width: 50rem; }
section { margin: 0 0 1.6rem; }
h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
h2 small { font-weight: normal; color: var(--soft); margin-inline-start: .5rem; }
ol { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .7rem; }
figure { margin: 0; width: 9.5rem; }
img { display: block; width: 100%; border-radius: .4rem; }
figcaption small { display: block; color: var(--soft); }
figcaption { margin-top: .2rem; text-align: center; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True, eq=False)
class Row:
    """A sentence: its language, if known, and its words with what cells are to each."""

    sentence: str
    language: str | None
    words: Sequence[str]
    cells: NDArray[np.float32]


def lit(picture: Image.Image, cells: NDArray[np.float32]) -> Image.Image:
    """The picture, bright where a word looks most and dark where it does not look.

    All grey and pale for a word that looks nowhere: dark would say that it is not shown.
    """
    if not looks_somewhere(cells):
        plain = picture.convert("L").convert("RGB")
        return Image.blend(plain, Image.new("RGB", plain.size, (_PALE,) * 3), _PALENESS)
    small = Image.fromarray(np.uint8(255 * np.clip(cells / cells.max(), 0, 1)))
    light = np.asarray(small.resize(picture.size, Image.Resampling.BICUBIC), np.float32) / 255
    light = light[:, :, None]
    pixels = np.asarray(picture.convert("RGB"), np.float32)
    shown = pixels * (_DARK + (1 - _DARK) * light)
    return Image.fromarray(np.uint8(np.clip(shown + 0.18 * light * (_WARM - shown), 0, 255)))


def looks_somewhere(cells: NDArray[np.float32]) -> bool:
    """Whether any region speaks for a word."""
    return bool(cells.max() > 0)


def write_looks_page(path: Path, picture: Image.Image, rows: Sequence[Row], *, note: str) -> None:
    """Write the page, with all pictures inside."""
    small = _small(picture)
    body = "\n".join(_section(small, row) for row in rows)
    with replacing(path) as out:
        out.write(
            "<!doctype html>\n"
            '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>Where words look</title>\n<style>{_STYLE}</style>\n</head>\n"
            f"<body>\n<h1>Where words look</h1>\n<p>{html.escape(note)}</p>\n"
            f"{body}\n</body>\n</html>\n"
        )


def draw_looks(
    picture: Image.Image, rows: Sequence[Row], *, fonts: Sequence[str | Path] = ()
) -> Image.Image:
    """All sentences as one picture, each above its words, and first the picture as it is.

    Words run as they are read, from the right in Arabic, and go on in a line below where
    they are many. Each sentence is drawn in the first of the ``fonts`` that has its letters, else
    in one at hand that has; the page needs none.
    """
    small = _small(picture)
    columns = min(_ACROSS, 1 + max(len(row.words) for row in rows))
    width = _GAP + columns * (small.width + _GAP)
    drawn = [_draw_row(small, row, columns, width, fonts) for row in rows]
    sheet = Image.new("RGB", (width, _GAP + sum(one.height for one in drawn)), "white")
    top = _GAP
    for one in drawn:
        sheet.paste(one, (0, top))
        top += one.height
    return sheet


def missing_letters(
    rows: Sequence[Row], *, fonts: Sequence[str | Path] = ()
) -> list[tuple[Row, str]]:
    """Those rows that `draw_looks` has no font for, with the letters that are missing."""
    lacking = ((row, "".join(_lacking(_font(_written(row), fonts), _written(row)))) for row in rows)
    return [(row, letters) for row, letters in lacking if letters]


def open_font(font: str | Path) -> ImageFont.FreeTypeFont:
    """A font by its file, or by the name of one that the system has."""
    try:
        return ImageFont.truetype(str(font), _SIZE)
    except OSError as error:
        raise PolyglanceError(
            f"{font} cannot be opened as a font ({error}): give a .ttf, .otf or .ttc file as"
            " --font, or leave it out"
        ) from error


def _draw_row(
    small: Image.Image, row: Row, columns: int, width: int, fonts: Sequence[str | Path]
) -> Image.Image:
    letters, labels = _font(_written(row), fonts), _font(_NOWHERE, fonts)
    lines = _lines(row.sentence, letters, width - 2 * _GAP)
    head, line = len(lines) * _LINE, small.height + _LINE + _GAP
    down = -(-(1 + len(row.words)) // columns)
    sheet = Image.new("RGB", (width, head + down * line), "white")
    pen = ImageDraw.Draw(sheet)
    backwards = _right_to_left(row)
    for number, text in enumerate(lines):
        middle = number * _LINE + _LINE // 2 - _GAP // 4
        place, anchor = ((width - _GAP, middle), "rm") if backwards else ((_GAP, middle), "lm")
        pen.text(place, text, "black", letters, anchor=anchor)
    shown = [(row.language or "", small, labels), *((*one, letters) for one in _lit(small, row))]
    for number, (word, seen, written_in) in enumerate(shown):
        below, column = divmod(number, columns)
        column = columns - 1 - column if backwards else column
        left, top = _GAP + column * (small.width + _GAP), head + below * line
        sheet.paste(seen, (left, top))
        middle = left + small.width // 2
        place = (middle, top + small.height + _LINE // 2)
        pen.text(place, _fitting(word, written_in, small.width), "black", written_in, anchor="mm")
        if number and not looks_somewhere(row.cells[number - 1]):
            label = _fitting(_NOWHERE, labels, small.width)
            pen.text((middle, top + small.height // 2), label, "black", labels, anchor="mm")
    return sheet


def _section(small: Image.Image, row: Row) -> str:
    known = describe(row.language) if row.language else None
    attributes = (
        f'lang="{known.code}" dir="{"rtl" if known.right_to_left else "ltr"}"'
        if known
        else 'dir="auto"'
    )
    items = "\n".join(
        f'<li><figure><img src="{_data_uri(seen)}" alt=""><figcaption>{html.escape(word)}'
        f"{'' if looks_somewhere(cells) else _NOTE}</figcaption></figure></li>"
        for (word, seen), cells in zip(_lit(small, row), row.cells, strict=True)
    )
    name = f"<small>{html.escape(known.english)}</small>" if known else ""
    return (
        f"<section {attributes}>\n<h2>{html.escape(row.sentence)}{name}</h2>\n"
        f"<ol>\n{items}\n</ol>\n</section>"
    )


def _lit(small: Image.Image, row: Row) -> list[tuple[str, Image.Image]]:
    return [(word, lit(small, one)) for word, one in zip(row.words, row.cells, strict=True)]


def _small(picture: Image.Image) -> Image.Image:
    small = picture.convert("RGB")
    scale = _SIDE / max(small.size)
    size = (max(1, round(small.width * scale)), max(1, round(small.height * scale)))
    return small.resize(size, Image.Resampling.LANCZOS)


def _written(row: Row) -> str:
    """All that is written of a row: an answer that looks is no word of its question."""
    return row.sentence + "".join(row.words)


def _right_to_left(row: Row) -> bool:
    """By its language, else by its first letter, as browsers do."""
    if row.language:
        return is_right_to_left(row.language)
    ways = (unicodedata.bidirectional(letter) for letter in row.sentence)
    return next((way for way in ways if way in ("L", "R", "AL")), "L") != "L"


def _font(text: str, fonts: Sequence[str | Path]) -> _Letters:
    """The font that lacks the fewest letters of a text, those that are asked for first."""
    known = (*map(open_font, fonts), *_installed(_FONTS))
    return min(known, key=lambda letters: len(_lacking(letters, text)))


@cache
def _installed(names: tuple[str, ...]) -> tuple[_Letters, ...]:
    found: list[_Letters] = []
    for name in names:
        try:
            found.append(ImageFont.truetype(name, _SIZE))
        except OSError:
            continue
    return (*found, ImageFont.load_default(_SIZE))


def _lacking(letters: _Letters, text: str) -> list[str]:
    """The letters of a text that a font has not: it draws them all as the same box."""
    box = _drawn(letters, _NO_LETTER)
    return [
        letter
        for letter in dict.fromkeys(text)
        if letter.isalnum() and _drawn(letters, letter) == box
    ]


def _drawn(letters: _Letters, letter: str) -> tuple[tuple[int, int], bytes]:
    mask = letters.getmask(letter)
    return mask.size, bytes(mask)


def _fitting(word: str, letters: _Letters, width: int) -> str:
    while len(word) > 1 and letters.getlength(word) > width:
        word = word[:-2] + "…"
    return word


def _lines(text: str, letters: _Letters, width: int) -> list[str]:
    """A text in lines of a width, cut at spaces where there are some."""
    text = " ".join(text.split())
    lines = []
    while len(text) > 1 and letters.getlength(text) > width:
        # The most letters that fit.
        end = bisect_right(range(len(text)), width, key=lambda n: ceil(letters.getlength(text[:n])))
        end -= 1
        space = text.rfind(" ", 0, end + 1)
        end = space if space > 0 else max(1, end)
        lines.append(text[:end])
        text = text[end:].lstrip()
    return [*lines, text]


def _data_uri(picture: Image.Image) -> str:
    stream = io.BytesIO()
    picture.save(stream, "WEBP", quality=85)
    return "data:image/webp;base64," + b64encode(stream.getvalue()).decode()

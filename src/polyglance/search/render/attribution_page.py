"""Render word attributions: the image once per word, bright where the word attends.

Each sentence is a row, so that languages can be compared as in UC2's Figure 3; as a
self-contained HTML page, or as one image.
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
from polyglance.languages import get_language, is_right_to_left
from polyglance.records import atomic_write

_DARK = 0.22
"""Brightness of the image where a word's attribution is 0."""
_PALE, _PALENESS = 236, 0.7
"""The grey, and the degree, to which the image fades for a word without attribution."""
_NO_REGION = "no region"
"""The label of such an image."""
_NOTE = f' <small lang="en">{_NO_REGION}</small>'
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
"""Found by Pillow in the system's font folders; among equally good ones the first is used."""
_NONCHARACTER = "\U0010ffff"
"""Never a letter, so that fonts draw their glyph for missing ones."""
_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
_SIZE = 17
_SIDE, _GAP, _LINE = 200, 12, 30
_MAX_COLUMNS = 12
"""Images per line; longer sentences continue below."""

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
class AttributionRow:
    """A sentence and the attributions of its words."""

    sentence: str
    language: str | None
    """Its language, if known."""
    words: Sequence[str]
    heatmaps: NDArray[np.float32]
    """Attribution of each word to a grid of cells, ``[len(words), height, width]``."""


def highlight(image: Image.Image, heatmap: NDArray[np.float32]) -> Image.Image:
    """Brighten an image where a word's attribution is high and darken it elsewhere.

    Without any attribution it becomes pale grey: dark would say that the word is not shown.
    """
    if not has_attribution(heatmap):
        grey = image.convert("L").convert("RGB")
        return Image.blend(grey, Image.new("RGB", grey.size, (_PALE,) * 3), _PALENESS)
    small = Image.fromarray(np.uint8(255 * np.clip(heatmap / heatmap.max(), 0, 1)))
    light = np.asarray(small.resize(image.size, Image.Resampling.BICUBIC), np.float32) / 255
    light = light[:, :, None]
    pixels = np.asarray(image.convert("RGB"), np.float32)
    shaded = pixels * (_DARK + (1 - _DARK) * light)
    return Image.fromarray(np.uint8(np.clip(shaded + 0.18 * light * (_WARM - shaded), 0, 255)))


def has_attribution(heatmap: NDArray[np.float32]) -> bool:
    """Return whether any region contributes to a word."""
    return bool(heatmap.max() > 0)


def write_attribution_page(
    path: Path, image: Image.Image, rows: Sequence[AttributionRow], *, note: str
) -> None:
    """Write an HTML page with all images inside.

    Args:
        path: The file to write.
        image: The image that the sentences describe.
        rows: The sentences.
        note: A paragraph below the title.
    """
    small = _scale_down(image)
    body = "\n".join(_section(small, row) for row in rows)
    with atomic_write(path) as out:
        out.write(
            "<!doctype html>\n"
            '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>Word attributions</title>\n<style>{_STYLE}</style>\n</head>\n"
            f"<body>\n<h1>Word attributions</h1>\n<p>{html.escape(note)}</p>\n"
            f"{body}\n</body>\n</html>\n"
        )


def draw_attribution(
    image: Image.Image, rows: Sequence[AttributionRow], *, fonts: Sequence[str | Path] = ()
) -> Image.Image:
    """Draw all sentences as one image, each above its words.

    Words run in reading order, from the right in Arabic, and continue below if there are many.

    Args:
        image: The image that the sentences describe, drawn first in each row.
        rows: The sentences.
        fonts: Fonts to prefer. Each sentence is drawn in the first that has its letters, else in
            an installed one.

    Returns:
        The drawing.
    """
    small = _scale_down(image)
    columns = min(_MAX_COLUMNS, 1 + max(len(row.words) for row in rows))
    width = _GAP + columns * (small.width + _GAP)
    strips = [_draw_row(small, row, columns, width, fonts) for row in rows]
    drawing = Image.new("RGB", (width, _GAP + sum(strip.height for strip in strips)), "white")
    top = _GAP
    for strip in strips:
        drawing.paste(strip, (0, top))
        top += strip.height
    return drawing


def missing_glyphs(
    rows: Sequence[AttributionRow], *, fonts: Sequence[str | Path] = ()
) -> list[tuple[AttributionRow, str]]:
    """Return the rows that `draw_attribution` has no font for, with the missing letters."""
    missing = (
        (row, "".join(_missing(_choose_font(_all_text(row), fonts), _all_text(row))))
        for row in rows
    )
    return [(row, letters) for row, letters in missing if letters]


def open_font(font: str | Path) -> ImageFont.FreeTypeFont:
    """Open a font by its file, or by the name of an installed one."""
    try:
        return ImageFont.truetype(str(font), _SIZE)
    except OSError as error:
        raise PolyglanceError(
            f"{font} cannot be opened as a font ({error}): give a .ttf, .otf or .ttc file as"
            " --font, or leave it out"
        ) from error


def _draw_row(
    small: Image.Image, row: AttributionRow, columns: int, width: int, fonts: Sequence[str | Path]
) -> Image.Image:
    font, label_font = _choose_font(_all_text(row), fonts), _choose_font(_NO_REGION, fonts)
    lines = _wrap(row.sentence, font, width - 2 * _GAP)
    head, row_height = len(lines) * _LINE, small.height + _LINE + _GAP
    num_rows = -(-(1 + len(row.words)) // columns)
    drawing = Image.new("RGB", (width, head + num_rows * row_height), "white")
    draw = ImageDraw.Draw(drawing)
    right_to_left = _is_right_to_left(row)
    for number, text in enumerate(lines):
        middle = number * _LINE + _LINE // 2 - _GAP // 4
        at, anchor = ((width - _GAP, middle), "rm") if right_to_left else ((_GAP, middle), "lm")
        draw.text(at, text, "black", font, anchor=anchor)
    cells = [
        (row.language or "", small, label_font),
        *((word, image, font) for word, image in _highlights(small, row)),
    ]
    for number, (word, image, word_font) in enumerate(cells):
        line, column = divmod(number, columns)
        column = columns - 1 - column if right_to_left else column
        left, top = _GAP + column * (small.width + _GAP), head + line * row_height
        drawing.paste(image, (left, top))
        middle = left + small.width // 2
        at = (middle, top + small.height + _LINE // 2)
        draw.text(at, _shorten(word, word_font, small.width), "black", word_font, anchor="mm")
        if number and not has_attribution(row.heatmaps[number - 1]):
            label = _shorten(_NO_REGION, label_font, small.width)
            draw.text((middle, top + small.height // 2), label, "black", label_font, anchor="mm")
    return drawing


def _section(small: Image.Image, row: AttributionRow) -> str:
    language = get_language(row.language) if row.language else None
    attributes = (
        f'lang="{language.code}" dir="{"rtl" if language.right_to_left else "ltr"}"'
        if language
        else 'dir="auto"'
    )
    items = "\n".join(
        f'<li><figure><img src="{_data_uri(image)}" alt=""><figcaption>{html.escape(word)}'
        f"{'' if has_attribution(heatmap) else _NOTE}</figcaption></figure></li>"
        for (word, image), heatmap in zip(_highlights(small, row), row.heatmaps, strict=True)
    )
    name = f"<small>{html.escape(language.english_name)}</small>" if language else ""
    return (
        f"<section {attributes}>\n<h2>{html.escape(row.sentence)}{name}</h2>\n"
        f"<ol>\n{items}\n</ol>\n</section>"
    )


def _highlights(small: Image.Image, row: AttributionRow) -> list[tuple[str, Image.Image]]:
    return [
        (word, highlight(small, heatmap))
        for word, heatmap in zip(row.words, row.heatmaps, strict=True)
    ]


def _scale_down(image: Image.Image) -> Image.Image:
    small = image.convert("RGB")
    scale = _SIDE / max(small.size)
    size = (max(1, round(small.width * scale)), max(1, round(small.height * scale)))
    return small.resize(size, Image.Resampling.LANCZOS)


def _all_text(row: AttributionRow) -> str:
    """Return all text of a row; the words may hold an answer that is not in the sentence."""
    return row.sentence + "".join(row.words)


def _is_right_to_left(row: AttributionRow) -> bool:
    """Return the direction of a row, by its language or else its first letter, as browsers do."""
    if row.language:
        return is_right_to_left(row.language)
    directions = (unicodedata.bidirectional(letter) for letter in row.sentence)
    return (
        next((direction for direction in directions if direction in ("L", "R", "AL")), "L") != "L"
    )


def _choose_font(text: str, fonts: Sequence[str | Path]) -> _Font:
    """Return the font that lacks the fewest letters of a text, preferring ``fonts``."""
    available = (*map(open_font, fonts), *_installed_fonts(_FONTS))
    return min(available, key=lambda font: len(_missing(font, text)))


@cache
def _installed_fonts(names: tuple[str, ...]) -> tuple[_Font, ...]:
    fonts: list[_Font] = []
    for name in names:
        try:
            fonts.append(ImageFont.truetype(name, _SIZE))
        except OSError:
            continue
    return (*fonts, ImageFont.load_default(_SIZE))


def _missing(font: _Font, text: str) -> list[str]:
    """Return the letters of a text that a font lacks, which it draws all as the same box."""
    box = _glyph(font, _NONCHARACTER)
    return [
        letter for letter in dict.fromkeys(text) if letter.isalnum() and _glyph(font, letter) == box
    ]


def _glyph(font: _Font, letter: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(letter)
    return mask.size, bytes(mask)


def _shorten(word: str, font: _Font, width: int) -> str:
    while len(word) > 1 and font.getlength(word) > width:
        word = word[:-2] + "…"
    return word


def _wrap(text: str, font: _Font, width: int) -> list[str]:
    """Wrap a text into lines, at spaces where there are some."""
    text = " ".join(text.split())
    lines = []
    while len(text) > 1 and font.getlength(text) > width:
        # The longest prefix that fits.
        end = bisect_right(range(len(text)), width, key=lambda n: ceil(font.getlength(text[:n])))
        end -= 1
        space = text.rfind(" ", 0, end + 1)
        end = space if space > 0 else max(1, end)
        lines.append(text[:end])
        text = text[end:].lstrip()
    return [*lines, text]


def _data_uri(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.save(stream, "WEBP", quality=85)
    return "data:image/webp;base64," + b64encode(stream.getvalue()).decode()

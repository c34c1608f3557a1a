"""Search results in a terminal, pictures included.

A picture is drawn with half blocks: each character shows two pixels, one above
the other, as its foreground and its background colour. Any terminal with
colours can show it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL.Image import Image, Resampling

from polyglance.languages import describe
from polyglance.search.showing.results import Answer, Hit

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


COLUMNS = 16
"""How wide a hit is drawn: four of them fit in a terminal of 80."""


def half_blocks(picture: Image, columns: int = COLUMNS) -> Text:
    """A picture as coloured half blocks, ``columns`` characters wide and at most as high."""
    from rich.style import Style
    from rich.text import Text

    lines = min(columns, max(1, round(columns * picture.height / picture.width / 2)))
    small = picture.convert("RGB").resize((columns, 2 * lines), Resampling.BOX)
    text = Text(no_wrap=True)
    for row in range(0, 2 * lines, 2):
        for column in range(columns):
            above, below = small.getpixel((column, row)), small.getpixel((column, row + 1))
            text.append("▀", Style.parse(f"{_colour(above)} on {_colour(below)}"))
        text.append("\n")
    return text


def answers_table(answers: Sequence[Answer], *, title: str | None = None) -> RenderableType:
    """Queries, each above the row of its hits."""
    from rich import box
    from rich.columns import Columns
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    panels = []
    for answer in answers:
        heading = Text.assemble(
            (f"{describe(answer.language).english}  " if answer.language else "", "bold cyan"),
            (answer.query, "bold"),
            (f"  {answer.meaning}" if answer.meaning else "", "dim"),
        )
        hits = Columns([_hit(hit) for hit in answer.hits], padding=(0, 2))
        panels.append(Panel(hits, title=heading, title_align="left", box=box.ROUNDED))
    return Group(*([Text(title, style="bold")] if title else []), *panels)


def _hit(hit: Hit) -> RenderableType:
    from rich.text import Text

    mark = {True: (" ✓", "bold green"), False: (" ✗", "red"), None: ("", "")}[hit.right]
    name = textwrap.wrap(hit.name, COLUMNS, max_lines=2, placeholder="…")
    return Text.assemble(
        half_blocks(hit.picture), f"{hit.score:.2f}", mark, ("\n" + "\n".join(name), "dim")
    )


def _colour(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    red, green, blue = pixel[:3]
    return f"#{red:02x}{green:02x}{blue:02x}"

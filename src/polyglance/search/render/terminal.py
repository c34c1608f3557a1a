"""Search results in a terminal, images included.

An image is drawn with half blocks: each character shows two pixels, one above the other, as its
foreground and its background colour. Any terminal with colours can show it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL.Image import Image, Resampling

from polyglance.languages import get_language
from polyglance.search.render.results import QueryResult, RenderedHit

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


COLUMNS = 16
"""Width of a hit in characters: four fit in a terminal of 80."""


def half_blocks(image: Image, columns: int = COLUMNS) -> Text:
    """Draw an image as coloured half blocks, ``columns`` characters wide and at most as high."""
    from rich.style import Style
    from rich.text import Text

    lines = min(columns, max(1, round(columns * image.height / image.width / 2)))
    small = image.convert("RGB").resize((columns, 2 * lines), Resampling.BOX)
    text = Text(no_wrap=True)
    for row in range(0, 2 * lines, 2):
        for column in range(columns):
            above, below = small.getpixel((column, row)), small.getpixel((column, row + 1))
            text.append("▀", Style.parse(f"{_colour(above)} on {_colour(below)}"))
        text.append("\n")
    return text


def results_table(
    results: Sequence[QueryResult], *, title: str | None = None, numbered: bool = False
) -> RenderableType:
    """Lay out queries, each above the row of its hits.

    Args:
        results: Queries with their hits.
        title: A line above them.
        numbered: Number the hits instead of naming them, for a list that names them in full.

    Returns:
        What rich prints.
    """
    from rich import box
    from rich.columns import Columns
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    panels = []
    for result in results:
        heading = Text.assemble(
            (
                f"{get_language(result.language).english_name}  " if result.language else "",
                "bold cyan",
            ),
            (result.query, "bold"),
            (f"  {result.translation}" if result.translation else "", "dim"),
        )
        hits = Columns(
            [
                _hit(hit, number if numbered else None)
                for number, hit in enumerate(result.hits, start=1)
            ],
            padding=(0, 2),
        )
        panels.append(Panel(hits, title=heading, title_align="left", box=box.ROUNDED))
    return Group(*([Text(title, style="bold")] if title else []), *panels)


def _hit(hit: RenderedHit, number: int | None) -> RenderableType:
    from rich.text import Text

    mark = {True: (" ✓", "bold green"), False: (" ✗", "red"), None: ("", "")}[hit.is_correct]
    if number is not None:
        return Text.assemble(half_blocks(hit.image), (f"{number}", "bold"), f"  {hit.shown_score}")
    name = textwrap.wrap(hit.name, COLUMNS)
    return Text.assemble(
        half_blocks(hit.image), hit.shown_score, mark, ("\n" + "\n".join(name), "dim")
    )


def _colour(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    red, green, blue = pixel[:3]
    return f"#{red:02x}{green:02x}{blue:02x}"

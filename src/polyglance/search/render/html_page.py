"""Search results as one self-contained HTML page, images included."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path

from PIL.Image import Image

from polyglance.errors import printable
from polyglance.languages import get_language
from polyglance.records import atomic_write
from polyglance.search.render.results import QueryResult, RenderedHit

_GENERATOR = '<meta name="generator" content="Polyglance">'
_STYLE = """
:root {
  color-scheme: light dark;
  font: 16px/1.4 system-ui, sans-serif;
  --paper: light-dark(#ffffff, #0d1117);
  --ink: light-dark(#1f2328, #e6edf3);
  --soft: light-dark(#59636e, #9198a1);
  --right: light-dark(#1a7f37, #3fb950);
}
body { max-width: 72rem; margin: 2rem auto; padding: 0 1.5rem; }
body { background: var(--paper); color: var(--ink); }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h1 + p { margin: 0 0 1.8rem; max-width: 50rem; color: var(--soft); }
main { display: grid; gap: 1.7rem 2rem; }
main { grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); }
section { min-width: 0; }
section:only-child { grid-column: 1 / -1; }
section h3 { font-size: .85rem; margin: 1.2rem 0 .5rem; color: var(--soft); }
figcaption small { display: block; font-style: italic; }
h2 { font-size: 1.05rem; line-height: 1.3; margin: 0; }
section > p { margin: 0 0 .5rem; font-size: .8rem; color: var(--soft); }
ol { list-style: none; margin: 0; padding: 0; }
ol { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fill, minmax(6.5rem, 1fr)); }
section:only-child ol { grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }
figure { margin: 0; }
img { display: block; width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: .5rem; }
.right img { outline: 3px solid var(--right); outline-offset: 1px; }
.right figcaption::before { content: "✓ "; color: var(--right); font-weight: bold; }
figcaption { margin-top: .25rem; font-size: .7rem; line-height: 1.25; color: var(--soft); }
figcaption { overflow-wrap: anywhere; }
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: .15em; }
footer { margin-top: 2.2rem; font-size: .7rem; line-height: 1.5; color: var(--soft); }
"""


def write_html_page(
    path: str | Path, results: Sequence[QueryResult], *, title: str, note: str = ""
) -> None:
    """Write queries and their hits as a page; image credits are at its foot.

    Args:
        path: The file to write.
        results: Queries with their hits.
        title: The page's title.
        note: A paragraph below the title.
    """
    body = "\n".join(_section(result) for result in results)
    with atomic_write(path) as out:
        out.write(
            "<!doctype html>\n"
            '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"{_GENERATOR}\n"
            f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
            f"<body>\n<h1>{html.escape(title)}</h1>\n<p>{html.escape(note)}</p>\n"
            f"<main>\n{body}\n</main>\n{_credits(results)}</body>\n</html>\n"
        )


def is_own_page(path: Path) -> bool:
    """Return whether a file is a page of `write_html_page`, which may be replaced."""
    with path.open("rb") as file:
        return _GENERATOR.encode() in file.read(1000)


def _section(result: QueryResult) -> str:
    language = get_language(result.language) if result.language else None
    # If the language is unknown, the browser takes the direction from the first letter.
    attributes = (
        f'lang="{language.code}" dir="{"rtl" if language.right_to_left else "ltr"}"'
        if language
        else 'dir="auto"'
    )
    parts = (language and language.english_name, result.translation)
    subtitle = " · ".join(part for part in parts if part)
    fold = len(result.hits) if result.fold is None else result.fold
    lists = [_list(result.hits[:fold])] if fold or not result.hits else []
    if fold < len(result.hits):
        heading = "Less certain" if fold else "Nothing fits well; the nearest"
        lists += [f"<h3>{heading}</h3>", _list(result.hits[fold:])]
    return (
        f"<section>\n<h2><span {attributes}>{html.escape(result.query)}</span></h2>\n"
        f"<p>{html.escape(subtitle)}</p>\n{chr(10).join(lists)}\n</section>"
    )


def _list(hits: Sequence[RenderedHit]) -> str:
    return "\n".join(["<ol>", *(_figure(hit) for hit in hits), "</ol>"])


def _figure(hit: RenderedHit) -> str:
    css_class = ' class="right"' if hit.is_correct else ""
    name, credit = html.escape(hit.name), html.escape(hit.credit)
    tooltip = f' title="{credit}"' if credit else ""
    image = f'<img src="{data_uri(hit.image)}" alt="{name}"{tooltip}>'
    if hit.file is not None:
        about = (printable(str(hit.file)), hit.taken and f"{hit.taken:%Y-%m-%d %H:%M}")
        tip = html.escape(" · ".join(part for part in about if part))
        link = f'<a href="{html.escape(hit.file.as_uri())}" title="{tip}">'
        # Cameras give files of different folders the same names.
        folder = html.escape(printable(hit.file.parent.name))
        image, name = f"{link}{image}</a>", f"{link}{f'{folder}/' if folder else ''}{name}</a>"
    reasons = f"<small>{html.escape(hit.reasons)}</small>" if hit.reasons else ""
    return (
        f"<li{css_class}><figure>{image}"
        f"<figcaption>{hit.shown_score} {name}{reasons}</figcaption></figure></li>"
    )


def _credits(results: Sequence[QueryResult]) -> str:
    """Return the foot of the page, with each credited image once."""
    credited = {hit.name: hit for result in results for hit in result.hits if hit.credit}
    if not credited:
        return ""
    lines = " · ".join(_credit(hit) for _, hit in sorted(credited.items()))
    return f"<footer>Pictures: {lines}</footer>\n"


def _credit(hit: RenderedHit) -> str:
    name = html.escape(hit.name)
    if hit.link:
        name = f'<a href="{html.escape(hit.link)}">{name}</a>'
    return f"{name} ({html.escape(hit.credit)})"


def data_uri(image: Image, side: int = 256) -> str:
    """Return a small version of an image as an address that contains it."""
    stream = io.BytesIO()
    thumbnail = image.convert("RGB")
    thumbnail.thumbnail((side, side))
    thumbnail.save(stream, "WEBP", quality=85)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode()

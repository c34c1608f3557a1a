"""Search results as one HTML page that needs nothing beside it: pictures lie inside."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path

from PIL.Image import Image

from polyglance.languages import describe
from polyglance.records import replacing
from polyglance.search.results import Answer, Hit

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.4 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
section { margin: 1.5rem 0; }
h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
h2 small { font-weight: normal; opacity: .65; margin-inline-start: .6rem; }
ol { list-style: none; display: flex; flex-wrap: wrap; gap: .8rem; margin: 0; padding: 0; }
figure { margin: 0; width: 8rem; }
img { width: 100%; border-radius: .4rem; display: block; border: 3px solid transparent; }
.right img { border-color: #2da44e; }
figcaption { font-size: .8rem; opacity: .75; overflow-wrap: anywhere; }
"""


def write_sheet(path: str | Path, answers: Sequence[Answer], *, title: str, note: str = "") -> None:
    """Write queries and their hits as a contact sheet, with a ``note`` below the title."""
    body = "\n".join(_section(answer) for answer in answers)
    with replacing(path) as out:
        out.write(
            "<!doctype html>\n"
            '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
            f"<body>\n<h1>{html.escape(title)}</h1>\n<p>{html.escape(note)}</p>\n{body}\n</body>\n</html>\n"
        )


def _section(answer: Answer) -> str:
    language = describe(answer.language)
    direction = "rtl" if language.right_to_left else "ltr"
    hits = "\n".join(_figure(hit) for hit in answer.hits)
    return (
        f'<section>\n<h2><span lang="{language.code}" dir="{direction}">'
        f"{html.escape(answer.query)}</span>"
        f"<small>{html.escape(language.english)}</small></h2>\n<ol>\n{hits}\n</ol>\n"
        "</section>"
    )


def _figure(hit: Hit) -> str:
    frame = ' class="right"' if hit.right else ""
    name = html.escape(hit.name)
    return (
        f'<li{frame}><figure><img src="{_data_uri(hit.picture)}" alt="{name}">'
        f"<figcaption>{hit.score:.2f} {name}</figcaption></figure></li>"
    )


def _data_uri(picture: Image) -> str:
    stream = io.BytesIO()
    thumbnail = picture.convert("RGB")
    thumbnail.thumbnail((256, 256))
    thumbnail.save(stream, "WEBP", quality=85)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode()

"""Read the text inside pictures, by RapidOCR, whose package carries its weights.

Its default recogniser reads Latin, Chinese and Japanese scripts. A picture takes about a second of
two cores, so that texts are read only if asked for: ``polyglance index --ocr``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.search.files import read_content
from polyglance.search.limited_decoding import decode_for_library
from polyglance.search.store import Details
from polyglance.utils.progress import progress
from polyglance.vision.limited_decoding import DecodeLimits

if TYPE_CHECKING:
    from PIL.Image import Image

TextReader: TypeAlias = "Callable[[Image], str]"
"""Returns the text inside an image; an empty one if there is none."""

MIN_SIDE = 640
"""Pixels of the shorter side at which pictures are read, times one and a half at most."""
MIN_CONFIDENCE = 0.6
"""Less certain lines are left out: patterns of leaves and bricks are no text."""
MAX_CHARACTERS = 10_000
BATCH_SIZE = 16
"""Texts that are stored together."""


class TextStore(Protocol):
    """The store of a library, as far as texts are concerned."""

    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""

    def details(self, paths: Sequence[str]) -> dict[str, Details]:
        """Return the details of these items, by path."""

    def put_details(self, details: Mapping[str, Details]) -> None:
        """Replace the details of items, by path."""


def open_text_reader() -> TextReader:
    """Load RapidOCR."""
    try:
        from rapidocr import RapidOCR
    except ModuleNotFoundError as missing:
        raise MissingExtraError("reading text in pictures", "ocr") from missing
    engine = RapidOCR(params={"Global.log_level": "critical"})

    def read(image: Image) -> str:
        pixels = np.asarray(image.convert("RGB"))[:, :, ::-1]  # as OpenCV orders them
        found: Any = engine(np.ascontiguousarray(pixels))
        lines = zip(found.txts or (), found.scores or (), strict=True)
        sure = [text.strip() for text, score in lines if score >= MIN_CONFIDENCE]
        return "\n".join(line for line in sure if line)[:MAX_CHARACTERS]

    return read


def read_texts(
    store: TextStore,
    reader: TextReader,
    limits: DecodeLimits,
    *,
    quiet: bool = True,
) -> int:
    """Read the texts of all pictures that were not read yet, and store them.

    A run that is killed is continued by the next. A picture that cannot be decoded now, or whose
    file changed since it was indexed, is left for another run.

    Args:
        store: The library.
        reader: Reads an image.
        limits: What decoding a file may take.
        quiet: Show no progress bar.

    Returns:
        How many pictures have text.
    """
    rows = store.fetch_all(
        "SELECT path, content FROM items LEFT JOIN details ON details.item = items.id"
        " WHERE kind = 'picture' AND ocr_text IS NULL ORDER BY items.id"
    )
    count, pending = 0, dict[str, str]()
    with progress("Reading texts", len(rows), quiet=quiet) as advance:
        for path, text in _texts(rows, reader, limits):
            advance(1)
            if text is not None:
                pending[path] = text
                count += bool(text)
            if len(pending) >= BATCH_SIZE:
                _store(store, pending)
                pending = {}
        _store(store, pending)
    return count


def _texts(
    rows: list[Any], reader: TextReader, limits: DecodeLimits
) -> Iterator[tuple[str, str | None]]:
    """Yield paths with their texts; None where a picture cannot be read."""
    for path, content_hash in rows:
        try:
            content = read_content(path, lambda size: size <= limits.max_memory)
            if content.data is None or content.digest != content_hash:
                yield path, None
                continue
            picture = decode_for_library(content.data, path, limits, min_side=MIN_SIDE)
        except (OSError, PolyglanceError):
            yield path, None
            continue
        yield path, reader(picture.image)


def _store(store: TextStore, texts: dict[str, str]) -> None:
    if texts:
        known = store.details(list(texts))
        store.put_details(
            {
                path: replace(known.get(path, Details()), ocr_text=text)
                for path, text in texts.items()
            }
        )

"""Pictures as a reader takes them: cells of the dual encoder's feature map.

A reader may read pictures at a larger size than the dual encoder indexes them. The dual encoder's
vector at that size then comes with the cells, and its cosine, averaged with that of the vector in a
library, is a better one (test-time augmentation): re-ranking uses it. A question is asked about
several parts of a picture, which show small things larger, and its answers are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.image_sessions import open_image_session
from polyglance.encoders.inputs import picture_from_memory
from polyglance.encoders.model_folder import PICTURE, REINSTALL_HINT, STANDARD_NAMES, ModelFolder
from polyglance.encoders.protocol import Picture
from polyglance.encoders.reader_files import ReaderConfig, unusable
from polyglance.encoders.sessions import normalise_pixels, picture_pixels, run_session
from polyglance.encoders.subgraph import add_output, cut_graph, input_of_weight
from polyglance.errors import DataError
from polyglance.vision.pictures import Box, decoding_side, read_picture

_FIRST_CELLS = "visual_input.weight"
"""The layer of the dual encoder that takes the cells."""

CROPS: Mapping[Box, float] = {
    (0.0, 0.0, 1.0, 1.0): 0.5,
    (0.0, 0.0, 0.75, 0.75): 0.125, (0.25, 0.0, 1.0, 0.75): 0.125,
    (0.0, 0.25, 0.75, 1.0): 0.125, (0.25, 0.25, 1.0, 1.0): 0.125,
}  # fmt: skip
"""Parts of a picture that a question is asked about, the whole first, and the weights of the
answers. None is mirrored, because left would be right."""
_MAX_ZOOM = 4 / 3
"""How much larger the smallest part shows things."""

Floats = NDArray[np.float32]


class EncodedPicture(NamedTuple):
    """A picture, for any number of texts."""

    rows: NDArray[np.float16]
    """What the reader makes of the cells' mean, then of the cells row by row, (1 + cells, width).
    """
    vector: Floats | None
    """The dual encoder's unit vector at the reader's size; None where it is the library's own."""


class PictureCells:
    """The part of a dual encoder's image network that a reader shares."""

    def __init__(self, folder: ModelFolder, config: ReaderConfig) -> None:
        """Prepare to open the network of ``folder`` for the reader that ``config`` describes."""
        settings = folder.description.pictures
        assert settings is not None
        self.folder, self.grid = folder, config.grid
        self.min_side = decoding_side(settings.size)
        """Pixels a side below which a larger picture must not be decoded."""
        self.settings = replace(settings, size=config.image_size or settings.size)
        self.own_size = self.settings.size != settings.size

    def encode(
        self, pictures: Sequence[Picture], threads: int
    ) -> list[tuple[Floats, Floats | None]]:
        """Return each picture's cells and vector; a thread takes one picture at a time."""
        if min(len(pictures), threads) < 2:
            return [self._run(picture) for picture in pictures]
        with ThreadPoolExecutor(threads, thread_name_prefix="cells") as pool:
            return list(pool.map(self._run, pictures))

    def cells(self, picture: Picture) -> Floats:
        """Return the cells of one picture."""
        return self._run(picture)[0]

    def crops(self, picture: Picture, boxes: Iterable[Box], threads: int) -> Floats:
        """Return the cells of some parts of a picture, (parts, 1 + cells, width)."""
        side = round(decoding_side(self.settings.size) * _MAX_ZOOM)
        if isinstance(picture, str | Path):
            opened = read_picture(picture, min_side=side)
        else:
            opened = picture_from_memory(picture, min_side=side)
        width, height = opened.size
        parts = [
            opened.crop(
                (round(x0 * width), round(y0 * height), round(x1 * width), round(y1 * height))
            )
            for x0, y0, x1, y1 in boxes
        ]
        with ThreadPoolExecutor(threads, thread_name_prefix="crops") as pool:
            return np.stack(list(pool.map(self.cells, parts)))

    def _run(self, picture: Picture) -> tuple[Floats, Floats | None]:
        pixels, path = picture_pixels(picture, self.settings)[None], self.folder.path / PICTURE
        if self.folder.description.format < STANDARD_NAMES:
            inputs: dict[str, NDArray[Any]] = {"pixels": pixels}
        else:
            inputs = {"pixel_values": normalise_pixels(pixels, self.settings)}
        *vectors, cells = run_session(self.session, path, **inputs)
        if cells.shape[1] != 1 + self.grid**2:
            raise DataError(
                f"{path} has {cells.shape[1] - 1} cells and its reader takes {self.grid**2}:"
                f" {REINSTALL_HINT}"
            )
        return cells[0], vectors[0][0] if vectors else None

    @cached_property
    def session(self) -> Any:
        """The network, which gives the cells, and at another size than the library's a vector."""
        content, path = self.folder.read_file(PICTURE), self.folder.path / PICTURE
        try:
            name = input_of_weight(content, _FIRST_CELLS)
            content = (add_output if self.own_size else cut_graph)(content, name)
        except ValueError as error:
            raise unusable(path, error) from error
        # A thread that has a picture of its own waits for no other.
        return open_image_session(content, path, threads=1)

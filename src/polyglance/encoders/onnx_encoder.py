"""An exported model at work: ONNX Runtime, and nothing that knows of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.folder import PICTURE, TEXT, VOCABULARY, ModelFolder
from polyglance.encoders.protocol import Picture, Vectors
from polyglance.encoders.unigram import UnigramTokenizer
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.pictures import read_square, to_square

if TYPE_CHECKING:
    from PIL import Image

_TEXTS, _SUB_WORDS, _PICTURES = 64, 2048, 8
"""The most that one run of a graph is given: texts, sub-words with padding, pictures."""


class OnnxEncoder:
    """An `Encoder` from a model folder.

    Each graph is loaded when it is first needed: who searches only by text
    never waits for the picture network.
    """

    def __init__(self, folder: ModelFolder, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise PolyglanceError(f"{threads} threads cannot compute: give 1 or more")
        self.folder = folder
        self.threads = threads

    @property
    def name(self) -> str:
        """The model's name."""
        return self.folder.description.name

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.folder.description.width

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """A unit vector for each text; texts of like length are computed together."""
        _expect_list(texts)
        vectors = np.empty((len(texts), self.width), np.float32)
        longest = self.folder.description.longest
        ids = [self._tokenizer.encode(text, longest) for text in texts]
        for block in _alike([len(one) for one in ids]):
            lengths = np.array([len(ids[number]) for number in block], np.int64)
            places = np.zeros((len(block), lengths.max()), np.int64)
            for row, number in enumerate(block):
                places[row, : lengths[row]] = ids[number]
            vectors[block] = self._text.run(None, {"places": places, "lengths": lengths})[0]
        return vectors

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """A unit vector for each picture: a file, an opened picture, or pixels as uint8."""
        _expect_list(pictures)
        vectors = np.empty((len(pictures), self.width), np.float32)
        for start in range(0, len(pictures), _PICTURES):
            block = slice(start, start + _PICTURES)
            pixels = np.stack([self._pixels(picture) for picture in pictures[block]])
            vectors[block] = self._picture.run(None, {"pixels": pixels})[0]
        return vectors

    @cached_property
    def _tokenizer(self) -> UnigramTokenizer:
        source = str(self.folder.path / VOCABULARY)
        vocabulary = Vocabulary.from_bytes(self.folder.read(VOCABULARY), source)
        return UnigramTokenizer(vocabulary)

    @cached_property
    def _text(self) -> Any:
        return self._session(TEXT)

    @cached_property
    def _picture(self) -> Any:
        return self._session(PICTURE)

    def _session(self, name: str) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if self.threads is not None:
            options.intra_op_num_threads = self.threads
            options.inter_op_num_threads = 1
        content = self.folder.read(name)
        try:
            return onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the runtime has kinds of its own, all of them Exceptions
            detail = " ".join(str(error).split())
            raise DataError(
                f"{self.folder.path / name} cannot be run by ONNX Runtime"
                f" {onnxruntime.__version__} ({detail}): pip install --upgrade onnxruntime"
            ) from error

    def _pixels(self, picture: Picture) -> NDArray[np.uint8]:
        settings = self.folder.description.pictures
        if isinstance(picture, str | Path):
            return read_square(picture, settings.size, settings.resize).pixels
        return to_square(_upright_rgb(picture), settings.size, settings.resize).pixels


def _expect_list(items: Sequence[object]) -> None:
    if isinstance(items, str | Path):
        raise PolyglanceError(f"expected a list and was given {str(items)!r}: put it in brackets")


def _alike(lengths: list[int]) -> Iterator[NDArray[np.intp]]:
    """Numbers of texts in blocks of like length, each as large as may be computed at once."""
    order = np.argsort(lengths, kind="stable")[::-1]
    start = 0
    while start < len(order):
        longest = lengths[order[start]]
        count = max(1, min(_TEXTS, _SUB_WORDS // longest))
        yield order[start : start + count]
        start += count


def _upright_rgb(picture: Image.Image | NDArray[np.uint8]) -> Image.Image:
    """An opened picture or pixels as files are read: turned by EXIF, transparent parts on white."""
    from PIL import Image, ImageOps

    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim not in (2, 3):
            raise PolyglanceError(
                f"pixels are uint8 of (height, width, RGB), not {picture.dtype} {picture.shape}"
            )
        picture = Image.fromarray(picture)
    picture = ImageOps.exif_transpose(picture)
    if picture.has_transparency_data:
        rgba = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return picture.convert("RGB")

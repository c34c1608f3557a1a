"""An exported model at work: ONNX Runtime, and nothing that knows of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.folder import PICTURE, TEXT, VOCABULARY, WAY_OUT, ModelFolder
from polyglance.encoders.inputs import in_memory, listed, listed_texts
from polyglance.encoders.protocol import Picture, Vectors
from polyglance.encoders.unigram import UnigramTokenizer
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.encoders.word_vocabulary import WordVocabulary
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.pictures import read_square, to_square

_TEXTS, _SUB_WORDS, _PICTURES = 64, 2048, 8
"""The most that one run of a graph is given: texts, (sub-)words with padding, pictures."""


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

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides on the vectors, whatever the folder is called."""
        return self.folder.description.fingerprint

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """A unit vector for each text; texts of like length are computed together.

        See `Encoder.encode_texts` for ``language``.
        """
        texts = listed_texts(texts)
        vectors = np.empty((len(texts), self.width), np.float32)
        longest = self.folder.description.longest
        ids = [self._tokenizer.encode(text, longest, language) for text in texts]
        for block in _alike([len(one) for one in ids]):
            lengths = np.array([len(ids[number]) for number in block], np.int64)
            places = np.zeros((len(block), max(1, lengths.max())), np.int64)
            for row, number in enumerate(block):
                places[row, : lengths[row]] = ids[number]
            vectors[block] = self._run(TEXT, self._text, places=places, lengths=lengths)
        return vectors

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """A unit vector for each picture: a file, an opened picture, or pixels as uint8."""
        pictures = listed(pictures)
        vectors = np.empty((len(pictures), self.width), np.float32)
        for start in range(0, len(pictures), _PICTURES):
            block = slice(start, start + _PICTURES)
            pixels = np.stack([self._pixels(picture) for picture in pictures[block]])
            vectors[block] = self._run(PICTURE, self._picture, pixels=pixels)
        return vectors

    @cached_property
    def _tokenizer(self) -> UnigramTokenizer | WordVocabulary:
        source, content = str(self.folder.path / VOCABULARY), self.folder.read(VOCABULARY)
        if self.folder.description.text == "words":
            return WordVocabulary.from_bytes(content, source)
        return UnigramTokenizer(Vocabulary.from_bytes(content, source))

    @cached_property
    def _text(self) -> Any:
        session = self._session(TEXT)
        self._compare(TEXT, "width", session.get_outputs()[0].shape[-1], self.width)
        return session

    @cached_property
    def _picture(self) -> Any:
        session = self._session(PICTURE)
        self._compare(PICTURE, "width", session.get_outputs()[0].shape[-1], self.width)
        size = self.folder.description.pictures.size
        self._compare(PICTURE, "size of pictures", session.get_inputs()[0].shape[1], size)
        return session

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
            raise DataError(
                f"{self.folder.path / name} cannot be run by ONNX Runtime"
                f" {onnxruntime.__version__} ({_line(error)}): pip install --upgrade onnxruntime"
            ) from error

    def _run(self, name: str, session: Any, **inputs: NDArray[Any]) -> Vectors:
        try:
            vectors: Vectors = session.run(None, inputs)[0]
        except Exception as error:
            raise DataError(
                f"{self.folder.path / name} does not compute as its description says"
                f" ({_line(error)}): {WAY_OUT}"
            ) from error
        return vectors

    def _compare(self, name: str, what: str, in_graph: object, described: int) -> None:
        if in_graph != described:
            raise DataError(
                f"{self.folder.path / name} has a {what} of {in_graph} and its description says"
                f" {described}: {WAY_OUT}"
            )

    def _pixels(self, picture: Picture) -> NDArray[np.uint8]:
        settings = self.folder.description.pictures
        if isinstance(picture, str | Path):
            return read_square(picture, settings.size, settings.resize).pixels
        return to_square(in_memory(picture), settings.size, settings.resize).pixels


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _alike(lengths: list[int]) -> Iterator[NDArray[np.intp]]:
    """Numbers of texts in blocks of like length, each as large as may be computed at once."""
    order = np.argsort(lengths, kind="stable")[::-1]
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])  # a text without a known word is empty
        count = max(1, min(_TEXTS, _SUB_WORDS // longest))
        yield order[start : start + count]
        start += count

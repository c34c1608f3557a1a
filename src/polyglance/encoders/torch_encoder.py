"""What encoders that compute with torch have in common, whichever package made the model.

An adapter says how its package opens a folder, reads texts and sees pictures. Checks,
blocks, threads, unit vectors and the fingerprint are here. Nothing is fetched from a
network, and no weights are opened but safetensors: pickles can run code.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from polyglance.encoders.inputs import listed, listed_texts, opened
from polyglance.encoders.protocol import Picture, Vectors
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.devices import check_device, computing_on
from polyglance.weights import sha256_of

if TYPE_CHECKING:
    from PIL.Image import Image

_TEXTS, _PICTURES = 64, 8
"""The most that a network is given at once."""
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_DECISIVE = frozenset(
    {"config.json", "preprocessor_config.json", "processor_config.json", "open_clip_config.json"}
    | {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
    | {"vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model"}
    | {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}
    | {"router_config.json"}
)
"""Files that decide on the vectors, beside weights; a folder may hold notes and results as well."""
_OPENING = RLock()
"""What `opening` changes is of the whole process."""


class TorchEncoder(ABC):
    """An `Encoder` from a folder of another package; it is opened when it is first needed."""

    def __init__(self, folder: Path, threads: int | None = None, device: str = "cpu") -> None:
        if threads is not None and threads < 1:
            raise PolyglanceError(f"{threads} threads cannot compute: give 1 or more")
        check_device(device)
        self.folder = folder
        self.threads = threads
        self.device = device

    @abstractmethod
    def read(self, texts: list[str]) -> torch.Tensor:
        """The model's own vectors of some texts."""

    @abstractmethod
    def prepare(self, picture: Image) -> Any:
        """A picture, upright and in RGB, as the model takes it."""

    @abstractmethod
    def see(self, prepared: list[Any]) -> torch.Tensor:
        """The model's own vectors of some prepared pictures."""

    @property
    def name(self) -> str:
        """The folder's name; of one in the model hub's cache, the model's there."""
        path = self.folder.resolve()
        if path.parent.name == "snapshots":  # models--owner--model/snapshots/revision
            return path.parent.parent.name.rpartition("--")[2]
        return path.name

    @cached_property
    def width(self) -> int:
        """Numbers in a vector."""
        return int(self._computed(self.read, [""]).shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """A hash over the files that decide on the vectors, whatever the folder is called."""
        return self.hashed()

    def hashed(self) -> str:
        """The fingerprint, computed: every byte of the weights is read."""
        whole = hashlib.sha256()
        for path in self.decisive_files():
            whole.update(f"{path.relative_to(self.folder)} {sha256_of(path)}\n".encode())
        return whole.hexdigest()

    def decisive_files(self) -> list[Path]:
        """The files that decide on the vectors, in a fixed order."""
        return self.decisive_in(self.folder)

    @staticmethod
    def decisive_in(folder: Path) -> list[Path]:
        """Those of one folder."""
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix == ".safetensors" or path.name in _DECISIVE
        )

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """A unit vector for each text; ``language`` is taken no notice of."""
        texts = listed_texts(texts)
        vectors = np.empty((len(texts), self.width), np.float32)
        order = np.argsort([len(text) for text in texts], kind="stable")  # like length together
        for start in range(0, len(texts), _TEXTS):
            block = order[start : start + _TEXTS]
            vectors[block] = self._computed(self.read, [texts[number] for number in block])
        return vectors

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """A unit vector for each picture: a file, an opened picture, or pixels as uint8."""
        pictures = listed(pictures)
        vectors = np.empty((len(pictures), self.width), np.float32)
        for start in range(0, len(pictures), _PICTURES):
            block = slice(start, start + _PICTURES)
            # One after the other: of a large picture only what the model takes is kept.
            prepared = [self.prepare(opened(picture)) for picture in pictures[block]]
            found = self._computed(self.see, prepared)
            if found.shape[1] != self.width:
                raise DataError(
                    f"{self.folder} makes vectors of {self.width} numbers from texts and of"
                    f" {found.shape[1]} from pictures: they cannot be compared"
                )
            vectors[block] = found
        return vectors

    def _computed(self, compute: Any, items: list[Any]) -> Vectors:
        try:
            with computing_on(self.threads), torch.inference_mode():
                found = torch.nn.functional.normalize(compute(items).float(), dim=-1)
        except (RuntimeError, ValueError, LookupError, TypeError) as error:
            raise DataError(f"{self.folder} does not compute ({_line(error)})") from error
        vectors: Vectors = found.cpu().numpy()
        if not np.isfinite(vectors).all():
            raise DataError(f"{self.folder} computes vectors that are no numbers: it is damaged")
        return vectors


def refuse_pickles(folder: Path, instead: Sequence[str] = ("*.safetensors",)) -> None:
    """Raise if a pickle would be opened; ``instead`` are the names that go before it."""
    found = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    if found and not any(path for pattern in instead for path in folder.glob(pattern)):
        raise PolyglanceError(
            f"{folder} holds its weights as {found[0]}, a pickle, which could run any code when it"
            " is opened: get the model's .safetensors file, or save it again as one"
        )


@contextmanager
def opening(folder: Path, package: str) -> Iterator[None]:
    """Open a model quietly and offline; whatever its package raises becomes one sentence."""
    try:
        with _OPENING, _quiet_and_offline():
            yield
    except PolyglanceError:
        raise
    except Exception as error:  # packages raise anything about a mangled folder
        raise DataError(f"{folder} cannot be opened by {package} ({_line(error)})") from error


@contextmanager
def _quiet_and_offline() -> Iterator[None]:
    from huggingface_hub import constants
    from transformers.utils import logging as untyped

    logging: Any = untyped
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    offline = constants.HF_HUB_OFFLINE
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

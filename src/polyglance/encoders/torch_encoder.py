"""Base class of the encoders that run on torch, whichever package made the model.

A subclass implements how its package opens a folder and embeds texts and images. Validation,
batches, threads, normalisation and the fingerprint are here. Nothing is downloaded, and only
safetensors are opened: pickles can run code.
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

from polyglance.encoders.inputs import as_list, check_texts, open_picture
from polyglance.encoders.protocol import PicklableEncoder, Picture, Vectors
from polyglance.errors import DataError, PolyglanceError
from polyglance.utils.fingerprint import file_sha256
from polyglance.vision.devices import check_device, torch_num_threads

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_TEXTS, _MAX_PICTURES = 64, 8
"""Maximum size of a batch."""
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_FINGERPRINTED = frozenset(
    {"config.json", "preprocessor_config.json", "processor_config.json", "open_clip_config.json"}
    | {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
    | {"vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model"}
    | {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}
    | {"router_config.json"}
)
"""Files that determine the vectors, beside weights; a folder may hold others as well."""
_OPEN_LOCK = RLock()
"""`open_offline` changes settings of the whole process."""


class TorchEncoder(PicklableEncoder, ABC):
    """An `Encoder` of another package's folder, opened when first needed."""

    def __init__(self, folder: Path, threads: int | None = None, device: str = "cpu") -> None:
        if threads is not None and threads < 1:
            raise PolyglanceError(f"threads must be 1 or more, not {threads}")
        check_device(device)
        self.folder = folder
        self.threads = threads
        self.device = device

    @abstractmethod
    def embed_texts(self, texts: list[str]) -> torch.Tensor:
        """Return the model's vectors of a batch of texts, (texts, width), not normalised."""

    @abstractmethod
    def preprocess(self, picture: Image) -> Any:
        """Return the model's input of an upright RGB picture."""

    @abstractmethod
    def embed_images(self, prepared: list[Any]) -> torch.Tensor:
        """Return the model's vectors of preprocessed pictures, (pictures, width)."""

    @property
    def name(self) -> str:
        """The folder's name, or the model's name in the hub's cache."""
        path = self.folder.resolve()
        if path.parent.name == "snapshots":  # models--owner--model/snapshots/revision
            return path.parent.parent.name.rpartition("--")[2]
        return path.name

    @cached_property
    def width(self) -> int:
        """Dimension of the vectors."""
        return int(self._compute(self.embed_texts, [""]).shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the files that determine the vectors, whatever the folder's name."""
        return self.compute_fingerprint()

    def compute_fingerprint(self) -> str:
        """Compute the fingerprint, which reads every byte of the weights."""
        digest = hashlib.sha256()
        for path in self.fingerprint_files():
            digest.update(f"{path.relative_to(self.folder)} {file_sha256(path)}\n".encode())
        return digest.hexdigest()

    def fingerprint_files(self) -> list[Path]:
        """Return the files that determine the vectors, in a fixed order."""
        return self.fingerprint_files_in(self.folder)

    @staticmethod
    def fingerprint_files_in(folder: Path) -> list[Path]:
        """Return those of one folder."""
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix == ".safetensors" or path.name in _FINGERPRINTED
        )

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """See `Encoder.encode_texts`; ``language`` is ignored."""
        texts = check_texts(texts)
        vectors = np.empty((len(texts), self.width), np.float32)
        order = np.argsort([len(text) for text in texts], kind="stable")  # similar lengths together
        for start in range(0, len(texts), _MAX_TEXTS):
            batch = order[start : start + _MAX_TEXTS]
            vectors[batch] = self._compute(self.embed_texts, [texts[number] for number in batch])
        return vectors

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """See `Encoder.encode_pictures`."""
        pictures = as_list(pictures)
        vectors = np.empty((len(pictures), self.width), np.float32)
        for start in range(0, len(pictures), _MAX_PICTURES):
            batch = slice(start, start + _MAX_PICTURES)
            # One by one, so that only the small inputs stay in memory.
            prepared = [self.preprocess(open_picture(picture)) for picture in pictures[batch]]
            computed = self._compute(self.embed_images, prepared)
            if computed.shape[1] != self.width:
                raise DataError(
                    f"{self.folder} encodes texts to {self.width} and pictures to"
                    f" {computed.shape[1]} dimensions: give a model with one vector space"
                )
            vectors[batch] = computed
        return vectors

    def _compute(self, embed: Any, items: list[Any]) -> Vectors:
        try:
            with torch_num_threads(self.threads), torch.inference_mode():
                normalised = torch.nn.functional.normalize(embed(items).float(), dim=-1)
        except (RuntimeError, ValueError, LookupError, TypeError) as error:
            raise DataError(f"{self.folder} does not compute ({_line(error)})") from error
        vectors: Vectors = normalised.cpu().numpy()
        if not np.isfinite(vectors).all():
            raise DataError(f"{self.folder} returned NaN: its weights are damaged; get them again")
        return vectors


def refuse_pickles(folder: Path, preferred: Sequence[str] = ("*.safetensors",)) -> None:
    """Raise an error if a pickle would be opened: there is one, and no preferred file."""
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    if pickles and not any(path for pattern in preferred for path in folder.glob(pattern)):
        raise PolyglanceError(
            f"{folder} holds its weights as {pickles[0]}, a pickle, which can run any code when"
            " opened: get the model's .safetensors file, or save it again as one"
        )


@contextmanager
def open_offline(folder: Path, package: str) -> Iterator[None]:
    """Let a package open a model quietly and offline; its errors become a `DataError`."""
    try:
        with _OPEN_LOCK, _quiet_and_offline():
            yield
    except PolyglanceError:
        raise
    except Exception as error:  # packages raise anything on a mangled folder
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

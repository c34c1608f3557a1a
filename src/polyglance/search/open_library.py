"""What an open library holds: its store, its index, its model and its re-ranker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from polyglance.encoders import Encoder
from polyglance.encoders.model_folder import DEFAULT_MODEL, ModelFolder, is_model
from polyglance.encoders.reader_files import has_reader
from polyglance.errors import PolyglanceError
from polyglance.search.backends import FileBackend, Index, backend_for, default_library
from polyglance.search.model_info import (
    Model,
    check_model,
    model_source,
    new_model_info,
    open_model,
    stored_model,
)
from polyglance.search.query import PathLike
from polyglance.search.reranking import Reranker, RerankerLike, open_scorer
from polyglance.search.store import SCANNED, LibraryNotFoundError, ModelInfo, Store
from polyglance.vision.limited_decoding import DecodeLimits

if TYPE_CHECKING:
    from polyglance.encoders.reader import Reader


class OpenLibrary:
    """Opens the parts of a library when they are first needed. Threads may share it."""

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        model: Model = None,
        reranker: RerankerLike | bool | None = None,
        threads: int | None = None,
        features: Sequence[PathLike] = (),
        limits: DecodeLimits | None = None,
    ) -> None:
        """Open a library; `add` creates it if it does not exist.

        Args:
            path: A file, or a PostgreSQL database: ``postgresql://user@host/database``. None for
                the default library (`default_library`).
            model: The model of a new library: a name, a folder or an encoder, or None for the
                default model. An existing library knows its model.
            reranker: Re-ranks the best hits: True for the reader of the library's model, the
                folder of a trained UC2 or M3P, or any
                `polyglance.search.reranking.PairScorer`.
            threads: The maximum number of cores for the model.
            features: Feature stores of the files to index, for a model of features.
            limits: What decoding a file may take while indexing.
        """
        self._backend = backend_for(default_library() if path is None else path)
        self.path = self._backend.path if isinstance(self._backend, FileBackend) else None
        self._model, self._threads = model, threads
        self._scorer: RerankerLike | bool | None = reranker or None
        self._features, self._limits = features, limits
        self._lock = threading.RLock()
        self._open_store: Store | None = None
        self._loaded_encoder: Encoder | None = None
        self._open_index: Index | None = None
        self._open_reranker: Reranker | None = None
        self._confirmed_now: set[str] = set()
        with suppress(LibraryNotFoundError):
            self._store()
            if model is not None:
                self._encoder()

    @property
    def name(self) -> str:
        """The file, or the address of the database without the password."""
        return self._backend.name

    @property
    def read_only(self) -> bool:
        """Whether the library is a file that cannot be written to."""
        return bool(getattr(self._store(), "read_only", False))

    def close(self) -> None:
        """Close the file or the connection to the database."""
        with self._lock:
            if self._open_store is not None:
                self._open_store.close()
            self._open_store = self._open_index = self._open_reranker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _store(self, *, create: bool = False, like: ModelInfo | None = None) -> Store:
        """Open the store; with ``create``, create it for ``like`` or for the library's model."""
        with self._lock:
            if self._open_store is None:
                try:
                    self._open_store, self._open_index = self._backend.open()
                except LibraryNotFoundError:
                    if not create:
                        raise
                    encoder = None if like else open_model(self._model, self._threads)
                    info = new_model_info(self._model, encoder) if encoder else like
                    self._open_store, self._open_index = self._backend.open(info)
            return self._open_store

    def _encoder(self) -> Encoder:
        """Load the model, which must be that of the library."""
        with self._lock:
            if self._loaded_encoder is None:
                info, model = self._store().model_info, self._model
                if model is None:
                    model = stored_model(info, self.name)
                encoder = open_model(model, self._threads, self._features)
                check_model(info, encoder, self.name, lambda: self._store().places(SCANNED))
                self._loaded_encoder = encoder
            return self._loaded_encoder

    @property
    def keeps_other_model(self) -> bool:
        """Whether the library was opened with a model that is not its own, which it keeps."""
        return self._model is not None and model_source(self._model) != (
            self._store().model_info.source
        )

    @property
    def model_name(self) -> str:
        """Name of the model that encodes queries: the library's, or another it was opened with."""
        return self._encoder().name if self.keeps_other_model else self._store().model_info.model

    def reader(self) -> Reader | None:
        """Return the reader of the library's model, else the default model's, else None."""
        with self._lock:
            model = self._model
            if model is None:
                model = self._store().model_info.source or None
            for name in (model, None):
                if name is not None and not (isinstance(name, str | Path) and is_model(name)):
                    continue
                folder = ModelFolder.open(name)
                if has_reader(folder):
                    from polyglance.encoders.reader import Reader

                    return Reader(folder, self._threads)
            return None

    def _reranker(self) -> Reranker | None:
        """Return the re-ranker, or None."""
        with self._lock:
            if self._open_reranker is None and self._scorer is not None:
                scorer = self._scorer
                if isinstance(scorer, bool):  # the default model says if it has no reader
                    scorer = self.reader() or DEFAULT_MODEL
                self._scorer = open_scorer(scorer, self._threads)
                self._open_reranker = Reranker(self._scorer, self._store())
            return self._open_reranker

    def _index(self) -> Index:
        if self._open_index is None:
            raise PolyglanceError(f"{self.name} is closed: open the library again")
        return self._open_index

"""Run an exported model: with ONNX Runtime, without torch; or with torch on an accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.calibration import Calibration
from polyglance.encoders.consistency import ConsistencyNetworks
from polyglance.encoders.half_precision import without_float16
from polyglance.encoders.image_sessions import open_image_session
from polyglance.encoders.inputs import as_list, check_texts
from polyglance.encoders.json_tokenizer import JsonTokenizer
from polyglance.encoders.model_folder import (
    CALIBRATION,
    CONSISTENCY,
    FEATURES,
    PICTURE,
    REINSTALL_HINT,
    STANDARD_NAMES,
    TEXT,
    VOCABULARY,
    FeatureInput,
    ModelFolder,
)
from polyglance.encoders.protocol import PicklableEncoder, Picture, Vectors
from polyglance.encoders.sessions import (
    CUDA,
    normalise_pixels,
    one_line,
    open_session,
    picture_pixels,
    run_session,
    threads_by_environment,
)
from polyglance.encoders.unigram import UnigramTokenizer
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.encoders.word_vocabulary import WordVocabulary
from polyglance.errors import DataError, PolyglanceError
from polyglance.utils.cores import available_cores
from polyglance.vision.devices import check_device

_MAX_TEXTS, _MAX_TOKENS = 64, 2048
"""Maximum size of a batch: texts, and tokens including padding."""
_DEVICE_PICTURES, _DEVICE_FACTOR = 64, 16
"""On an accelerator, pictures of a batch, and how much larger batches of texts are."""
Runtime = Literal["onnxruntime", "torch"]


class OnnxEncoder(PicklableEncoder):
    """An `Encoder` of a model folder.

    Each graph is loaded when first needed: searching by text never loads the image network.
    """

    def __init__(
        self,
        folder: ModelFolder,
        threads: int | None = None,
        device: str = "cpu",
        runtime: Runtime | None = None,
    ) -> None:
        """Open a model.

        Args:
            folder: The model.
            threads: Number of CPU threads; None for OMP_NUM_THREADS, or all cores.
            device: ``cpu``, or a device of torch such as ``cuda``.
            runtime: What computes; None for ONNX Runtime where it knows the device, else torch.
        """
        if threads is not None and threads < 1:
            raise PolyglanceError(f"threads must be 1 or more, not {threads}")
        self.folder = folder
        self.threads = threads
        self.device = device
        self.runtime = _runtime_for(device) if runtime is None else runtime
        if self.runtime == "torch":
            check_device(device)
        self._on_accelerator = device != "cpu" or self.runtime == "torch"
        self._batch_factor = _DEVICE_FACTOR if self._on_accelerator else 1

    @property
    def name(self) -> str:
        """The model's name."""
        return self.folder.description.name

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return self.folder.description.width

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines the vectors, whatever the folder's name."""
        return self.folder.description.fingerprint

    @property
    def picture_models(self) -> frozenset[str]:
        """Fingerprints of the models that are known to have its vectors of pictures."""
        return self.folder.description.picture_models

    @property
    def consistency(self) -> ConsistencyNetworks | None:
        """Trained combination of a query's scores with its translations', or None (CLC-C)."""
        return self._consistency

    @property
    def calibration(self) -> Calibration | None:
        """What makes probabilities of cosines, or None."""
        return self._calibration

    def surprisal(self, text: str) -> float | None:
        """Return how improbable a text's spelling is, in nats per byte; None if unknown."""
        tokenizer = self._tokenizer
        return tokenizer.surprisal(text) if isinstance(tokenizer, UnigramTokenizer) else None

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """See `Encoder.encode_texts`; texts of similar length share a batch."""
        texts = check_texts(texts)
        vectors = np.empty((len(texts), self.width), np.float32)
        max_length = self.folder.description.max_length
        ids = [self._tokenizer.encode(text, max_length, language) for text in texts]
        for batch in _batches([len(text) for text in ids], self._batch_factor):
            lengths = np.array([len(ids[number]) for number in batch], np.int64)
            padded = np.zeros((len(batch), max(1, lengths.max())), np.int64)
            for row, number in enumerate(batch):
                padded[row, : lengths[row]] = ids[number]
            session = self._text_session
            if self.folder.description.format < STANDARD_NAMES:
                vectors[batch] = self._run(TEXT, session, places=padded, lengths=lengths)
            else:
                mask = (np.arange(padded.shape[1]) < lengths[:, None]).astype(np.int64)
                vectors[batch] = self._run(TEXT, session, input_ids=padded, attention_mask=mask)
        return vectors

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """See `Encoder.encode_pictures`; one picture is shared by all threads, several are not.

        A thread that has a picture of its own waits for no other, and what the network computes of
        one picture fits into its core's cache: that takes a sixth less CPU time than a batch.
        """
        if self.folder.description.features is not None:
            raise PolyglanceError(
                f"{self.name} takes features of an external network and no pictures: give their"
                " feature store with --features (in Python: `with_features`)"
            )
        pictures = as_list(pictures)
        if self._on_accelerator:
            rows = self._encode_picture_batches(pictures)
        elif len(pictures) < 2:
            rows = [self._encode_picture(self._image_session, picture) for picture in pictures]
        else:
            session = self._single_thread_image_session
            threads = min(len(pictures), self._num_threads or available_cores())
            with ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
                rows = list(pool.map(partial(self._encode_picture, session), pictures))
        return np.concatenate([np.empty((0, self.width), np.float32), *rows])

    def _encode_picture_batches(self, pictures: list[Picture]) -> list[Vectors]:
        """Decode pictures in threads and encode them in batches."""
        rows = []
        with ThreadPoolExecutor(self._num_threads, thread_name_prefix="decode") as pool:
            for start in range(0, len(pictures), _DEVICE_PICTURES):
                batch = pictures[start : start + _DEVICE_PICTURES]
                pixels = np.stack(list(pool.map(self._pixels, batch)))
                rows.append(self._encode_pixels(self._image_session, pixels))
        return rows

    def _encode_picture(self, session: Any, picture: Picture) -> Vectors:
        """Encode one picture, (1, width)."""
        return self._encode_pixels(session, self._pixels(picture)[None])

    def _encode_pixels(self, session: Any, pixels: NDArray[np.uint8]) -> Vectors:
        """Encode pictures (n, size, size, RGB)."""
        if self.folder.description.format < STANDARD_NAMES:
            return self._run(PICTURE, session, pixels=pixels)
        return self._run(PICTURE, session, pixel_values=self._normalise(pixels))

    @property
    def feature_input(self) -> FeatureInput | None:
        """The features that `encode_features` takes; None for a model of pictures."""
        return self.folder.description.features

    def encode_features(self, features: Sequence[NDArray[np.floating[Any]]]) -> Vectors:
        """See `FeatureEncoder.encode_features`."""
        if (expected := self.feature_input) is None:
            raise PolyglanceError(f"{self.name} takes pictures and no features: leave features out")
        vectors = np.empty((len(features), self.width), np.float32)
        rows = [np.asarray(item, np.float32)[: expected.max_tokens] for item in features]
        for item in rows:
            if item.ndim != 2 or item.shape[1] != expected.width or not len(item):
                raise PolyglanceError(
                    f"{self.name} takes features of (1 or more, {expected.width}), not"
                    f" {item.shape}: give those of the networks that it was trained on"
                )
        for batch in _batches([len(item) for item in rows]):
            lengths = np.array([len(rows[number]) for number in batch], np.int64)
            padded = np.zeros((len(batch), lengths.max(), expected.width), np.float32)
            for row, number in enumerate(batch):
                padded[row, : lengths[row]] = rows[number]
            session = self._feature_session
            vectors[batch] = self._run(FEATURES, session, features=padded, lengths=lengths)
        return vectors

    @cached_property
    def _calibration(self) -> Calibration | None:
        if CALIBRATION not in self.folder.description.files:
            return None
        content = self.folder.read_file(CALIBRATION)
        return Calibration.from_bytes(content, str(self.folder.path / CALIBRATION))

    @cached_property
    def _consistency(self) -> ConsistencyNetworks | None:
        if CONSISTENCY not in self.folder.description.files:
            return None
        content = self.folder.read_file(CONSISTENCY)
        return ConsistencyNetworks.from_bytes(content, str(self.folder.path / CONSISTENCY))

    @cached_property
    def _tokenizer(self) -> UnigramTokenizer | WordVocabulary | JsonTokenizer:
        source, content = str(self.folder.path / VOCABULARY), self.folder.read_file(VOCABULARY)
        if self.folder.description.text == "words":
            return WordVocabulary.from_bytes(content, source)
        if self.folder.description.text == "tokenizer":
            return JsonTokenizer.from_bytes(content, source)
        return UnigramTokenizer(Vocabulary.from_bytes(content, source))

    @cached_property
    def _text_session(self) -> Any:
        session = self._session(TEXT, self._num_threads)
        self._compare(TEXT, "width", session.get_outputs()[0].shape[-1], self.width)
        return session

    @cached_property
    def _image_session(self) -> Any:
        return self._open_image_session(self._num_threads)

    @cached_property
    def _single_thread_image_session(self) -> Any:
        return self._image_session if self._num_threads == 1 else self._open_image_session(1)

    def _open_image_session(self, threads: int | None) -> Any:
        session = self._session(PICTURE, threads)
        self._compare(PICTURE, "width", session.get_outputs()[0].shape[-1], self.width)
        settings = self.folder.description.pictures
        assert settings is not None
        is_old = self.folder.description.format < STANDARD_NAMES  # channels were last
        size = session.get_inputs()[0].shape[1 if is_old else 2]
        self._compare(PICTURE, "picture size", size, settings.size)
        return session

    @cached_property
    def _feature_session(self) -> Any:
        session, expected = self._session(FEATURES, self._num_threads), self.feature_input
        assert expected is not None
        self._compare(FEATURES, "width", session.get_outputs()[0].shape[-1], self.width)
        width = session.get_inputs()[0].shape[-1]
        self._compare(FEATURES, "feature width", width, expected.width)
        return session

    @property
    def _num_threads(self) -> int | None:
        """Threads as given or by the environment, or None for one a core."""
        return self.threads or threads_by_environment()

    def _session(self, name: str, threads: int | None) -> Any:
        if self.runtime == "torch":
            return self._torch_session(name)
        content, path = self.folder.read_file(name), self.folder.path / name
        opened = open_image_session if name == PICTURE else open_session
        return opened(content, path, threads=threads, device=self.device)

    def _torch_session(self, name: str) -> Any:
        from polyglance.encoders.torch_graph import TorchSession

        try:
            return TorchSession(without_float16(self.folder.read_file(name)), self.device)
        except ValueError as error:
            raise DataError(
                f"{self.folder.path / name} cannot be read ({one_line(error)}): {REINSTALL_HINT}"
            ) from error

    def _run(self, name: str, session: Any, **inputs: NDArray[Any]) -> Vectors:
        vectors: Vectors = run_session(session, self.folder.path / name, **inputs)[0]
        return vectors

    def _compare(self, name: str, what: str, in_graph: object, described: int) -> None:
        if in_graph != described:
            raise DataError(
                f"{self.folder.path / name} has a {what} of {in_graph} and its description says"
                f" {described}: {REINSTALL_HINT}"
            )

    def _normalise(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        settings = self.folder.description.pictures
        assert settings is not None
        return normalise_pixels(pixels, settings)

    def _pixels(self, picture: Picture) -> NDArray[np.uint8]:
        settings = self.folder.description.pictures
        assert settings is not None
        return picture_pixels(picture, settings)


def _runtime_for(device: str) -> Runtime:
    """Return ONNX Runtime if it computes on a device, else torch."""
    if device == "cpu":
        return "onnxruntime"
    if device.split(":")[0] == "cuda":
        import onnxruntime

        if CUDA in onnxruntime.get_available_providers():
            return "onnxruntime"
    return "torch"


def _batches(lengths: list[int], factor: int = 1) -> Iterator[NDArray[np.intp]]:
    """Yield the indices of texts in batches of similar length, each as large as allowed."""
    order = np.argsort(lengths, kind="stable")[::-1]
    start = 0
    while start < len(order):
        length = max(1, lengths[order[start]])  # a text without a known word is empty
        count = max(1, min(factor * _MAX_TEXTS, factor * _MAX_TOKENS // length))
        yield order[start : start + count]
        start += count

"""Encode files into entries of a library; used by indexing and by bulk encoding."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from polyglance.encoders import Encoder
from polyglance.encoders.stored_features import StoredFeatureEncoder
from polyglance.errors import DataError, PolyglanceError, error_reason, printable
from polyglance.search.clips import encode_clip
from polyglance.search.files import content_hash, downscale, make_thumbnail, size_and_date
from polyglance.search.scan import ScannedFile
from polyglance.search.store import BadFile, Entry, Item
from polyglance.utils.prefetch import prefetch
from polyglance.vision.clips import can_read_clips
from polyglance.vision.pictures import PictureError, read_picture

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH_SIZE = 16
"""Images encoded together."""
PREFETCH = 2 * BATCH_SIZE
"""Files hashed, and images decoded, ahead of the encoder."""
NO_FEATURES = "no features of it are stored"
MISSING_VIDEO_EXTRA = "clips need an optional package: pip install 'polyglance[video]'"


@dataclass(frozen=True, slots=True)
class _DecodedImage:
    """An image that waits for the encoder."""

    item: Item
    image: Image
    thumbnail: bytes | None


class FileEncoder:
    """Encodes files into entries with a model."""

    def __init__(self, encoder: Callable[[], Encoder], *, thumbnails: bool = False) -> None:
        """Take a function that loads the model, called when the first file is encoded."""
        self._encoder, self._thumbnails = encoder, thumbnails

    def encode_files(self, files: Sequence[ScannedFile]) -> Generator[list[Entry | BadFile]]:
        """Yield an entry or an error for each file, in batches: pictures first, then clips."""
        pictures = [file for file in files if file.kind == "picture"]
        clips = [file for file in files if file.kind == "clip"]
        unreadable: list[BadFile] = []

        def readable(
            hashed: Iterable[tuple[ScannedFile, str | BadFile]],
        ) -> Iterator[tuple[ScannedFile, str]]:
            for file, digest in hashed:
                if isinstance(digest, BadFile):
                    unreadable.append(digest)
                else:
                    yield file, digest

        with prefetch(hash_file, pictures, PREFETCH) as hashed:
            yield from self.encode_images(readable(hashed))
        if clips and not can_read_clips():
            yield [BadFile(file.path, MISSING_VIDEO_EXTRA) for file in clips]
            clips = []
        for file, digest in readable(map(hash_file, clips)):
            yield [self.encode_clip(file, digest)]
        yield list[Entry | BadFile](unreadable)

    def encode_images(
        self, jobs: Iterable[tuple[ScannedFile, str]]
    ) -> Generator[list[Entry | BadFile]]:
        """Encode picture files with their content hashes, in batches; threads decode them."""
        with prefetch(self._decode, jobs, PREFETCH) as decoded:
            while batch := list(islice(decoded, BATCH_SIZE)):
                yield self._encode_batch(batch)

    def encode_clip(self, file: ScannedFile, digest: str) -> Entry | BadFile:
        """Encode a clip with its content hash."""
        encoder = self._encoder()
        min_side = 3 * input_size(encoder)
        if isinstance(encoder, StoredFeatureEncoder) and not encoder.has_features(file.path):
            return BadFile(file.path, NO_FEATURES)
        try:
            return encode_clip(
                file, digest, encoder, min_side=min_side, thumbnails=self._thumbnails
            )
        except DataError as error:
            return bad_file(file, error)

    def _decode(self, job: tuple[ScannedFile, str]) -> _DecodedImage | BadFile:
        file, digest = job
        encoder = self._encoder()
        if isinstance(encoder, StoredFeatureEncoder) and not encoder.has_features(file.path):
            return BadFile(file.path, NO_FEATURES)
        min_side = 2 * input_size(self._encoder())  # as encoders decode files themselves
        try:
            image = read_picture(file.path, min_side=min_side)
        except PictureError as error:
            return bad_file(file, error)
        width, height, taken = size_and_date(file.path, image, file.signature)
        item = Item(file.path, "picture", file.signature, digest, taken, width, height)
        thumbnail = make_thumbnail(image) if self._thumbnails else None
        return _DecodedImage(item, downscale(image, 3 * min_side // 2), thumbnail)

    def _encode_batch(self, batch: Sequence[_DecodedImage | BadFile]) -> list[Entry | BadFile]:
        results: list[Entry | BadFile] = [file for file in batch if isinstance(file, BadFile)]
        decoded = [file for file in batch if isinstance(file, _DecodedImage)]
        if decoded:
            encoder = self._encoder()
            vectors = (
                encoder.encode_files([file.item.path for file in decoded])
                if isinstance(encoder, StoredFeatureEncoder)
                else encoder.encode_pictures([file.image for file in decoded])
            )
            if not np.isfinite(vectors).all():
                raise PolyglanceError("the model returned NaN for an image: try another model")
            results += [
                Entry(file.item, vector[None], thumbnail=file.thumbnail)
                for file, vector in zip(decoded, vectors, strict=True)
            ]
        return results


def input_size(encoder: Encoder) -> int:
    """Return the side of the encoder's input in pixels; 384 if it does not say."""
    description = getattr(getattr(encoder, "folder", None), "description", None)
    size = getattr(getattr(description, "pictures", None), "size", None)
    return size if isinstance(size, int) else 384


def hash_file(file: ScannedFile) -> tuple[ScannedFile, str | BadFile]:
    """Return a file with its content hash, or with the reason why it cannot be read."""
    try:
        return file, content_hash(file.path)
    except OSError as error:  # a lock or permission that may change: without a signature
        return file, BadFile(file.path, f"cannot be read ({error_reason(error)})")


def bad_file(file: ScannedFile, error: Exception) -> BadFile:
    """Return the record of a file that cannot be decoded."""
    message = printable(str(error).removeprefix(f"{file.path}: "))
    return BadFile(file.path, message, file.signature)


@contextmanager
def quiet_decoders() -> Iterator[None]:
    """Silence Pillow's warnings about odd files, which would break the progress bar."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield

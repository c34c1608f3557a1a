"""Encode files into entries of a library; used by indexing and by bulk encoding."""

from __future__ import annotations

import errno
import os
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from polyglance.encoders import Encoder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.stored_features import StoredFeatureEncoder
from polyglance.errors import DataError, PolyglanceError, error_reason, printable
from polyglance.search.clips import clip_thumbnail, details_of, encode_clip
from polyglance.search.files import CHANGING, FileContent, modified_date, read_content
from polyglance.search.limited_decoding import decode_for_library
from polyglance.search.scan import ScannedFile
from polyglance.search.store import BadFile, Details, Entry, Item
from polyglance.utils.cores import available_cores
from polyglance.utils.prefetch import prefetch
from polyglance.vision.clips import can_read_clips
from polyglance.vision.limited_decoding import DecodeLimits, DecodingError
from polyglance.vision.pictures import MISSING_PHOTOS_EXTRA, Resize, decoding_side

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH_SIZE = 16
"""Images encoded together."""
PREFETCH = 2 * BATCH_SIZE
"""Files hashed, and images decoded, ahead of the encoder."""
MAX_DECODERS = 16
"""Images decoded at a time, each in a process of its own, on a machine of as many cores."""
MIN_THUMBNAIL_SIDE = 256
"""A picture is decoded no smaller for its thumbnail."""
MAX_HELD_BYTES = 128_000_000
"""Bytes of pictures that wait for a decoder; further files are read again when it is free."""
ATTEMPTS = 3
"""How often a clip is read that changes meanwhile."""
_PASSING_REASONS = frozenset(
    f"{text} ({os.strerror(number)})"
    for number in errno.errorcode
    for text in ("cannot be read", "cannot be read as a video")
)
NO_FEATURES = "no features of it are stored"
MISSING_VIDEO_EXTRA = "clips need an optional package: pip install 'polyglance[video]'"


@dataclass(frozen=True, slots=True)
class _DecodedImage:
    """An image that waits for the encoder."""

    item: Item
    image: Image
    thumbnail: bytes | None
    details: Details


@dataclass(frozen=True, slots=True, eq=False)
class HashedFile:
    """A file with its content: the signature is that of the file that had it."""

    file: ScannedFile
    content: FileContent

    @classmethod
    def read(cls, file: ScannedFile, keep: Callable[[int], bool]) -> HashedFile:
        """Read a file; see `read_content`."""
        content = read_content(file.path, keep)
        return cls(replace(file, signature=content.signature), content)


class FileEncoder:
    """Encodes files into entries with a model."""

    def __init__(
        self,
        encoder: Callable[[], Encoder],
        *,
        thumbnails: bool = False,
        limits: DecodeLimits | None = None,
    ) -> None:
        """Prepare to encode files.

        Args:
            encoder: Loads the model; called when the first file is encoded.
            thumbnails: Also make thumbnails.
            limits: What decoding a file may take.
        """
        self._encoder, self._thumbnails = encoder, thumbnails
        self.limits = limits or DecodeLimits()
        self._held_bytes, self._lock = 0, threading.Lock()

    def encode_files(self, files: Sequence[ScannedFile]) -> Generator[list[Entry | BadFile]]:
        """Yield an entry or an error for each file, in batches: pictures first, then clips."""
        pictures = [file for file in files if file.kind == "picture"]
        clips = [file for file in files if file.kind == "clip"]
        unreadable: list[BadFile] = []

        def readable(files: Iterable[HashedFile | BadFile]) -> Iterator[HashedFile]:
            for file in files:
                if isinstance(file, BadFile):
                    unreadable.append(file)
                else:
                    yield file

        with self.read_files(pictures) as read:
            yield from self.encode_images(readable(read))
        if clips and not can_read_clips():
            yield [BadFile(file.path, MISSING_VIDEO_EXTRA) for file in clips]
            clips = []
        for file in readable(map(self.read_file, clips)):
            yield [self.encode_clip(file)]
        yield list[Entry | BadFile](unreadable)

    @contextmanager
    def read_files(self, files: Iterable[ScannedFile]) -> Iterator[Iterator[HashedFile | BadFile]]:
        """Yield an iterator over files with their content, which threads read ahead."""
        with prefetch(self.read_file, files, PREFETCH) as read:
            yield read

    def read_file(self, file: ScannedFile) -> HashedFile | BadFile:
        """Read and hash a file; without a signature where it cannot be read now.

        The bytes of a picture are kept for the decoder while few are, else it is read again.
        """
        try:
            return self._read(file)
        except OSError as error:
            return unread_file(file, error)

    def _read(self, file: ScannedFile) -> HashedFile:
        held = 0

        def keep(size: int) -> bool:
            nonlocal held
            self._let_go(held)  # of an earlier attempt
            held = size if file.kind == "picture" and self._hold(size) else 0
            return held == size

        try:
            return HashedFile.read(file, keep)
        except OSError:
            self._let_go(held)
            raise

    def release(self, file: HashedFile) -> None:
        """Release the memory of a file that is not to be decoded, or is decoded already."""
        self._let_go(len(file.content.data or b""))

    def _let_go(self, size: int) -> None:
        with self._lock:
            self._held_bytes -= size

    def _hold(self, size: int) -> bool:
        with self._lock:
            held = self._held_bytes + size <= MAX_HELD_BYTES
            self._held_bytes += size if held else 0
            return held

    def encode_images(self, files: Iterable[HashedFile]) -> Generator[list[Entry | BadFile]]:
        """Encode picture files in batches; threads have them decoded ahead."""
        decoders = min(max(2, available_cores()), MAX_DECODERS)
        with prefetch(self._decode, files, PREFETCH, threads=decoders) as decoded:
            while batch := list(islice(decoded, BATCH_SIZE)):
                yield self._encode_batch(batch)

    def encode_clip(self, hashed: HashedFile) -> Entry | BadFile:
        """Encode a clip."""
        file, encoder = hashed.file, self._encoder()
        if isinstance(encoder, StoredFeatureEncoder) and not encoder.has_features(file.path):
            return BadFile(file.path, NO_FEATURES)
        attempts = ATTEMPTS
        try:
            while True:
                attempts -= 1
                try:
                    return encode_clip(
                        hashed.file,
                        hashed.content,
                        encoder,
                        self.limits,
                        min_side=3 * input_size(encoder),
                        thumbnails=self._thumbnails,
                    )
                except DecodingError as error:
                    if not error.is_changing or not attempts:
                        return bad_file(file, error)
                hashed = HashedFile.read(file, _drop)
        except OSError as error:
            return unread_file(file, error)

    def _decode(self, hashed: HashedFile) -> _DecodedImage | BadFile:
        file, encoder = hashed.file, self._encoder()
        try:
            if isinstance(encoder, StoredFeatureEncoder) and not encoder.has_features(file.path):
                return BadFile(file.path, NO_FEATURES)
            min_side = decoding_side(input_size(encoder))  # as encoders decode files themselves
            return self.decode(hashed, min_side, input_square(encoder))
        except DecodingError as error:
            return bad_file(file, error)
        except OSError as error:
            return unread_file(file, error)
        finally:
            self.release(hashed)

    def decode(
        self, hashed: HashedFile, min_side: int, square: tuple[int, Resize] | None = None
    ) -> _DecodedImage:
        """Decode a picture: the bytes that its hash is of. See `decode_for_library`."""
        file, content = hashed.file, hashed.content
        self.limits.check_size(file.path, content.stamp.size)
        if content.data is None:
            hashed = HashedFile.read(file, lambda size: size <= self.limits.max_memory)
            file, content = hashed.file, hashed.content
            self.limits.check_size(file.path, content.stamp.size)
        assert content.data is not None
        picture = decode_for_library(
            content.data,
            file.path,
            self.limits,
            min_side=min_side,
            square=square,
            thumbnail=self._thumbnails,
        )
        taken = picture.metadata.taken or modified_date(file.signature)
        item = Item(
            file.path, "picture", file.signature, content.digest, taken,
            picture.width, picture.height,
        )  # fmt: skip
        return _DecodedImage(item, picture.image, picture.thumbnail, details_of(picture.metadata))

    def make_thumbnail(self, file: ScannedFile) -> tuple[str, bytes] | BadFile:
        """Make the thumbnail of a file, and return it with the hash of the file's content."""
        try:
            hashed = self._read(file)
            if file.kind == "clip":
                return hashed.content.digest, clip_thumbnail(file.path, hashed.content, self.limits)
            try:
                image = self.decode(hashed, MIN_THUMBNAIL_SIDE)
            finally:
                self.release(hashed)
            assert image.thumbnail is not None
            return image.item.content_hash, image.thumbnail
        except DecodingError as error:
            return replace(bad_file(file, error), signature=None)
        except OSError as error:
            return unread_file(file, error)

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
                Entry(file.item, vector[None], thumbnail=file.thumbnail, details=file.details)
                for file, vector in zip(decoded, vectors, strict=True)
            ]
        return results


def input_size(encoder: Encoder) -> int:
    """Return the side of the encoder's input in pixels; 384 if it does not say."""
    description = getattr(getattr(encoder, "folder", None), "description", None)
    size = getattr(getattr(description, "pictures", None), "size", None)
    return size if isinstance(size, int) else 384


def input_square(encoder: Encoder) -> tuple[int, Resize] | None:
    """Return the square that an encoder makes of each image by `to_square`, if it does."""
    settings = encoder.folder.description.pictures if isinstance(encoder, OnnxEncoder) else None
    return (settings.size, settings.resize) if settings else None


def unread_file(file: ScannedFile, error: OSError) -> BadFile:
    """Return why a file cannot be read now; without a signature, so that it is tried again."""
    reason = error_reason(error)
    return BadFile(file.path, reason if reason == CHANGING else f"cannot be read ({reason})")


def bad_file(file: ScannedFile, error: DataError) -> BadFile:
    """Return why a file cannot be decoded; with its signature if its content is at fault.

    A file for which a package is missing is tried again, since that may be installed meanwhile.
    """
    message = printable(str(error).removeprefix(f"{file.path}: "))
    passing = isinstance(error, DecodingError) and error.passing
    passing = passing or message == MISSING_PHOTOS_EXTRA
    return BadFile(file.path, message, None if passing else file.signature)


def is_passing(reason: str) -> bool:
    """Return whether a file was skipped because it could not be read, not for its content.

    Older versions kept such reasons on record, so that the file was never tried again.
    """
    return reason in _PASSING_REASONS


def _drop(size: int) -> bool:
    return False


@contextmanager
def quiet_decoders() -> Iterator[None]:
    """Silence Pillow's warnings about odd files, which would break the progress bar."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield

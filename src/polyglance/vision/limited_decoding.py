"""Decode untrusted pictures and clips in processes with limits.

Uploads are decoded by `polyglance.vision.uploads`, one process each. Files of a folder are
many: here processes are kept (`polyglance.utils.worker_pool`), and a file that is too much for
one costs that process and itself alone.

A `DecodingError` says whether the content is at fault, which does not change by itself, or
whether the file could not be read now, which the next run may be able to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from polyglance.errors import DataError, PolyglanceError
from polyglance.utils.worker_pool import Content, TaskError, shared_pool
from polyglance.utils.worker_process import Reply, allow_seconds
from polyglance.vision.clips import (
    MAX_FRAME_PIXELS,
    Span,
    open_clip,
    sample_opened,
    upright_frame,
)
from polyglance.vision.exif import Metadata, clip_metadata
from polyglance.vision.pictures import (
    MAX_PIXELS,
    Resize,
    Square,
    decode_picture,
    decoding_side,
    downscale,
    to_square,
)

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
_LIMIT = re.compile(r"more than the limit of (.+)$")


class DecodingError(DataError):
    """A file that was not decoded."""

    def __init__(self, message: str, *, passing: bool = False, is_changing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing
        """Whether it is not the content that is at fault, so that another try may succeed."""
        self.is_changing = is_changing
        """Whether the file changed while it was read."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """What decoding a file may take; a file that takes more is skipped."""

    max_pixels: int = MAX_PIXELS
    """Pixels of a picture; a JPEG counts at the size at which it is decoded."""
    max_frame_pixels: int = MAX_FRAME_PIXELS
    """Pixels of a clip's frame."""
    max_seconds: int = 20
    """CPU time of a picture, and of a clip's first second."""
    max_clip_seconds: int = 5
    """CPU time of each further second of a clip."""
    max_memory: int = 2_000_000_000
    """Bytes beside those of the file itself."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise PolyglanceError(
                    f"{field.name} must be 1 or more, not {getattr(self, field.name)}"
                )

    def check_size(self, path: str, size: int) -> None:
        """Refuse a file of more bytes than decoding may take."""
        if size > self.max_memory:
            raise DecodingError(f"{path}: takes more than the limit of {_memory(self)}")

    def is_outdated(self, reason: str) -> bool:
        """Return whether a file was skipped for a limit that is another one now."""
        found = _LIMIT.search(reason)
        return found is not None and found[1] not in {
            f"{self.max_pixels:,}",
            f"{self.max_frame_pixels:,}",
            _seconds(self),
            _memory(self),
        }


class FileStamp(NamedTuple):
    """What a file system says of a file: as long as it is the same, so is the content."""

    size: int
    mtime_ns: int
    inode: int
    device: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStamp:
        """Return the stamp of a file by its status."""
        ids = status.st_ino, status.st_dev
        return cls(status.st_size, status.st_mtime_ns, *ids, status.st_ctime_ns)


@dataclass(frozen=True, slots=True, eq=False)
class ClipFrame:
    """The frame of one second of a clip."""

    second: Span
    image: Image | None
    """Upright RGB, possibly downscaled; None if it is the same as the one before."""
    width: int
    height: int
    """Size in the clip."""


@dataclass(frozen=True, slots=True)
class ClipHeader:
    """What a clip says about itself."""

    metadata: Metadata
    """When, where and with what it was recorded, if it says so."""
    seconds: float | None
    """Its duration."""


def run_limited(
    task: str,
    path: str,
    settings: dict[str, Any],
    data: bytes,
    limits: DecodeLimits,
    *,
    max_reply: int,
    convert: Callable[[dict[str, Any], Content], T],
) -> T:
    """Run a task on the content of a file in a process with limits.

    Args:
        task: The function, as ``module:function``.
        path: The file, which errors name.
        settings: What the task is given beside the content.
        data: The content.
        limits: What it may take.
        max_reply: Bytes of the longest reply.
        convert: Makes the result from the header and the content of the task's reply.

    Returns:
        What ``convert`` returns.
    """
    try:
        return shared_pool().run(
            task,
            {"path": path, "max_pixels": limits.max_pixels, **settings},
            data,
            memory=limits.max_memory,
            seconds=limits.max_seconds,
            max_reply=max_reply,
            convert=convert,
        )
    except TaskError as error:
        raise _decoding_error(path, error, limits) from error


def read_limited_square(
    path: str | Path, size: int, resize: Resize, limits: DecodeLimits
) -> Square:
    """Read a picture file into a square as `polyglance.vision.pictures.read_square` does."""
    data = read_limited_file(path, limits)
    return run_limited(
        f"{__name__}:make_square",
        str(path),
        {"size": size, "resize": resize},
        data,
        limits,
        max_reply=3 * size**2,
        convert=lambda header, pixels: _square(header, pixels, size),
    )


def read_limited_file(path: str | Path, limits: DecodeLimits) -> bytes:
    """Read a file that is small enough to be decoded."""
    try:
        limits.check_size(str(path), Path(path).stat().st_size)
        return Path(path).read_bytes()
    except OSError as error:
        reason = f"{path}: cannot be read ({error.strerror or error})"
        raise DecodingError(reason, passing=True) from error


def sample_limited_squares(
    path: str | Path, span: Span | None, size: int, resize: Resize, limits: DecodeLimits
) -> Iterator[tuple[Square, Span]]:
    """Yield the frame of each second of a clip as a square, with the second's start and end."""
    settings = {"span": span, "size": size, "resize": resize}
    square: Square | None = None
    for header, pixels in _clip_replies(path, settings, limits, max_reply=3 * size**2):
        if "second" in header:
            square = square if header["repeated"] else _square(header, pixels, size)
            assert square is not None
            yield square, (header["second"][0], header["second"][1])


def sample_limited_frames(
    path: str | Path,
    limits: DecodeLimits,
    *,
    min_side: int,
    span: Span | None = None,
    stamp: FileStamp | None = None,
) -> Generator[ClipHeader | ClipFrame]:
    """Yield what a clip says about itself, and then the frame of each of its seconds.

    Args:
        path: The file.
        limits: What decoding may take.
        min_side: Frames are downscaled to this shorter side (`downscale`).
        span: Start and end in seconds of the part to sample; None for all.
        stamp: The file's stamp; if it is another one before or after, the error is passing.
    """
    from PIL import Image

    settings = {"span": span, "min_side": min_side}
    for header, pixels in _clip_replies(
        path, settings, limits, max_reply=3 * limits.max_frame_pixels
    ):
        if stamp is not None and "stamp" in header and header["stamp"] != list(stamp):
            raise DecodingError(
                f"{path}: the file changes while it is read", passing=True, is_changing=True
            )
        if "metadata" in header:
            yield ClipHeader(Metadata(**header["metadata"]), header["seconds"])
        elif "second" in header:
            size = (header["width"], header["height"])
            image = None if header["repeated"] else Image.frombytes("RGB", size, bytes(pixels))
            second = header["second"][0], header["second"][1]
            yield ClipFrame(second, image, header["full_width"], header["full_height"])


def _clip_replies(
    path: str | Path, settings: dict[str, Any], limits: DecodeLimits, *, max_reply: int
) -> Generator[tuple[dict[str, Any], Content]]:
    settings = {
        "path": str(Path(path).absolute()),
        "max_pixels": limits.max_frame_pixels,
        "seconds": limits.max_clip_seconds,
        **settings,
    }
    try:
        yield from shared_pool().stream(
            f"{__name__}:sample_clip",
            settings,
            memory=limits.max_memory,
            seconds=limits.max_seconds,
            max_reply=max_reply,
        )
    except TaskError as error:
        raise _decoding_error(str(path), error, limits) from error


def _decoding_error(path: str, error: TaskError, limits: DecodeLimits) -> DecodingError:
    reason = str(error).removeprefix(f"{path}: ")
    match error.cause:
        case "memory":
            reason = f"takes more than the limit of {_memory(limits)}"
        case "seconds":
            reason = f"takes more than the limit of {_seconds(limits)}"
        case "read":
            reason = f"cannot be read ({reason})"
    return DecodingError(f"{path}: {reason}", passing=error.cause in ("read", "killed"))


def _seconds(limits: DecodeLimits) -> str:
    return f"{limits.max_seconds:,} s to decode"


def _memory(limits: DecodeLimits) -> str:
    return f"{limits.max_memory / 1e6:,.0f} MB to decode"


def _square(header: dict[str, Any], pixels: Content, size: int) -> Square:
    left, top, right, bottom = header["frame"]
    values = np.frombuffer(pixels, np.uint8).reshape(size, size, 3)
    return Square(values.copy(), (left, top, right, bottom))


# ------------------------------------------------------------------ tasks, run in the processes


def make_square(settings: dict[str, Any], data: bytes) -> Iterator[Reply]:
    """Decode the content of a picture file to a square."""
    size = settings["size"]
    decoded = decode_picture(
        data, settings["path"], min_side=decoding_side(size), max_pixels=settings["max_pixels"]
    )
    square = to_square(decoded.image, size, settings["resize"])
    yield {"frame": square.frame}, square.pixels.tobytes()


class _CheckedFile:
    """A file for FFmpeg that keeps the error of a failed read, which FFmpeg does not tell."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115
        self.name = path
        self.error: OSError | None = None

    def read(self, count: int) -> bytes:
        try:
            return self._file.read(count) or b""
        except OSError as error:
            self.error = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def stamp(self) -> FileStamp:
        return FileStamp.of(os.fstat(self._file.fileno()))

    def close(self) -> None:
        self._file.close()


def sample_clip(settings: dict[str, Any], _: bytes) -> Iterator[Reply]:
    """Sample a frame of each second of a clip, from its file."""
    path = Path(settings["path"])
    file = _CheckedFile(settings["path"])
    try:
        for reply in _sample(file, path, settings):
            if file.error is not None:
                break
            yield reply
    except DataError:
        if file.error is None:
            raise
    finally:
        file.close()
    if file.error is not None:  # what was decoded is not all that there is
        raise file.error


def _sample(file: _CheckedFile, path: Path, settings: dict[str, Any]) -> Iterator[Reply]:
    span = settings["span"] and (settings["span"][0], settings["span"][1])
    before, sizes = None, dict[str, int]()
    stamp = file.stamp()
    with open_clip(path, file) as container:
        metadata = asdict(clip_metadata(container.metadata))
        seconds = container.duration / 1e6 if container.duration else None
        yield {"metadata": metadata, "seconds": seconds, "stamp": stamp}, b""
        for frame, second in sample_opened(container, path, span, settings["max_pixels"]):
            header: dict[str, Any] = {"second": second, "repeated": frame is before}
            pixels = b""
            if frame is not before:
                image = upright_frame(frame)
                sizes = {"full_width": image.width, "full_height": image.height}
                if "size" in settings:
                    square = to_square(image, settings["size"], settings["resize"])
                    header["frame"], pixels = square.frame, square.pixels.tobytes()
                else:
                    image = downscale(image, settings["min_side"])
                    sizes |= {"width": image.width, "height": image.height}
                    pixels = image.tobytes()
            before = frame
            yield {**header, **sizes}, pixels
            allow_seconds(settings["seconds"])
    yield {"stamp": file.stamp()}, b""

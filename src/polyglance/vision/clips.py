"""Clips: sample one frame per second of a video file and encode each to one feature.

The frame of a second is the one on screen in the middle of it, at any frame rate, constant
or not. A remainder of less than half a second has no frame, unless the whole clip is that
short. Damaged files give what can be decoded; a file without a single frame raises a
`ClipError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyglance.errors import DataError, MissingExtraError
from polyglance.vision.pictures import Resize, Square, to_square

if TYPE_CHECKING:
    from PIL import Image

    from polyglance.vision.backbone import Backbone
    from polyglance.vision.tokens import VisualTokens

Span = tuple[float, float]

SUFFIXES = frozenset({".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm"})
"""Suffixes of the files that are taken as clips when a folder is scanned."""

MAX_SECONDS = 4 * 3600
"""Longer clips are refused: a wrong time stamp can make a clip last years."""

MAX_FRAME_PIXELS = 36_000_000
"""Clips of larger frames are refused: 8192 x 4320, and decoders hold a dozen frames."""

MAX_THREADS = 8
"""Threads that decode a clip: each holds frames."""

_TICK = 1e-3
"""Tolerance of time stamps: many containers round them to milliseconds."""


class ClipError(DataError):
    """A file that cannot be read as a video."""


def encode_clip(
    backbone: Backbone,
    path: str | Path,
    *,
    span: Span | None = None,
    labels: int = 10,
    resize: Resize = "squash",
    batch_size: int = 16,
    squares: Iterable[tuple[Square, Span]] | None = None,
) -> VisualTokens:
    """Encode a clip to one token per second; their mean is the global feature.

    Args:
        backbone: The network that encodes frames.
        path: The video file.
        span: Start and end in seconds of the part to encode; None for all.
        labels: Number of most likely classes to return for each second.
        resize: How frames become squares.
        batch_size: Frames per batch.
        squares: The clip's frames with their seconds; None to read them from ``path``.
    """
    from polyglance.vision.backbone import encode_squares  # slow to import
    from polyglance.vision.tokens import VisualTokens

    if squares is None:
        frames = sample_frames(path, span)
        squares = ((to_square(frame, backbone.size, resize), second) for frame, second in frames)
    tokens: list[VisualTokens] = []
    spans: list[Span] = []
    batch: list[Square] = []

    def encode() -> None:
        nonlocal batch
        tokens.extend(encode_squares(backbone, batch, batch_size=batch_size, grid=1, labels=labels))
        batch = []

    for square, second in squares:
        batch.append(square)
        spans.append(second)
        if len(batch) == batch_size:
            encode()
    encode()
    features = np.concatenate([token.features for token in tokens])
    return VisualTokens(
        features=features,
        boxes=np.concatenate([token.boxes for token in tokens]),
        global_feature=features.mean(0),
        label_ids=np.concatenate([token.label_ids for token in tokens]),
        label_probs=np.concatenate([token.label_probs for token in tokens]),
        spans=np.array(spans, np.float32),
    )


def sample_frames(
    path: str | Path, span: Span | None = None, *, max_pixels: int = MAX_FRAME_PIXELS
) -> Iterator[tuple[Image.Image, Span]]:
    """Yield the upright RGB frame of each second of a clip, with the second's start and end.

    Args:
        path: The file.
        span: Start and end in seconds of the part to sample; None for all.
        max_pixels: Clips of larger frames raise a `ClipError`.
    """
    path = Path(path)
    with open_clip(path) as container:
        for frame, second in sample_opened(container, path, span, max_pixels):
            yield upright_frame(frame), second


@contextmanager
def open_clip(path: Path, file: Any = None) -> Iterator[Any]:
    """Open a clip with PyAV; whatever it raises becomes a `ClipError`.

    Args:
        path: The file, which FFmpeg opens itself where ``file`` is None.
        file: The file, opened already; then FFmpeg opens no other, whatever the clip says.
    """
    require_video()
    import av

    try:
        # FFmpeg cannot mistake an absolute path for a protocol.
        source = str(path.absolute()) if file is None else file
        options = {} if file is None else {"protocol_whitelist": "none"}
        with av.open(source, metadata_errors="ignore", container_options=options) as container:
            yield container
    except ClipError:
        raise
    except Exception as error:  # whatever a mangled file makes FFmpeg's wrapper raise
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ClipError(f"{path}: cannot be read as a video ({reason})") from error


def sample_opened(
    container: Any, path: Path, span: Span | None, max_pixels: int
) -> Iterator[tuple[Any, Span]]:
    """Yield PyAV's frame of each second of an opened clip; see `sample_frames`."""
    is_empty = True
    for frame, second in _on_screen(container, path, span, max_pixels):
        is_empty = False
        yield frame, second
    if is_empty:
        when = "" if span is None else f" between {span[0]:g} and {span[1]:g} seconds"
        raise ClipError(f"{path}: no frame could be decoded{when}")


def require_video() -> None:
    """Raise an error with the install command if PyAV, which decodes clips, is missing."""
    if not can_read_clips():
        raise MissingExtraError("reading clips", "video")


def can_read_clips() -> bool:
    """Whether PyAV, which decodes clips, is installed."""
    return find_spec("av") is not None


def _on_screen(
    container: Any, path: Path, span: Span | None, max_pixels: int
) -> Iterator[tuple[Any, Span]]:
    """Yield the frame on screen in the middle of each second."""
    start, stop = (0.0, float("inf")) if span is None else span
    first_middle = start + min(0.5, (stop - start) / 2)
    number, current, end = 0, None, 0.0

    def middle() -> float:
        return start + number + 0.5 if number else first_middle

    def second() -> Span:
        if number >= MAX_SECONDS:
            raise ClipError(f"{path}: is longer than {MAX_SECONDS // 3600} hours")
        return start + number, min(start + number + 1, stop)

    for frame, time, frame_end in _frames(container, path, start, max_pixels):
        while current is not None and middle() < min(time - _TICK, stop):
            yield current, second()
            number += 1
        current, end = frame, frame_end
        if time > stop:
            return
    while current is not None and middle() < min(end, stop):
        yield current, second()
        number += 1
    if number == 0 and current is not None and end > start:
        yield current, second()


def _frames(
    container: Any, path: Path, start: float, max_pixels: int
) -> Iterator[tuple[Any, float, float]]:
    """Yield decoded frames with their start and end, in seconds from the clip's beginning."""
    from av.error import FFmpegError
    from av.stream import Disposition

    stream = next(
        # Cover art is a video stream, too.
        (s for s in container.streams.video if not s.disposition & Disposition.attached_pic),
        None,
    )
    if stream is None:
        raise ClipError(f"{path}: has no video in it")
    codec = stream.codec_context
    if codec.width * codec.height > max_pixels:
        raise ClipError(
            f"{path}: frames of {codec.width} x {codec.height} pixels are more than the limit of"
            f" {max_pixels:,}"
        )
    codec.options = {"max_pixels": str(max_pixels)}  # frames may be larger than the header says
    codec.thread_type, codec.thread_count = "AUTO", min(os.cpu_count() or 1, MAX_THREADS)
    base = float(stream.time_base)
    zero = (stream.start_time or 0) * base
    step = 1 / float(stream.average_rate or 25)
    if start > 0:
        with suppress(FFmpegError):  # not seekable: decode from the beginning
            container.seek(int((zero + start) / base), stream=stream)
    packets, time = container.demux(stream), -step
    while True:
        try:
            frames = next(packets).decode()
        except StopIteration:
            return
        except MemoryError:
            raise
        except FFmpegError:
            continue  # a broken packet; the demuxer itself stops after an error
        for frame in frames:
            stamp = None if frame.pts is None else frame.pts * base - zero
            time = time + step if stamp is None else max(stamp, time)
            yield frame, time, time + ((frame.duration or 0) * base or step)


def upright_frame(frame: Any) -> Image.Image:
    """Convert PyAV's frame to upright RGB."""
    picture: Image.Image = frame.to_image()
    angle = frame.rotation % 360  # counter-clockwise, as Pillow's
    return picture.rotate(angle, expand=True) if angle else picture

"""Clips: one picture a second out of a video file, and one feature a second out of those.

The picture of a second is the frame that is on screen in the middle of it,
whatever the frame rate, constant or not. A rest of less than half a second at
the end has no picture; a clip shorter than that has one. What can be decoded of
a damaged file is kept; a file without a single frame is a `ClipError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyglance.errors import DataError, MissingExtra
from polyglance.vision.backbone import Backbone, encode_squares
from polyglance.vision.pictures import Resize, Square, to_square
from polyglance.vision.tokens import VisualTokens

if TYPE_CHECKING:
    from PIL import Image

Span = tuple[float, float]

SUFFIXES = frozenset({".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm"})
"""File names that are taken for clips when a folder is walked."""

MAX_SECONDS = 4 * 3600
"""Longer clips are refused: a time stamp gone wrong looks like a clip of many years."""

_TICK = 1e-3
"""What time stamps may be off by: many containers round them to milliseconds."""


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
) -> VisualTokens:
    """A clip, or the part of it in ``span``, as one token a second; their mean is the whole."""
    tokens: list[VisualTokens] = []
    spans: list[Span] = []
    batch: list[Square] = []

    def encode() -> None:
        nonlocal batch
        tokens.extend(encode_squares(backbone, batch, batch_size=batch_size, grid=1, labels=labels))
        batch = []

    for picture, second in read_seconds(path, span):
        batch.append(to_square(picture, backbone.size, resize))
        spans.append(second)
        if len(batch) == batch_size:
            encode()
    encode()
    features = np.concatenate([token.features for token in tokens])
    return VisualTokens(
        features=features,
        boxes=np.concatenate([token.boxes for token in tokens]),
        whole=features.mean(0),
        label_ids=np.concatenate([token.label_ids for token in tokens]),
        label_probs=np.concatenate([token.label_probs for token in tokens]),
        spans=np.array(spans, np.float32),
    )


def read_seconds(path: str | Path, span: Span | None = None) -> Iterator[tuple[Image.Image, Span]]:
    """Yield the upright RGB picture of each second of a clip and from when to when it stands."""
    require_video()
    import av

    path = Path(path)
    try:
        # An absolute path cannot be taken for one of FFmpeg's protocols.
        with av.open(str(path.absolute()), metadata_errors="ignore") as container:
            found = False
            for frame, second in _on_screen(container, path, span):
                found = True
                yield _upright(frame), second
        if not found:
            when = "" if span is None else f" between {span[0]:g} and {span[1]:g} seconds"
            raise ClipError(f"{path}: no picture could be decoded{when}")
    except ClipError:
        raise
    except Exception as error:  # whatever a mangled file makes FFmpeg's wrapper raise
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ClipError(f"{path}: cannot be read as a video ({reason})") from error


def require_video() -> None:
    """Say so if the part of Polyglance that reads clips is not installed."""
    if not can_read_clips():
        raise MissingExtra("reading clips", "video")


def can_read_clips() -> bool:
    """Whether PyAV, which decodes clips, is installed."""
    return find_spec("av") is not None


def _on_screen(container: Any, path: Path, span: Span | None) -> Iterator[tuple[Any, Span]]:
    """The frame that is on screen in the middle of each second."""
    start, stop = (0.0, float("inf")) if span is None else span
    first_middle = start + min(0.5, (stop - start) / 2)
    number, shown, end = 0, None, 0.0

    def middle() -> float:
        return start + number + 0.5 if number else first_middle

    def second() -> Span:
        if number >= MAX_SECONDS:
            raise ClipError(f"{path}: is longer than {MAX_SECONDS // 3600} hours")
        return start + number, min(start + number + 1, stop)

    for frame, time, frame_end in _frames(container, path, start):
        while shown is not None and middle() < min(time - _TICK, stop):
            yield shown, second()
            number += 1
        shown, end = frame, frame_end
        if time > stop:
            return
    while shown is not None and middle() < min(end, stop):
        yield shown, second()
        number += 1
    if number == 0 and shown is not None and end > start:
        yield shown, second()


def _frames(container: Any, path: Path, start: float) -> Iterator[tuple[Any, float, float]]:
    """Decoded frames with the times, from the beginning of the clip, when they come and go."""
    from av.error import FFmpegError
    from av.stream import Disposition

    stream = next(
        # The cover of an album is a video stream, too.
        (s for s in container.streams.video if not s.disposition & Disposition.attached_pic),
        None,
    )
    if stream is None:
        raise ClipError(f"{path}: has no video in it")
    stream.thread_type = "AUTO"
    base = float(stream.time_base)
    zero = (stream.start_time or 0) * base
    step = 1 / float(stream.average_rate or 25)
    if start > 0:
        with suppress(FFmpegError):  # where it cannot be sought in, decode from the beginning
            container.seek(int((zero + start) / base), stream=stream)
    packets, time = container.demux(stream), -step
    while True:
        try:
            frames = next(packets).decode()
        except StopIteration:
            return
        except FFmpegError:
            continue  # a broken packet; after an error of its own the demuxer stops
        for frame in frames:
            stamp = None if frame.pts is None else frame.pts * base - zero
            time = time + step if stamp is None else max(stamp, time)
            yield frame, time, time + ((frame.duration or 0) * base or step)


def _upright(frame: Any) -> Image.Image:
    picture: Image.Image = frame.to_image()
    turn = frame.rotation % 360  # counter-clockwise, as Pillow's
    return picture.rotate(turn, expand=True) if turn else picture

"""Write frames as video through PyAV, or as an animated image through Pillow."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from PIL import Image

from polyglance.data.toy.rendering import FRAMES_PER_SECOND, Pixels
from polyglance.errors import MissingExtraError, PolyglanceError


def clip_suffix() -> str:
    """Return ``.mp4`` where PyAV is installed, else ``.webp``."""
    return ".mp4" if find_spec("av") else ".webp"


def write_clip(path: str | Path, frames: Pixels, rate: int = FRAMES_PER_SECOND) -> None:
    """Write frames as ``.mp4`` (H.264), or as animated ``.webp`` or ``.gif``."""
    path = Path(path)
    if path.suffix == ".mp4":
        _write_mp4(path, frames, rate)
    elif path.suffix in (".webp", ".gif"):
        first, *rest = (Image.fromarray(frame) for frame in frames)
        first.save(path, save_all=True, append_images=rest, duration=1000 // rate, loop=0)
    else:
        raise PolyglanceError(f"{path}: a clip is written as .mp4, .webp or .gif")


def _write_mp4(path: Path, frames: Pixels, rate: int) -> None:
    try:
        import av
    except ImportError:
        raise MissingExtraError("writing MP4 clips", "video") from None
    height, width = frames.shape[1:3]
    if height % 2 or width % 2:
        raise PolyglanceError(f"{path}: H.264 video needs even sides, not {width} x {height}")
    with av.open(str(path), "w") as file:
        # The same frames must always give the same bytes: with one thread they do, but for the
        # macroblock tree, whose decisions depend on what was in memory before.
        options = {"preset": "veryfast", "crf": "18", "threads": "1", "x264-params": "mbtree=0"}
        stream = file.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in frames:
            image = av.VideoFrame.from_ndarray(frame, format="rgb24")
            # Left to the encoder, the conversion gives other bytes now and then.
            file.mux(stream.encode(image.reformat(format="yuv420p")))
        file.mux(stream.encode())

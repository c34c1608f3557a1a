"""Decode untrusted pictures safely.

`read_upload` raises an `UploadError` for anything that is not a sound picture. Decoding
happens in a separate process (`polyglance.vision.upload_decoder`) whose memory and CPU time
the kernel limits: a file that makes a decoder allocate, loop or crash takes down that
process alone. Only pixels come back: upright, in RGB, of bounded size, without metadata.

Where the kernel has no such limits (Windows; on macOS none on memory) the limits on bytes,
pixels and seconds still hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from threading import BoundedSemaphore
from typing import IO, TYPE_CHECKING, Any

from polyglance.vision import heif, raw
from polyglance.vision.pictures import MISSING_PHOTOS_EXTRA, PictureError

if TYPE_CHECKING:
    from PIL import Image

MAX_BYTES = 20_000_000
MAX_PIXELS = 50_000_000
"""The resolution of current phones; decoding that many may take a gigabyte."""
MAX_SIDE = 2048
"""Longer side of the returned picture in pixels: several times the models' input."""
MAX_SECONDS = 10
"""CPU time; a sound picture of `MAX_PIXELS` takes two seconds on a slow core."""

RAW = "RAW"
UNKNOWN_FORMAT = "the file is not a JPEG, PNG, WebP, GIF, HEIC or RAW picture"
_SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "WEBP": (b"RIFF",),
}
"""First bytes of the accepted formats; rare ones with fragile decoders, such as TIFF, are not.

HEIC and RAW files are told apart by `polyglance.vision.heif` and `polyglance.vision.raw`.
"""
_DECODERS = BoundedSemaphore(2)
"""Bounds the number of concurrent decoders, and so their memory."""
_BASE_MEMORY, _MEMORY_PER_PIXEL = 400_000_000, 12
"""Bytes for the interpreter, and per pixel for the most demanding format."""
_NICENESS = 10
"""Decoders yield their cores to whoever searches meanwhile."""


class UploadError(PictureError):
    """Bytes that are not a sound picture; the message may be shown to the sender."""


def read_upload(
    data: bytes,
    *,
    max_bytes: int = MAX_BYTES,
    max_pixels: int = MAX_PIXELS,
    max_side: int = MAX_SIDE,
    max_seconds: int = MAX_SECONDS,
    background: bool = False,
) -> Image.Image:
    """Decode an untrusted JPEG, PNG, WebP or GIF (first frame), HEIC or RAW file.

    Args:
        data: The file's content.
        max_bytes: Larger files are refused undecoded.
        max_pixels: Pictures whose header claims more are refused undecoded.
        max_side: Larger pictures are scaled down to this longer side.
        max_seconds: CPU time for decoding.
        background: Decode only while the cores have nothing else to do, where the system can.

    Returns:
        The picture, upright, in RGB, without metadata.
    """
    from PIL import Image

    if not data:
        raise UploadError("the file is empty")
    if len(data) > max_bytes:
        raise UploadError(f"the file has {len(data):,} bytes, more than the {max_bytes:,} allowed")
    settings = {
        "format": _format(data),
        "max_pixels": max_pixels,
        "max_side": max_side,
        "max_seconds": max_seconds,
        "memory": _BASE_MEMORY + 2 * len(data) + _MEMORY_PER_PIXEL * max_pixels,
    }
    with _DECODERS:
        header, pixels = _run_decoder(data, settings, background=background)
    if "error" in header:
        raise UploadError(header["error"])
    return Image.frombytes("RGB", (header["width"], header["height"]), pixels)


def _format(data: bytes) -> str:
    """Return the format of a file by its first bytes."""
    head = bytes(data[:64])
    if heif.is_heif(head):
        format_, is_installed = heif.FORMAT, heif.can_read_heif()
    elif raw.is_raw(head):
        format_, is_installed = RAW, raw.can_read_raw()
    else:
        found = (name for name, starts in _SIGNATURES.items() if head.startswith(starts))
        format_, is_installed = next(found, ""), True
    if not format_ or (format_ == "WEBP" and head[8:12] != b"WEBP"):
        raise UploadError(UNKNOWN_FORMAT)
    if not is_installed:
        raise UploadError(f"this server reads no {format_} pictures: {MISSING_PHOTOS_EXTRA}")
    return format_


def _run_decoder(
    data: bytes, settings: dict[str, Any], *, background: bool
) -> tuple[dict[str, Any], bytes]:
    """Return the decoder's header, a line of JSON, and the pixels."""
    command = [sys.executable, "-P", "-m", "polyglance.vision.upload_decoder", json.dumps(settings)]
    # Into a file, whose size the kernel bounds too, rather than into this process's memory.
    with tempfile.TemporaryFile() as out:
        try:
            seconds = 20 + 5 * settings["max_seconds"]  # wall-clock time, on a busy machine
            _communicate(command, data, out, seconds, background=background)
        except (subprocess.SubprocessError, BrokenPipeError):
            return {"error": "the picture takes more time or memory to decode than allowed"}, b""
        out.seek(0)
        return json.loads(out.readline()), out.read()


def _communicate(
    command: list[str], data: bytes, out: IO[bytes], seconds: float, *, background: bool
) -> None:
    """Run a decoder; raise a `subprocess.SubprocessError` if it fails or takes too long.

    Args:
        command: The program and its arguments.
        data: Its standard input.
        out: Its standard output.
        seconds: Wall-clock time that it may take.
        background: Run it only while the cores have nothing else to do.
    """
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            _lower_priority(process.pid, background=background)
            process.communicate(data, timeout=seconds)
        finally:
            process.kill()  # nothing, if it has ended
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _lower_priority(process: int, *, background: bool) -> None:
    """Let a process yield to this one: mostly, or in the background always."""
    if hasattr(os, "setpriority"):  # not on Windows
        niceness = os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS
        os.setpriority(os.PRIO_PROCESS, process, niceness)
    if background and hasattr(os, "SCHED_IDLE"):  # Linux
        os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))

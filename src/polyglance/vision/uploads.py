"""Pictures from strangers: bytes that may be anything, into pixels, without harm.

`read_upload` gives one clear `UploadError` for whatever is no sound picture. Decoding
happens in a process of its own (`polyglance.vision.upload_decoder`), to which the kernel
gives so much memory and so many seconds and no more. A file that makes a decoder allocate,
loop or crash takes that process down and nothing else. What comes back are pixels alone:
upright, in RGB, no larger than asked for, and nothing of what else was in the file.

Where the kernel has no such limits (Windows; on macOS there is none on memory) the limits
on bytes, pixels and seconds still hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any

from polyglance.vision.pictures import PictureError

if TYPE_CHECKING:
    from PIL import Image

MOST_BYTES = 20_000_000
MOST_PIXELS = 50_000_000
"""As many as telephones take; a decoder of these may come to a gigabyte."""
LONGEST = 2048
"""Pixels of the longer side of what comes back: several times what models look at."""
SECONDS = 10
"""Of computing; a sound picture of the most pixels takes two on a slow core."""

_KINDS = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "WEBP": (b"RIFF",),
}
"""How files begin. Left out are formats that few upload and much goes wrong with, TIFF first."""
_AT_ONCE = BoundedSemaphore(2)
"""Decoders that run side by side; others wait, so that memory stays bounded."""
_BASE_MEMORY, _MEMORY_A_PIXEL = 400_000_000, 12
"""Bytes that the decoder may have: the interpreter itself, and what the dearest format needs."""


class UploadError(PictureError):
    """Bytes that are not taken for a picture; its sentence may be shown to whoever sent them."""


def read_upload(
    data: bytes,
    *,
    most_bytes: int = MOST_BYTES,
    most_pixels: int = MOST_PIXELS,
    longest: int = LONGEST,
    seconds: int = SECONDS,
) -> Image.Image:
    """Decode an untrusted JPEG, PNG, WebP or GIF (its first frame): upright RGB, no metadata.

    A file of more than ``most_bytes``, or whose header says more than ``most_pixels``, is
    refused undecoded. A larger picture is scaled down to ``longest`` pixels of its longer
    side. ``seconds`` is the time on a core that decoding may take.
    """
    from PIL import Image

    if not data:
        raise UploadError("the file is empty")
    if len(data) > most_bytes:
        raise UploadError(f"the file has {len(data):,} bytes, more than the {most_bytes:,} allowed")
    kind = next((kind for kind, starts in _KINDS.items() if data.startswith(starts)), None)
    if kind is None or (kind == "WEBP" and data[8:12] != b"WEBP"):
        raise UploadError("the file is not a JPEG, PNG, WebP or GIF picture")
    told = {
        "kind": kind,
        "most_pixels": most_pixels,
        "longest": longest,
        "seconds": seconds,
        "memory": _BASE_MEMORY + 2 * len(data) + _MEMORY_A_PIXEL * most_pixels,
    }
    with _AT_ONCE:
        answer, pixels = _decoded_apart(data, told)
    if "error" in answer:
        raise UploadError(answer["error"])
    return Image.frombytes("RGB", (answer["width"], answer["height"]), pixels)


def _decoded_apart(data: bytes, told: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The decoder's answer: a line of JSON, and the pixels."""
    command = [sys.executable, "-P", "-m", "polyglance.vision.upload_decoder", json.dumps(told)]
    # Into a file, which the kernel bounds too, rather than into this process's memory.
    with tempfile.TemporaryFile() as out:
        try:
            subprocess.run(
                command,
                input=data,
                stdout=out,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                timeout=20 + 5 * told["seconds"],  # that of a busy machine
                check=True,
            )
        except (subprocess.SubprocessError, BrokenPipeError):
            return {"error": "the picture takes more time or memory to decode than allowed"}, b""
        out.seek(0)
        return json.loads(out.readline()), out.read()

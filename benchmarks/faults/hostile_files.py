"""Files that were changed to harm decoders, through the limits of indexing and of uploads.

Sound pictures, RAW files and clips are cut, overwritten, spliced, and given numbers that are too
large wherever four bytes may be one. Each must give a picture within the limits or one sentence,
in time. What crashes a decoder or takes too much ends a process with limits, and is refused.
"""

from __future__ import annotations

import io
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.dng_files import dng
from benchmarks.faults.trials import Tally
from benchmarks.heif_files import heic
from polyglance.data.toy.video import write_clip
from polyglance.errors import PolyglanceError
from polyglance.search.limited_decoding import decode_for_library
from polyglance.utils.worker_pool import shared_pool
from polyglance.vision.limited_decoding import ClipFrame, DecodeLimits, sample_limited_frames
from polyglance.vision.uploads import MAX_PIXELS, MAX_SIDE, read_upload

LIMITS = DecodeLimits(
    max_pixels=20_000_000, max_frame_pixels=4_000_000, max_seconds=4, max_memory=600_000_000
)
DEADLINE = 60.0
"""Seconds that a file may take on a busy machine, whose limit is 4 s of CPU time."""
MAX_REASON = 300
"""Letters of the sentence that says why a file is refused."""
MIN_SIDE = 336
UPLOADS = 50
"""One file of so many is also decoded as an upload, which starts a process each."""
_CLIPS = (".mp4", ".mov")
_NUMBERS = (0, 1, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF)


def sound_files(scratch: Path) -> dict[str, bytes]:
    """Return small files of each kind, by their suffix and what is special."""
    rows, columns = np.mgrid[0:768, 0:1024].astype(np.float32)
    waves = [np.sin(rows / 9 + k) + np.cos(columns / (11 + k)) for k in range(3)]
    picture = Image.fromarray(np.uint8(np.stack(waves, -1) * 60 + 127))
    exif = Image.Exif()
    exif[0x10F], exif[0x112] = "Phone", 6
    block = exif.tobytes()

    def saved(kind: str, **options: object) -> bytes:
        out = io.BytesIO()
        picture.save(out, kind, **options)
        return out.getvalue()

    scratch.mkdir(parents=True, exist_ok=True)
    frames = np.stack([np.asarray(picture.resize((160, 120)).rotate(30 * k)) for k in range(12)])
    write_clip(scratch / "clip.mp4", frames, rate=6)
    small = picture.resize((512, 384))
    return {
        "grid.heic": heic(picture, exif=block, preview=160),
        "turned.heic": heic(picture, turns=1, mirror=0),
        "single.heic": heic(picture, tile=None),
        "deep.heic": heic(picture, pix_fmt="yuv420p10le"),
        "preview.dng": dng(small, preview=400, taken="2024:05:01 12:00:00", place=(48.1, 11.6)),
        "sensor.dng": dng(small, orientation=6),
        "phone.jpg": saved("JPEG", exif=block),
        "progressive.jpg": saved("JPEG", progressive=True),
        "p.png": saved("PNG"),
        "p.webp": saved("WEBP", exif=block),
        "p.avif": saved("AVIF"),
        "p.tiff": saved("TIFF", compression="tiff_lzw"),
        "p.jp2": saved("JPEG2000"),
        "p.gif": saved("GIF"),
        "clip.mp4": (scratch / "clip.mp4").read_bytes(),
        "clip.mov": _as_mov(scratch / "clip.mp4"),
    }


def _as_mov(path: Path) -> bytes:
    """Return the stream of a clip in the container that phones write."""
    import av

    out = path.with_suffix(".mov")
    with av.open(str(path)) as source, av.open(str(out), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    return out.read_bytes()


def changed(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Return a file with one to three changes; most are near the start, where headers are."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        near = min(len(content), rng.choice((200, 2000, len(content)))) - 1
        at, size = rng.randrange(max(1, near)), rng.choice((1, 4, 16, 256))
        kind = rng.choice(("bits", "bytes", "number", "number", "cut", "take", "repeat", "splice"))
        if kind == "bits":
            content[at] ^= 1 << rng.randrange(8)
        elif kind == "bytes":
            content[at : at + size] = rng.randbytes(size)
        elif kind == "number":
            order = rng.choice(("big", "little"))
            number = rng.choice(_NUMBERS)
            content[at : at + 4] = number.to_bytes(4, "big" if order == "big" else "little")
        elif kind == "cut":
            del content[max(at, 16) :]
        elif kind == "take":
            del content[at : at + size]
        elif kind == "repeat":
            content[at:at] = content[at : at + size] * rng.choice((1, 1000))
        else:
            content[at : at + size] = other[at : at + size]
    return bytes(content) or b"\0"


def decode(name: str, data: bytes, scratch: Path) -> None:
    """Decode a file as indexing does; raise an AssertionError if the result is beyond limits."""
    if not name.endswith(_CLIPS):
        picture = decode_for_library(data, name, LIMITS, min_side=MIN_SIDE, thumbnail=True)
        assert picture.image.width * picture.image.height <= LIMITS.max_pixels
        assert picture.width > 0
        assert picture.height > 0
        assert picture.thumbnail
        return
    path = scratch / name
    path.write_bytes(data)
    for count, reply in enumerate(sample_limited_frames(path, LIMITS, min_side=MIN_SIDE)):
        if isinstance(reply, ClipFrame) and reply.image is not None:
            assert reply.image.width * reply.image.height <= LIMITS.max_frame_pixels
        if count > 100:  # a clip may say that it lasts for years
            return


def upload(data: bytes) -> None:
    """Decode a file as an upload."""
    picture = read_upload(data, max_seconds=LIMITS.max_seconds)
    assert max(picture.size) <= MAX_SIDE
    assert picture.width * picture.height <= MAX_PIXELS


def files(scratch: Path, trials: int, rng: random.Random) -> Tally:
    """Decode changed files, and count how that ended; sound ones must stay readable."""
    tally = Tally("files changed to harm decoders")
    sound = sound_files(scratch)
    for name, data in sound.items():
        outcome, note = attempt(lambda name=name, data=data: decode(name, data, scratch))
        if outcome != "right":
            raise SystemExit(f"{name} cannot be decoded as it is: {note}")
    for number, (name, data) in enumerate(_changes(sound, trials, rng)):
        outcome, note = attempt(lambda name=name, data=data: decode(name, data, scratch))
        _count(tally, outcome, f"{name}, {number}: {note}")
        if number % UPLOADS == 0 and not name.endswith(_CLIPS):
            outcome, note = attempt(lambda data=data: upload(data))
            _count(tally, outcome, f"{name} uploaded, {number}: {note}")
    shared_pool().close()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    if peak > LIMITS.max_memory + 400_000_000:  # and what a process takes without a file
        tally.add("wrong", f"a process took {peak / 1e6:,.0f} MB")
    return tally


def _changes(
    sound: dict[str, bytes], trials: int, rng: random.Random
) -> Iterator[tuple[str, bytes]]:
    names = list(sound)
    for number in range(trials):
        name = names[number % len(names)]
        yield name, changed(sound[name], sound[rng.choice(names)], rng)


def _count(tally: Tally, outcome: str, note: str) -> None:
    """Count a trial; print only what went wrong, of thousands."""
    if outcome in ("right", "refused"):
        tally.outcomes[outcome] += 1
    else:
        tally.add(outcome, note)


def attempt(work: Callable[[], None]) -> tuple[str, str]:
    """Return how an attempt ended, and what it said."""
    start = time.monotonic()
    try:
        work()
        outcome, note = "right", ""
    except PolyglanceError as error:
        outcome, note = "refused", str(error)
        if len(note) > MAX_REASON or not note.isprintable():
            outcome = "wrong"
    except AssertionError as error:
        outcome, note = "wrong", repr(error)
    except Exception as error:
        outcome, note = "traceback", f"{type(error).__name__}: {error}"
    return ("endless", note) if time.monotonic() - start > DEADLINE else (outcome, note)

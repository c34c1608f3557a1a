"""Uploads: sound pictures are decoded; hostile files raise one error and do no harm."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.upload_files import PNG, chunk, file, gif, jpeg_of, many_scans, photograph, png, zeros
from polyglance.vision import uploads
from polyglance.vision.upload_decoder import decode
from polyglance.vision.uploads import UploadError, read_upload

DAMAGED = "damaged or incomplete"
FORMATS = ("JPEG", "PNG", "WEBP", "GIF")


# ------------------------------------------------------------------ sound pictures


@pytest.mark.parametrize("kind", FORMATS)
def test_a_sound_picture_is_decoded(kind: str) -> None:
    picture = read_upload(file(photograph(), kind))
    assert (picture.size, picture.mode) == ((60, 40), "RGB")
    error = np.abs(np.asarray(picture, int) - np.asarray(photograph(), int))
    assert error.mean() < (12 if kind == "GIF" else 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("max_side", [2048, 20])
def test_the_result_is_upright_without_metadata(kind: str, max_side: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees for display
    exif[0x010E] = "a secret"
    sideways = photograph().transpose(Image.Transpose.ROTATE_90)
    data = file(sideways, kind, exif=exif)
    assert b"a secret" in data
    if kind == "JPEG":  # the others by the same process, started less often
        picture = read_upload(data, max_side=max_side)
    else:
        picture = decode(data, kind, 10_000, max_side)
    assert picture.size == ((60, 40) if max_side > 60 else (20, 13))
    if kind == "JPEG":
        assert picture.info == {}
        assert dict(picture.getexif()) == {}
    left, right = np.asarray(picture)[picture.height // 2, [1, -2]].astype(int)
    assert left[0] > left[1] + 100
    assert right[1] > right[0] + 100


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
@pytest.mark.parametrize("max_side", [100, 30])
def test_every_mode_is_decoded_with_and_without_downscaling(mode: str, max_side: int) -> None:
    picture = photograph().convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(picture).astype(np.uint16) * 257)
    kind = "JPEG" if mode == "CMYK" else "PNG"
    decoded = decode(file(picture, kind), kind, 10_000, max_side)
    assert (decoded.mode, decoded.size) == ("RGB", (60, 40) if max_side == 100 else (30, 20))
    expected = picture.convert("RGB") if mode != "I;16" else photograph().convert("L")
    expected = expected.convert("RGB").resize(decoded.size)
    assert abs(np.asarray(decoded, int).mean() - np.asarray(expected, int).mean()) < 4


def test_transparent_parts_are_white() -> None:
    picture = Image.new("RGBA", (200, 100), (255, 0, 0, 0))
    for max_side in (400, 50):
        decoded = decode(file(picture, "PNG"), "PNG", 10**6, max_side)
        assert np.asarray(decoded).min() == 255


def test_the_first_of_many_frames_is_returned() -> None:
    colours = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    for kind in ("GIF", "WEBP", "PNG"):
        data = file(colours[0], kind, save_all=True, append_images=colours[1:] * 2)
        assert decode(data, kind, 1000, 100).getpixel((4, 4)) == pytest.approx((255, 0, 0), abs=3)


def test_the_first_of_two_pictures_in_a_phone_jpeg_is_returned() -> None:
    both = file(photograph(), "MPO", save_all=True, append_images=[Image.new("RGB", (60, 40))])
    decoded = decode(both, "JPEG", 10_000, 100)
    assert np.asarray(decoded).mean() > 100


# ------------------------------------------------------------------ refused undecoded


@pytest.mark.parametrize(
    "data",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"<!DOCTYPE html><img src=x onerror=alert(1)>",
        b"%PDF-1.7",
        b"%!PS-Adobe-3.0 EPSF-3.0\n(/etc/passwd) run",
        b"PK\x03\x04zip",
        b"RIFF\x24\0\0\0WAVEfmt ",
        b"\0\0\0\x1cftypavif",
        file(Image.new("RGB", (4, 4)), "TIFF"),
        file(Image.new("RGB", (4, 4)), "BMP"),
        file(Image.new("RGB", (16, 16)), "ICO"),
        b" " + file(Image.new("RGB", (4, 4)), "PNG"),
        b"\0",
    ],
)
def test_other_formats_are_refused(data: bytes) -> None:
    with pytest.raises(UploadError, match="is not a JPEG, PNG, WebP, GIF, HEIC or RAW"):
        read_upload(data)


def test_too_many_bytes_are_refused_undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_run_decoder", None)
    with pytest.raises(UploadError, match="has 1,001 bytes, more than the 1,000 allowed"):
        read_upload(PNG + bytes(993), max_bytes=1000)
    with pytest.raises(UploadError, match="the file is empty"):
        read_upload(b"")


# ------------------------------------------------------------------ false headers


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("PNG", png(30_000, 30_000, zeros(9_000_000)), "more pixels than allowed"),
        ("PNG", png(20_000, 5_000, zeros(10_000)), "20000 x 5000 pixels, more than the 4,000,000"),
        ("PNG", png(2_000, 2_000, zeros(1_000)), DAMAGED),
        ("PNG", png(0, 10, zeros(10)), DAMAGED),
        ("PNG", png(2**31 - 1, 2**31 - 1, b""), "more pixels than allowed"),
        ("PNG", PNG + chunk(b"IDAT", zeros(99)), DAMAGED),
        ("JPEG", jpeg_of(65_500, 65_500), "more pixels than allowed"),
        ("JPEG", jpeg_of(65_500, 65_500, progressive=True), "more pixels than allowed"),
        ("JPEG", jpeg_of(0, 0), DAMAGED),
        ("GIF", gif((1, 1), (60_000, 60_000)), "more pixels than allowed"),
        ("GIF", gif((1, 1), (3_000, 3_000)), "3000 x 3000 pixels, more than"),
        ("GIF", gif((1900, 1900), (1900, 1900)), DAMAGED),
        ("GIF", b"GIF89a/*<script>alert(1)</script>*/=1;", DAMAGED),
        ("JPEG", b"\xff\xd8\xff<html><script>alert(1)</script>", DAMAGED),
        ("PNG", PNG + b"<svg onload=alert(1)>", DAMAGED),
        ("WEBP", b"RIFF\xff\xff\xff\x7fWEBPVP8 " + bytes(40), DAMAGED),
    ],
)
def test_a_false_header_is_refused_quickly(kind: str, data: bytes, message: str) -> None:
    started = time.process_time()
    with pytest.raises(UploadError, match=message):
        decode(data, kind, 4_000_000, 500)
    assert time.process_time() - started < 2  # a few milliseconds


def test_missing_rows_of_a_jpeg_are_grey() -> None:
    """Its end is marked, so that decoders, including browsers', take it as complete."""
    decoded = decode(jpeg_of(1900, 1900), "JPEG", 4_000_000, 500)
    assert decoded.size == (500, 500)
    assert np.asarray(decoded)[-100:].std() < 2


def test_pixels_beyond_the_header_are_not_read() -> None:
    decoded = decode(png(10, 10, zeros(300_000_000)), "PNG", 1000, 100)
    assert decoded.size == (10, 10)


def test_data_after_a_picture_is_ignored() -> None:
    """Phones append videos to pictures."""
    for kind in FORMATS:
        data = file(photograph(), kind) + b"<script>alert(1)</script>" * 100
        assert decode(data, kind, 10_000, 100).size == (60, 40)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_refused(kind: str, part: float) -> None:
    data = file(photograph(300, 200), kind)
    with pytest.raises(UploadError, match=DAMAGED):
        decode(data[: int(part * len(data))], kind, 10**6, 500)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_mangled_file_gives_a_picture_or_one_error(kind: str) -> None:
    rng = np.random.default_rng(7)
    sound = np.frombuffer(file(photograph(), kind), np.uint8)
    outcomes = set()
    for _ in range(150):
        data = sound.copy()
        places = rng.integers(0, len(data), rng.integers(1, 12))
        data[places] = rng.integers(0, 256, len(places))
        try:
            decoded = decode(data.tobytes(), kind, 100_000, 100)
            assert decoded.mode == "RGB"
            assert max(decoded.size) <= 100
            outcomes.add("picture")
        except UploadError as error:
            outcomes.add(str(error).split(",")[0])
    assert outcomes >= {"picture", "the picture is damaged or incomplete"}
    assert not [outcome for outcome in outcomes if "0x" in outcome]


# ------------------------------------------------------------------ memory and time


def text_bomb() -> bytes:
    """Ten comments of 100 MB, each compressed a thousandfold."""
    comment = chunk(b"zTXt", b"Comment\0\0" + zeros(100_000_000))
    return png(10, 10, zeros(110), *[comment] * 10)


def profile_bomb() -> bytes:
    return png(10, 10, zeros(110), chunk(b"iCCP", b"p\0\0" + zeros(400_000_000)))


def comment_flood() -> bytes:
    """A comment in so many pieces that concatenating them one by one takes minutes."""
    return gif((1, 1), (1, 1), before=b"!\xfe" + (b"\xff" + b"x" * 255) * 70_000 + b"\0")


def exif_flood() -> bytes:
    """EXIF in so many pieces."""
    sound = file(Image.new("RGB", (8, 8)), "JPEG")
    piece = b"\xff\xe1" + struct.pack(">H", 2 + 6 + 12) + b"Exif\0\0" + b"x" * 12
    return sound[:2] + piece * 700_000 + sound[2:]


HOSTILE: dict[str, Callable[[], bytes]] = {
    "pixel bomb": lambda: png(2000, 2000, zeros(2000 * 2001)),
    "text bomb": text_bomb,
    "profile bomb": profile_bomb,
    "frame bomb": lambda: gif((1, 1), (1, 1)) + gif((9, 9), (9, 9))[13:] * 400_000,
    "comment flood": comment_flood,
    "EXIF flood": exif_flood,
    "JPEG with many scans": lambda: many_scans(1900, 4000),
    "WebP with many pixels": lambda: file(
        Image.new("RGBA", (1900, 2000)), "WEBP", lossless=True, method=0
    ),
    "WebP with far too many pixels": lambda: (
        b"RIFF\x1e\0\0\0WEBPVP8L\x11\0\0\0\x2f" + b"\xff\xff\xff\x0f" + bytes(12)
    ),
}

MEASURE = """
import json, re, resource, sys
from pathlib import Path
from polyglance.vision.uploads import UploadError, read_upload

def seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

results = {}
for path in map(Path, sys.argv[1:]):
    before, data = seconds(), path.read_bytes()
    try:
        answer = list(read_upload(data, max_pixels=4_000_000, max_side=500, max_seconds=1).size)
    except UploadError as error:
        answer = str(error)
    results[path.name] = {
        "answer": answer,
        "own": int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000,
        "decoder": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000,
        "seconds": seconds() - before,
    }
print(json.dumps(results))
"""


def test_memory_and_time_are_bounded(tmp_path: Path) -> None:
    """Megabytes and CPU seconds, of a fresh process and of the decoders that it starts."""
    for name, make in HOSTILE.items():
        (tmp_path / name).write_bytes(make())
        assert (tmp_path / name).stat().st_size <= uploads.MAX_BYTES
    paths = [tmp_path / name for name in HOSTILE]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True, check=True
    )
    results = json.loads(done.stdout)
    assert list(results) == list(HOSTILE)
    for name, result in results.items():
        assert result["own"] < 100, name
        assert result["decoder"] < 400, name
        assert result["seconds"] < 3, name
        assert isinstance(result["answer"], list) or "picture" in result["answer"], name


def test_the_kernel_bounds_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = file(Image.new("RGB", (3000, 3000)), "PNG")
    assert read_upload(large, max_side=10).size == (10, 10)
    monkeypatch.setattr(uploads, "_BASE_MEMORY", 1_000_000)
    monkeypatch.setattr(uploads, "_MEMORY_PER_PIXEL", 0)
    with pytest.raises(UploadError, match="takes more memory to decode than allowed"):
        read_upload(large, max_side=10)


def test_a_crashed_decoder_raises_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for data in (file(photograph(), "PNG"), PNG + bytes(10**6)):  # not even read by the decoder
        with pytest.raises(UploadError, match="takes more time or memory to decode than allowed"):
            read_upload(data)


def test_at_most_two_decoders_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running, maximum, lock = 0, 0, threading.Lock()

    def run_decoder(
        data: bytes, settings: dict[str, Any], *, background: bool
    ) -> tuple[dict[str, Any], bytes]:
        nonlocal running, maximum
        with lock:
            running += 1
            maximum = max(maximum, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return {"width": 1, "height": 1}, b"\1\2\3"

    monkeypatch.setattr(uploads, "_run_decoder", run_decoder)
    with ThreadPoolExecutor(20) as pool:
        decoded = list(pool.map(read_upload, [PNG] * 60))
    assert [picture.getpixel((0, 0)) for picture in decoded] == [(1, 2, 3)] * 60
    assert maximum == 2


def test_decoders_yield_their_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "decoder"
    error = r"{\"error\": \"$(nice) " "$(cut -d' ' -f41 /proc/$$/stat)" r"\"}"
    program.write_text(f'#!/bin/sh\ncat >/dev/null\necho "{error}"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    for background, policy in ((False, os.SCHED_OTHER), (True, os.SCHED_IDLE)):
        with pytest.raises(UploadError, match=f"^{min(19, os.nice(0) + 10)} {policy}$"):
            read_upload(b"\xff\xd8\xff" + bytes(1_000_000), background=background)

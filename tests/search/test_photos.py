"""A folder as a phone and a camera fill it: HEIC, RAW and HEVC files, sideways and broken ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.dng_files import dng
from benchmarks.heif_files import heic
from polyglance.search.library import Library
from polyglance.vision import heif, raw


def exif(camera: tuple[str, str], taken: str) -> bytes:
    block = Image.Exif()
    block[0x010F], block[0x0110] = camera
    block.get_ifd(0x8769)[0x9003] = taken
    block.get_ifd(0x8825).update({1: "N", 2: (48.0, 8.0, 13.2), 3: "E", 4: (11.0, 34.5, 0.0)})
    return block.tobytes()


def hevc_clip(path: Path, colours: tuple[str, str]) -> Path:
    """Write a clip of a phone that was held upright: its frames lie on their side."""
    import av

    with av.open(str(path), "w", options={"movflags": "use_metadata_tags"}) as container:
        container.metadata["com.apple.quicktime.creationdate"] = "2024-07-31T18:05:00+0200"
        container.metadata["com.apple.quicktime.model"] = "iPhone 15"
        stream = container.add_stream("libx265", rate=2)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        stream.options = {"x265-params": "log-level=none:pools=none", "preset": "ultrafast"}
        stream.codec_context.codec_tag = "hvc1"
        picture = Image.new("RGB", (128, 96), colours[0])
        picture.paste(colours[1], (64, 0, 128, 96))
        for _ in range(4):
            container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode())
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 44
    data[place : place + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path


@pytest.fixture
def camera_roll(photos: Path) -> Path:
    red, blue = (Image.new("RGB", (160, 96), colour) for colour in ("red", "blue"))
    block = exif(("Apple", "iPhone 15"), "2024:07:31 18:05:00")
    (photos / "IMG_1.HEIC").write_bytes(heic(red, tile=64, exif=block, turns=3))
    place = (-33.8569, 151.2152)
    content = dng(blue, make="Canon", model="Canon R5", taken="2023:01:02 03:04:05", place=place)
    (photos / "IMG_2.DNG").write_bytes(content)
    hevc_clip(photos / "IMG_3.MOV", ("red", "blue"))
    (photos / "broken.heic").write_bytes(heic(red, tile=64)[:300])
    (photos / "broken.cr2").write_bytes(b"II*\0" + bytes(60))
    return photos


def test_a_camera_roll_is_indexed_with_what_its_files_say(
    library: Library, camera_roll: Path
) -> None:
    report = library.add(camera_roll, thumbnails=True)
    assert report.added == 3
    assert {Path(bad.path).name: bad.reason for bad in report.bad} == {
        "broken.heic": "the HEIC file is damaged or incomplete",
        "broken.cr2": "is not a RAW file of a known camera",
    }
    items = {Path(item.path).name: item for item in (e.item for e in library._store().entries())}
    sizes = {name: (item.width, item.height, item.taken) for name, item in items.items()}
    assert sizes == {
        "IMG_1.HEIC": (96, 160, "2024-07-31T18:05:00"),
        "IMG_2.DNG": (160, 96, "2023-01-02T03:04:05"),
        "IMG_3.MOV": (96, 128, "2024-07-31T18:05:00"),
    }
    details = library._store().details([item.path for item in items.values()])
    found = {
        Path(path).name: (detail.camera, detail.latitude, detail.longitude)
        for path, detail in details.items()
    }
    assert found == {
        "IMG_1.HEIC": ("Apple iPhone 15", 48.137, 11.575),
        "IMG_2.DNG": ("Canon R5", -33.8569, 151.2152),
        "IMG_3.MOV": ("iPhone 15", None, None),
    }
    best = {hit.path.name: hit.score for hit in library.search("red", kind="picture")}
    assert best["IMG_1.HEIC"] > 0.95 > best["IMG_2.DNG"]


def test_a_clip_held_upright_is_shown_upright(library: Library, photos: Path) -> None:
    path = hevc_clip(photos / "a.mov", ("red", "blue"))
    library.add(photos, thumbnails=True)
    [hit] = library.search("red")
    frame = library.picture(hit)
    assert frame.size == (96, 128)
    assert frame.getpixel((48, 10))[0] > 200  # type: ignore[index]
    assert frame.getpixel((48, 118))[2] > 200  # type: ignore[index]
    thumbnail = library._store().thumbnail(str(path))
    assert thumbnail is not None


def test_pictures_are_shown_upright_and_decoded_in_another_process(
    library: Library, camera_roll: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add(camera_roll)
    monkeypatch.setattr(heif, "register", None)
    monkeypatch.setattr(raw, "open_raw", None)
    images = {hit.path.name: library.picture(hit) for hit in library.search("red", kind="picture")}
    assert images["IMG_1.HEIC"].size == (96, 160)
    assert images["IMG_2.DNG"].size == (80, 48)  # developed at half the size


def test_without_the_extra_files_are_skipped_with_the_way_out_and_indexed_after(
    library: Library, camera_roll: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in camera_roll.glob("broken*"):
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(heif, "can_read_heif", lambda: False)
        patch.setattr(raw, "can_read_raw", lambda: False)
        report = library.add(camera_roll)
    assert report.added == 1
    reason = "HEIC and RAW pictures need optional packages: pip install 'polyglance[photos]'"
    assert [(Path(bad.path).name, bad.reason) for bad in report.bad] == [
        ("IMG_1.HEIC", reason),
        ("IMG_2.DNG", reason),
    ]
    assert library.update().added == 2

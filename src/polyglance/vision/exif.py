"""What a camera writes about a picture or clip: when, where, with what, and which side is up."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Exif, Image

ORIENTATION = 0x0112
SIDEWAYS = range(5, 9)
"""Orientations that swap width and height."""
_MAKE, _MODEL, _DATE_TIME = 0x010F, 0x0110, 0x0132
_EXIF_IFD, _DATE_TIME_ORIGINAL = 0x8769, 0x9003
_GPS_IFD, _LATITUDE, _LONGITUDE = 0x8825, 2, 4
_MAX_NAME = 100
"""Letters of the name of a maker or a camera."""
_QUICKTIME = "com.apple.quicktime."
"""Phones give the local time with its zone under such a key, and in UTC without it."""
_ISO_6709 = re.compile(r"([+-]\d{1,2}(?:\.\d+)?)([+-]\d{1,3}(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Metadata:
    """When, where and with what a picture or clip was taken, if its file says so."""

    taken: str | None = None
    """Local time, as ``2024-07-31T18:05:00``."""
    camera: str | None = None
    """Maker and model, as ``Canon EOS R5``."""
    latitude: float | None = None
    """Degrees, north positive."""
    longitude: float | None = None
    """Degrees, east positive."""


def clip_metadata(tags: Mapping[str, str]) -> Metadata:
    """Return what the tags of a video's container say."""
    found = _ISO_6709.match(tags.get(f"{_QUICKTIME}location.ISO6709") or tags.get("location", ""))
    place = check_place(float(found[1]), float(found[2])) if found else None
    written = tags.get(f"{_QUICKTIME}creationdate", "")
    make, model = (
        tags.get(f"{_QUICKTIME}{name}") or tags.get(f"com.android.{name}") or tags.get(name)
        for name in ("make", "model")
    )
    return Metadata(
        _own_time(written) or _local_time(tags.get("creation_time", "")),
        camera_name(make, model),
        *(place or (None, None)),
    )


def exif_of(picture: Image) -> Exif:
    """Return the EXIF block of an opened picture; an empty one if it has none or a broken one.

    Some formats have it after the pixels, which are decoded then.
    """
    from PIL import Image

    try:
        return picture.getexif()
    except Exception:  # the picture is usable without its EXIF block
        return Image.Exif()


def read_metadata(exif: Exif) -> Metadata:
    """Return what an EXIF block says; a broken one says less."""
    latitude, longitude = _place(exif) or (None, None)
    return Metadata(
        _date(exif), camera_name(_get(exif, _MAKE), _get(exif, _MODEL)), latitude, longitude
    )


def orientation(exif: Exif) -> int:
    """Return the orientation, 1 to 8; 1 if there is none."""
    value = _get(exif, ORIENTATION)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def camera_name(make: Any, model: Any) -> str | None:
    """Return the name of a camera, in which most models repeat their maker."""
    maker, name = (_clean(part) for part in (make, model))
    if not maker or not name or name.split()[0].lower() == maker.split()[0].lower():
        return name or maker or None
    return f"{maker} {name}"


def check_place(latitude: float, longitude: float) -> tuple[float, float] | None:
    """Return a place on earth, or None; zero and zero is what cameras write without a fix."""
    sound = math.isfinite(latitude) and math.isfinite(longitude)
    if not sound or abs(latitude) > 90 or abs(longitude) > 180 or latitude == longitude == 0:
        return None
    return round(latitude, 6), round(longitude, 6)


def _get(exif: Exif, tag: int, ifd: int | None = None) -> Any:
    try:
        return (exif if ifd is None else exif.get_ifd(ifd)).get(tag)
    except Exception:  # the picture is usable without its EXIF block
        return None


def _clean(text: Any) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in str(text or ""))
    return " ".join(words.split())[:_MAX_NAME].strip()


def _date(exif: Exif) -> str | None:
    for text in (_get(exif, _DATE_TIME_ORIGINAL, _EXIF_IFD), _get(exif, _DATE_TIME)):
        try:
            return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").isoformat()
        except ValueError:
            continue
    return None


def _place(exif: Exif) -> tuple[float, float] | None:
    try:
        latitude, longitude = (
            _degrees(_get(exif, tag, _GPS_IFD), str(_get(exif, tag - 1, _GPS_IFD)))
            for tag in (_LATITUDE, _LONGITUDE)
        )
        return check_place(latitude, longitude)
    except (TypeError, ValueError, ArithmeticError):
        return None


def _degrees(parts: Any, reference: str) -> float:
    """Convert degrees, minutes and seconds; the reference is N, E, S or W."""
    degrees, minutes, seconds = map(float, parts)
    value = degrees + minutes / 60 + seconds / 3600
    return -value if reference.strip("\0 ").upper() in ("S", "W") else value


def _own_time(text: str) -> str | None:
    """Return the local time of the camera from a time with its zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _if_set(when.replace(tzinfo=None))


def _local_time(text: str) -> str | None:
    """Return a time in UTC as the time in the zone of this machine."""
    try:
        when = datetime.fromisoformat(text)
        return _if_set((when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone())
    except (ValueError, OverflowError, OSError):
        return None


def _if_set(when: datetime) -> str | None:
    """Return a time; None for a camera whose clock was never set, and counts from 1904 or 1970."""
    is_set = when.year > 1970
    return when.replace(tzinfo=None, microsecond=0).isoformat() if is_set else None

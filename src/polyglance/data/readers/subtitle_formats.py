"""Parse subtitle files: SRT, WebVTT and several JSON layouts.

Each parser yields the text that a player would show and reports what is malformed, with its
line or place. WebVTT follows the W3C recommendation; SRT has no specification and is read as
players read it.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from polyglance.data.cues import ScreenText, merge_rolling_cues
from polyglance.data.readers.validation import (
    check_list,
    check_number,
    check_object,
    check_span,
    check_string,
    reporting,
)
from polyglance.errors import Problems, error_reason
from polyglance.records import Cue, parse_json

FORMATS = ("vtt", "srt", "json", "json3")

_STAMP = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,9}))?"
_TIMES = re.compile(rf"\s*{_STAMP}\s*-->\s*{_STAMP}(?:\s.*)?", re.ASCII)
_BLOCKS = re.compile(r"(NOTE|STYLE|REGION)\b|WEBVTT")
# <b>, </font>, <c.yellow>, <v Roger>, <00:00:01.200> before a word, SRT's {\an8}, ruby text
_STYLING = re.compile(r"<rt>.*?</rt>|</?[a-zA-Z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}")


def read_cues(path: Path, problems: Problems) -> tuple[Cue, ...]:
    """Read the cues of a subtitle file, in order of time, each line once."""
    try:
        data = path.read_bytes()
        content = _decode(data)
    except OSError as error:
        problems.report(path, None, f"cannot be read ({error_reason(error)})")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.report(path, line, "expected UTF-8 text (or UTF-16 with a byte order mark)")
    else:
        if path.suffix.startswith(".json"):
            return merge_rolling_cues(_parse_json(path, content, problems))
        return merge_rolling_cues(_parse_timed(path, content, problems))
    return ()


def cues_in_columns(
    path: Path, value: dict[str, Any], place: str, problems: Problems
) -> tuple[Cue, ...]:
    """Parse cues in HowTo100M's columns: ``{"start": [...], "end": [...], "text": [...]}``."""
    cues: tuple[Cue, ...] = ()
    with reporting(problems, path, place=place):
        columns = [check_list(value.get(key), repr(key)) for key in ("start", "end", "text")]
        if len({len(column) for column in columns}) > 1:
            raise ValueError("'start', 'end' and 'text' of one length")
        cues = merge_rolling_cues(_screen_texts(path, zip(*columns, strict=True), place, problems))
    return cues


def _decode(data: bytes) -> str:
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if wide else "utf-8-sig")


def _parse_timed(path: Path, content: str, problems: Problems) -> Iterator[ScreenText]:
    """Parse SRT or WebVTT: a line of times, then text up to an empty line."""
    lines = re.split(r"\r\n|\r|\n", content)
    if path.suffix == ".vtt" and not lines[0].startswith("WEBVTT"):
        problems.report(path, 1, "expected 'WEBVTT' on the first line")
    at = 0
    while at < len(lines):
        if "-->" in lines[at]:
            first = at + 1
            at = _end_of_text(lines, first)
            with reporting(problems, path, first):
                start, end = _times(lines[first - 1])
                yield start, end, [_plain(line) for line in lines[first:at]]
        elif not lines[at].strip() or lines[at].strip().isdigit() or _is_identifier(lines, at):
            at += 1
        elif _BLOCKS.match(lines[at]):
            at = _end_of_block(lines, at)
        else:
            problems.report(path, at + 1, "expected 'HH:MM:SS.mmm --> HH:MM:SS.mmm' before text")
            at = _end_of_block(lines, at)


def _end_of_text(lines: list[str], at: int) -> int:
    """Return where a cue's text ends: at an empty line or, if that is missing, the next cue."""
    while at < len(lines) and lines[at] and "-->" not in lines[at]:
        if _is_identifier(lines, at) and lines[at].strip().isdigit():
            break
        at += 1
    return at


def _end_of_block(lines: list[str], at: int) -> int:
    while (
        at < len(lines)
        and lines[at].strip()
        and not ("-->" in lines[at] or _is_identifier(lines, at))
    ):
        at += 1
    return at


def _is_identifier(lines: list[str], at: int) -> bool:
    """Return whether a line is a cue's number or name, just before its times."""
    return at + 1 < len(lines) and "-->" in lines[at + 1]


def _times(line: str) -> tuple[float, float]:
    match = _TIMES.fullmatch(line)
    if match is None:
        raise ValueError("'HH:MM:SS.mmm --> HH:MM:SS.mmm'")
    stamps = match.groups(default="0")
    start, end = (
        int(hours) * 3600 + int(minutes) * 60 + float(f"{int(seconds)}.{fraction}")
        for hours, minutes, seconds, fraction in (stamps[:4], stamps[4:])
    )
    return check_span(start, end, "the subtitle")


def _plain(line: str) -> str:
    """Remove styling, entities and superfluous white space from a line."""
    return " ".join(html.unescape(_STYLING.sub("", line)).split())


def _parse_json(path: Path, content: str, problems: Problems) -> Iterator[ScreenText]:
    """Parse columns, or a list of cues: bare, a recogniser's segments or YouTube's events."""
    with reporting(problems, path):
        document = parse_json(content)
        if isinstance(document, dict) and isinstance(document.get("text"), list):
            cues = cues_in_columns(path, document, "subtitles", problems)
            yield from ((cue.start, cue.end, [cue.text]) for cue in cues)
            return
        if isinstance(document, dict):
            document = next((document[key] for key in _LISTS if key in document), document)
        yield from _screen_texts(path, check_list(document, "the subtitles"), "subtitles", problems)


_LISTS = ("segments", "events", "cues", "captions", "subtitles", "body")


def _screen_texts(
    path: Path, cues: Iterable[object], place: str, problems: Problems
) -> Iterator[ScreenText]:
    for index, cue in enumerate(cues):
        with reporting(problems, path, place=f"{place}[{index}]"):
            start, end, content = _parts(cue)
            lines = check_string(content, "'text'").splitlines()
            yield *check_span(start, end, "the subtitle"), [_plain(line) for line in lines]


def _parts(cue: object) -> tuple[object, object, object]:
    """Return start, end and text of a cue under any of the usual names, not yet validated."""
    if isinstance(cue, list | tuple) and len(cue) == 3:
        return cue[0], cue[1], cue[2]
    cue = check_object(cue, "a subtitle")
    if "tStartMs" in cue:
        seconds = check_number(cue["tStartMs"], "'tStartMs'") / 1000
        duration = check_number(cue.get("dDurationMs", 0), "'dDurationMs'") / 1000
        pieces = [
            check_object(piece, "a piece") for piece in check_list(cue.get("segs", []), "'segs'")
        ]
        text = "".join(check_string(piece.get("utf8", ""), "'utf8'") for piece in pieces)
        return seconds, seconds + duration, text
    start, end = cue.get("start", cue.get("from")), cue.get("end", cue.get("to"))
    if end is None:
        end = check_number(start, "'start'") + check_number(
            cue.get("duration", cue.get("dur")), "'end'"
        )
    return start, end, cue.get("text", cue.get("content"))

"""Subtitle files of videos.

Layout: ``VIDEO.en.vtt``, ``VIDEO.de.srt``, ``VIDEO.fr.json`` ... in one folder. The tracks of a
video become one record; cues keep their times, so that `polyglance.data.cues.nearest_cues` finds
those of any clip in each language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files
from polyglance.data.readers.subtitle_formats import FORMATS, read_cues
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import Problems
from polyglance.languages import normalise_language
from polyglance.records import Cue, Record

_NAME = re.compile(
    rf"(?P<video>.+?)(\.(?P<language>[A-Za-z]{{2,3}}([-_][A-Za-z0-9]{{1,8}})*))?\.({'|'.join(FORMATS)})",
    re.DOTALL,
)


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per video, with its subtitles by language."""
    files = find_files(
        source,
        lambda name: bool(_NAME.fullmatch(name)),
        "files named VIDEO.en.vtt, VIDEO.de.srt ...",
    )
    videos: dict[str, list[tuple[str, Path]]] = {}
    for path in files:
        with reporting(problems, path):
            video, language = _parse_name(path.name, options)
            videos.setdefault(video, []).append((language, path))
    for video, paths in videos.items():
        tracks: dict[str, tuple[Cue, ...]] = {}
        for language, path in paths:
            if language in tracks:
                problems.report(path, None, f"expected one track in {language!r}; kept the first")
            elif cues := _read_track(path, problems):
                tracks[language] = cues
        if tracks:
            yield Record(video=options.video_path(video), subtitles=tracks, split=options.split)


def _parse_name(name: str, options: ReadOptions) -> tuple[str, str]:
    match = _NAME.fullmatch(check_text(name, "the file's name"))
    language = (match and match["language"]) or options.language
    if not match or not language:
        raise ValueError("a name with the language in it, such as VIDEO.en.vtt")
    return match["video"], normalise_language(language)


def _read_track(path: Path, problems: Problems) -> tuple[Cue, ...]:
    before = len(problems)
    cues = read_cues(path, problems)
    if not cues and len(problems) == before:
        problems.report(path, None, "expected at least one subtitle")
    return cues

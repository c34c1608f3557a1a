"""HowTo100M (Miech et al., 2019) and Multi-HowTo100M (Huang et al., 2021).

Layout: one JSON object of videos with their subtitles:

    {"VIDEO": {"start": [8.39, ...], "end": [15.25, ...], "text": ["...", ...]}, ...}

``raw_caption.json`` is the recognised speech, ``caption.json`` the same without stop words;
``how2_en.json``, ``how2_de.json`` ... have one language each, and a folder of them gives one
record per video with all its languages. The files have gigabytes, so they are scanned, not
loaded: only the byte ranges of the further languages' videos are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files, language_in_name, without_gz
from polyglance.data.readers.json_files import ByteRange, JsonMembers
from polyglance.data.readers.subtitle_formats import cues_in_columns
from polyglance.data.readers.validation import reporting
from polyglance.errors import Problems
from polyglance.records import Cue, Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per video, with its subtitles by language."""
    files: dict[str, Path] = {}
    for path in find_files(source, _is_captions, "how2_en.json, how2_de.json ... or caption.json"):
        language = language_in_name(path.name) or options.language or "en"
        # Sorted by name: raw_caption.json comes last and replaces caption.json.
        files[language] = path
    tracks = {language: JsonMembers(path, problems) for language, path in files.items()}
    ranges = {
        language: dict(members.byte_ranges(problems))
        for language, members in list(tracks.items())[1:]
    }
    for language, members in tracks.items():
        remaining = ranges.pop(language, None)
        items = members.byte_ranges(problems) if remaining is None else remaining.items()
        for video, byte_range in items:
            by_language = {language: byte_range}
            for other, videos in ranges.items():
                if video in videos:
                    by_language[other] = videos.pop(video)
            yield from _record(video, by_language, tracks, options, problems)


def _is_captions(name: str) -> bool:
    name = without_gz(name)
    return name in ("caption.json", "raw_caption.json") or (
        name.endswith(".json") and language_in_name(name) is not None
    )


def _record(
    video: str,
    ranges: dict[str, ByteRange],
    tracks: dict[str, JsonMembers],
    options: ReadOptions,
    problems: Problems,
) -> Iterator[Record]:
    subtitles: dict[str, tuple[Cue, ...]] = {}
    for language, byte_range in ranges.items():
        members = tracks[language]
        with reporting(problems, members.path, place=repr(video[:20])):
            value = members.load(byte_range)
            if cues := cues_in_columns(members.path, value, repr(video[:20]), problems):
                subtitles[language] = cues
    if subtitles:
        yield Record(video=options.video_path(video), subtitles=subtitles, split=options.split)

"""HowTo100M (Miech et al., 2019) and Multi-HowTo100M (Huang et al., 2021): videos with subtitles.

    {"VIDEO": {"start": [8.39, ...], "end": [15.25, ...], "text": ["...", ...]}, ...}

``raw_caption.json`` has the narration as it was recognised, ``caption.json``
without its stop words; ``how2_en.json``, ``how2_de.json`` ... hold a language
each, and from a folder of them a video's tracks become one record. The files
have gigabytes: they are walked, not loaded, and of the further languages only
the places of the videos are kept in memory.
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
    """Yield a record a video, with its subtitles by language."""
    files: dict[str, Path] = {}
    for path in find_files(source, _is_captions, "how2_en.json, how2_de.json ... or caption.json"):
        language = language_in_name(path.name) or options.language or "en"
        # Sorted by name, so that raw_caption.json comes last and wins over caption.json.
        files[language] = path
    tracks = {language: JsonMembers(path, problems) for language, path in files.items()}
    places = {
        language: dict(members.byte_ranges(problems))
        for language, members in list(tracks.items())[1:]
    }
    for language, members in tracks.items():
        found = places.pop(language, None)
        for video, place in members.byte_ranges(problems) if found is None else found.items():
            here = {language: place}
            for other, videos in places.items():
                if video in videos:
                    here[other] = videos.pop(video)
            yield from _record(video, here, tracks, options, problems)


def _is_captions(name: str) -> bool:
    name = without_gz(name)
    return name in ("caption.json", "raw_caption.json") or (
        name.endswith(".json") and language_in_name(name) is not None
    )


def _record(
    video: str,
    places: dict[str, ByteRange],
    tracks: dict[str, JsonMembers],
    options: ReadOptions,
    problems: Problems,
) -> Iterator[Record]:
    subtitles: dict[str, tuple[Cue, ...]] = {}
    for language, place in places.items():
        members = tracks[language]
        with reporting(problems, members.path, place=repr(video[:20])):
            value = members.load(place)
            if cues := cues_in_columns(members.path, value, repr(video[:20]), problems):
                subtitles[language] = cues
    if subtitles:
        yield Record(video=options.video_path(video), subtitles=subtitles, split=options.split)

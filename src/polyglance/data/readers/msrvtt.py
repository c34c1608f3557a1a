"""MSR-VTT (Xu et al., 2016): ten thousand clips with twenty captions each.

Layout: ``train_val_videodatainfo.json`` and the like, one JSON object:

    {"videos": [{"video_id": "video0", "split": "train", "url": "https://www.youtube.com/watch?v=...",
                 "start time": 137.72, "end time": 149.44}, ...],
     "sentences": [{"video_id": "video0", "caption": "..."}, ...]}

The clips are published as files ``video0.mp4``. With ``untrimmed`` a record names the upload
and the span instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from polyglance.data.readers.base import ReadOptions, find_files, normalise_split, without_gz
from polyglance.data.readers.json_files import entries, load_json
from polyglance.data.readers.validation import check_span, check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per clip; ``options.language`` replaces English."""
    for path in find_files(source, _is_info, "files named train_val_videodatainfo.json ..."):
        document = load_json(path, problems, dict)
        captions: dict[str, list[str]] = {}
        for place, entry in entries(path, document, "sentences", problems):
            with reporting(problems, path, place=place):
                clip = check_text(entry.get("video_id"), "'video_id'")
                captions.setdefault(clip, []).append(check_text(entry.get("caption"), "'caption'"))
        for place, entry in entries(path, document, "videos", problems):
            with reporting(problems, path, place=place):
                clip = check_text(entry.get("video_id"), "'video_id'")
                yield _record(clip, entry, tuple(captions.pop(clip, ())), options)
        for clip in captions:
            problems.report(path, None, f"expected 'videos' to list {clip[:20]!r} of 'sentences'")


def _is_info(name: str) -> bool:
    return "videodatainfo" in name and without_gz(name).endswith(".json")


def _record(
    clip: str, entry: dict[str, Any], sentences: tuple[str, ...], options: ReadOptions
) -> Record:
    split = entry.get("split", options.split)
    captions = {options.language or "en": sentences} if sentences else {}
    split = None if split is None else normalise_split(check_text(split, "'split'"))
    if not options.untrimmed:
        return Record(video=options.video_path(clip), captions=captions, split=split)
    return Record(
        id=clip,
        video=options.video_path(_upload(check_text(entry.get("url"), "'url'"))),
        span=check_span(entry.get("start time"), entry.get("end time"), "the clip"),
        captions=captions,
        split=split,
    )


def _upload(url: str) -> str:
    """Return the id of the upload in its URL."""
    ids = parse_qs(urlsplit(url).query).get("v")
    if not ids:
        raise ValueError("'url' to be https://www.youtube.com/watch?v=ID")
    return check_text(ids[0], "the id of the upload")

"""VATEX (Wang et al., 2019): clips with ten English and ten Chinese captions each.

Layout: ``vatex_training_v1.0.json`` and the like, one JSON list:

    [{"videoID": "Ptf_2VRj-V0_000122_000132", "enCap": [...], "chCap": [...]}, ...]

The last five captions of both languages are translations of each other. The clips are those of
Kinetics, and ``videoID`` is the upload with its first and last second. With ``untrimmed`` a
record names the upload and the span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyglance.data.readers.base import ReadOptions, find_files, split_in_name, without_gz
from polyglance.data.readers.json_files import load_json, objects
from polyglance.data.readers.validation import check_list, check_span, check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Record

_LANGUAGES = {"enCap": "en", "chCap": "zh"}
_CLIP = re.compile(r"(.+)_(\d{1,9})_(\d{1,9})")


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per clip; those of the private test set have no captions."""
    for path in find_files(source, _is_vatex, "files named vatex_training_v1.0.json ..."):
        split = options.split or split_in_name(path)
        for place, entry in objects(path, load_json(path, problems, list), "", problems):
            with reporting(problems, path, place=place):
                yield _record(entry, split, options)


def _is_vatex(name: str) -> bool:
    return name.startswith("vatex") and without_gz(name).endswith(".json")


def _record(entry: dict[str, Any], split: str | None, options: ReadOptions) -> Record:
    clip = check_text(entry.get("videoID"), "'videoID'")
    captions = {
        language: tuple(check_text(caption, f"a caption in {key!r}") for caption in captions)
        for key, language in _LANGUAGES.items()
        if (captions := check_list(entry.get(key, []), repr(key)))
    }
    if not options.untrimmed:
        return Record(video=options.video_path(clip), captions=captions, split=split)
    parts = _CLIP.fullmatch(clip)
    if parts is None:
        raise ValueError("'videoID' to be UPLOAD_START_END")
    seconds = check_span(parts[2], parts[3], "the clip")
    return Record(
        id=clip, video=options.video_path(parts[1]), span=seconds, captions=captions, split=split
    )

"""MSVD, also called YouTube2Text (Chen and Dolan, 2011): clips described in many languages.

Layout: ``video_corpus.csv`` (published as "MSR Video Description Corpus.csv"), with a header
and one description per line:

    VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description
    mv89psg6zh4,33,46,362812,unverified,33,English,a bird in a sink

The clips are published as files ``mv89psg6zh4_33_46.avi``, named by the upload with the clip's
first and last second. ``train_list.txt``, ``val_list.txt`` and ``test_list.txt`` beside the
corpus name the clips of each split (1,200, 100 and 670). With ``untrimmed`` a record names
the upload and the span.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files, without_gz
from polyglance.data.readers.csv_files import rows
from polyglance.data.readers.validation import check_integer, check_span, check_text, reporting
from polyglance.errors import Problems
from polyglance.languages import normalise_language
from polyglance.records import Record, read_lines

_NAMES = {"slovene": "sl", "filipino": "tl", "farsi": "fa"}
"""Codes of languages that the corpus calls by another name than `polyglance.languages`."""
_COLUMNS = ("VideoID", "Start", "End", "Language", "Description")


@dataclass
class _Clip:
    upload: str
    span: tuple[float, float]
    captions: dict[str, list[str]] = field(default_factory=dict)


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per clip, with its descriptions by language."""
    for path in find_files(source, _is_corpus, "video_corpus.csv"):
        splits = _read_splits(path.parent, problems)
        clips: dict[str, _Clip] = {}
        for number, row in rows(path, _COLUMNS, problems):
            with reporting(problems, path, number):
                upload = check_text(row["VideoID"], "'VideoID'")
                start, end = (check_integer(row[name], f"'{name}'") for name in ("Start", "End"))
                span = check_span(start, end, "the clip")
                name = check_text(row["Language"], "'Language'")
                language = normalise_language(_NAMES.get(name.lower(), name))
                text = check_text(row["Description"], "'Description'")
                clip = clips.setdefault(f"{upload}_{start}_{end}", _Clip(upload, span))
                clip.captions.setdefault(language, []).append(text)
        for name, clip in clips.items():
            yield _record(name, clip, splits.get(name, options.split), options)


def _is_corpus(name: str) -> bool:
    name = without_gz(name).lower().replace("_", " ")
    return name.endswith(".csv") and ("video corpus" in name or "video description" in name)


def _record(name: str, clip: _Clip, split: str | None, options: ReadOptions) -> Record:
    captions = {language: tuple(texts) for language, texts in clip.captions.items()}
    if not options.untrimmed:
        return Record(video=options.video_path(name), captions=captions, split=split)
    return Record(
        id=name,
        video=options.video_path(clip.upload),
        span=clip.span,
        captions=captions,
        split=split,
    )


def _read_splits(folder: Path, problems: Problems) -> dict[str, str]:
    splits: dict[str, str] = {}
    for split in ("train", "val", "test"):
        path = folder / f"{split}_list.txt"
        if path.is_file():
            splits |= {line.strip(): split for _, line in read_lines(path, problems)}
    return splits

"""MSR-VTT's test of 1,000 clips (Yu et al., 2018, "JSFusion"): one query for each clip.

Layout: ``MSRVTT_JSFUSION_test.csv``, with a header:

    key,vid_key,video_id,sentence
    ret0,msr9770,video9770,a person is connecting something to system

``sentence`` is the only query of its clip, one of the clip's twenty captions. This is the
protocol of most published results, often called 1k-A.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions, find_files, without_gz
from polyglance.data.readers.csv_files import rows
from polyglance.data.readers.validation import check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per query; ``options.language`` replaces English."""
    for path in find_files(source, _is_list, "MSRVTT_JSFUSION_test.csv"):
        for number, row in rows(path, ("video_id", "sentence"), problems):
            with reporting(problems, path, number):
                clip = check_text(row["video_id"], "'video_id'")
                sentence = check_text(row["sentence"], "'sentence'")
                yield Record(
                    video=options.video_path(clip),
                    captions={options.language or "en": (sentence,)},
                    split=options.split or "test",
                )


def _is_list(name: str) -> bool:
    name = without_gz(name).lower()
    return "jsfusion" in name and name.endswith(".csv")

"""Datasets of videos: MSR-VTT, VATEX, HowTo100M."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.errors import DataError, Problems
from polyglance.records import Cue, Record


def test_msrvtt(read_files, samples) -> None:
    records, problems = read_files("msrvtt", samples["msrvtt"], images="videos")
    assert not problems
    assert records == [
        Record(video="videos/video0.mp4", captions={"en": ("a car is shown",)}, split="val")
    ]


def test_msrvtt_in_whole_uploads(read_files, samples) -> None:
    records, _ = read_files("msrvtt", samples["msrvtt"], untrimmed=True, extension=".webm")
    assert records == [
        Record(
            id="video0",
            video="9lZi22qLlEo.webm",
            span=(137.72, 149.44),
            captions={"en": ("a car is shown",)},
            split="val",
        )
    ]


def test_msrvtt_joins_scattered_sentences_and_names_lost_ones(read_files) -> None:
    document = {
        "videos": [{"video_id": "video1"}, {"video_id": "video0", "split": "train"}],
        "sentences": [
            {"video_id": "video0", "caption": "a"},
            {"video_id": "video7", "caption": "lost"},
            {"video_id": "video0", "caption": "b"},
        ],
    }
    records, problems = read_files("msrvtt", {"test_videodatainfo.json": document})
    assert [(record.video, record.captions) for record in records] == [
        ("video1.mp4", {}),
        ("video0.mp4", {"en": ("a", "b")}),
    ]
    assert "to list 'video7'" in problems.items[0].expected


def test_msrvtt_jsfusion_has_one_query_per_clip(read_files, samples) -> None:
    records, problems = read_files("msrvtt-jsfusion", samples["msrvtt-jsfusion"], images="videos")
    assert not problems
    assert records == [
        Record(
            video="videos/video9770.mp4",
            captions={"en": ("a person is connecting something to system",)},
            split="test",
        ),
        Record(
            video="videos/video9771.mp4",
            captions={"en": ("a little girl, who sings",)},
            split="test",
        ),
    ]


def test_msrvtt_jsfusion_names_malformed_lines(read_files) -> None:
    text = "key,vid_key,video_id,sentence\nret0,msr1\nret1,msr2,video2, a, b\nret2,msr3,video3,\n"
    records, problems = read_files("msrvtt-jsfusion", {"MSRVTT_JSFUSION_test.csv": text})
    assert [record.captions for record in records] == [{"en": ("a, b",)}]
    assert [(p.line, p.expected) for p in problems.items] == [
        (2, "expected 4 fields"),
        (4, "expected 'sentence' not to be empty"),
    ]
    records, problems = read_files("msrvtt-jsfusion", {"MSRVTT_JSFUSION_test.csv": "a,b\n1,2\n"})
    assert not records
    assert problems.items[0].expected == "expected a column 'video_id' in the first line"


def test_msvd_joins_a_clip_s_descriptions_by_language(read_files, samples) -> None:
    records, problems = read_files("msvd", samples["msvd"], images="YouTubeClips")
    assert not problems
    bird = {"sl": ("Papagaj se umiva pod tekočo vodo.",), "en": ("a bird in a sink", "a bird")}
    assert records == [
        Record(video="YouTubeClips/mv89psg6zh4_33_46.mp4", captions=bird, split="train"),
        Record(
            video="YouTubeClips/-4wsuPCjDBc_5_15.mp4",
            captions={"en": ("a squirrel eats",)},
            split="test",
        ),
    ]
    records, _ = read_files("msvd", {}, untrimmed=True, extension=".avi")
    assert (records[0].id, records[0].video, records[0].span) == (
        "mv89psg6zh4_33_46",
        "mv89psg6zh4.avi",
        (33.0, 46.0),
    )


def test_vatex(read_files, samples) -> None:
    records, problems = read_files("vatex", samples["vatex"])
    assert not problems
    assert records == [
        Record(
            video="Ptf_2VRj-V0_000122_000132.mp4",
            captions={"en": ("A man.",), "zh": ("男人",)},
            split="train",
        )
    ]
    records, _ = read_files("vatex", {}, untrimmed=True, extension="")
    assert (records[0].id, records[0].video, records[0].span) == (
        "Ptf_2VRj-V0_000122_000132",
        "Ptf_2VRj-V0",
        (122.0, 132.0),
    )


def test_vatex_private_test_has_no_captions(read_files) -> None:
    name = "vatex_private_test_without_annotations.json"
    records, problems = read_files("vatex", {name: [{"videoID": "a_000001_000011"}, {"enCap": []}]})
    assert records == [Record(video="a_000001_000011.mp4", split="test")]
    assert problems.items[0].expected == "[1]: expected 'videoID' to be text"


def test_howto100m_joins_the_languages_of_a_video(read_files, samples) -> None:
    records, problems = read_files("howto100m", samples["howto100m"])
    assert not problems
    assert {record.video: dict(record.subtitles) for record in records} == {
        "abc.mp4": {
            "en": (Cue(0.5, 2.0, "cut it"), Cue(2.0, 4.5, "stir it")),
            "de": (Cue(0.6, 2.1, "schneiden"),),
        },
        "def.mp4": {"en": (Cue(1.0, 2.0, "pour"),)},
    }


def test_howto100m_takes_the_narration_before_the_one_without_stop_words(read_files) -> None:
    files = {
        "caption.json": {"abc": {"start": [0], "end": [1], "text": ["cut"]}},
        "raw_caption.json": {"abc": {"start": [0], "end": [1], "text": ["cut it"]}},
    }
    records, _ = read_files("howto100m", files)
    assert [record.subtitles for record in records] == [{"en": (Cue(0.0, 1.0, "cut it"),)}]
    records, _ = read_files("howto100m", files, "caption.json", language="fr")
    assert [record.subtitles for record in records] == [{"fr": (Cue(0.0, 1.0, "cut"),)}]


def test_howto100m_names_bad_members_and_keeps_the_rest(read_files) -> None:
    content = (
        '{"a": {"start": [0], "end": [1], "text": [NaN]},\n'
        '"b": 5, "c": "}{", "d": {"start": [0, 1], "end": [1], "text": ["x"]},\n'
        '"e\\"{": {"start": [0, 9], "end": [1, 8], "text": ["brace } and \\" quote", "late"]},\n'
        '"f": [1], "g": {"start": [0], "end": [1], "text": ["cut'
    )
    records, problems = read_files("howto100m", {"caption.json": content})
    assert [(record.video, record.subtitles) for record in records] == [
        ('e"{.mp4', {"en": (Cue(0.0, 1.0, 'brace } and " quote'),)})
    ]
    assert [(problem.line, problem.expected) for problem in problems.items] == [
        (None, "'a'[0]: expected 'text' to be text"),
        (None, "'b': expected an object"),
        (None, "'c': expected an object"),
        (None, "'d': expected 'start', 'end' and 'text' of one length"),
        (None, "'e\"{'[1]: expected the subtitle to start before it ends"),
        (None, "'f': expected the member to be an object"),
        (4, 'expected a whole JSON object {"id": {...}, ...}'),
    ]


@pytest.mark.parametrize("content", ["", "  ", "[1]", "7", '"x"', '{"a": '])
def test_howto100m_of_something_else(read_files, content: str) -> None:
    records, problems = read_files("howto100m", {"caption.json": content})
    assert records == []
    assert "expected a whole JSON object" in problems.items[-1].expected


def test_howto100m_does_not_hold_the_file(tmp_path: Path) -> None:
    path = tmp_path / "raw_caption.json"
    cues = {"start": [0], "end": [1], "text": ["word " * 2000]}
    path.write_text(json.dumps({f"video{number}": cues for number in range(400)}))
    size = path.stat().st_size
    assert size > 4e6
    tracemalloc.start()
    count = sum(1 for _ in read_dataset("howto100m", path, ReadOptions(), Problems(strict=True)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 400
    assert peak < size / 10


def test_strict_stops_at_the_first(tmp_path: Path) -> None:
    path = tmp_path / "vatex_training.json"
    path.write_text(json.dumps([{"videoID": "a_0_1"}, {}, {"videoID": "b_0_1"}]))
    records = read_dataset("vatex", path, ReadOptions(), Problems(strict=True))
    assert next(records).video == "a_0_1.mp4"
    with pytest.raises(DataError, match=r"vatex_training\.json: \[1\]: expected 'videoID'"):
        next(records)

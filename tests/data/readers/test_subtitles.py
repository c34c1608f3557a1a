"""Subtitle files in SRT, VTT and JSON, with the quirks that they have in the wild."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.data.readers.subtitle_formats import read_cues
from polyglance.errors import Problems
from polyglance.records import Cue, Record


def cues_of(tmp_path: Path, name: str, content: str | bytes) -> tuple[tuple[Cue, ...], Problems]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    problems = Problems()
    return read_cues(path, problems), problems


def test_the_tracks_of_a_video_become_one_record(read_files, samples) -> None:
    records, problems = read_files("subtitles", samples["subtitles"], images="videos")
    assert not problems
    assert records == [
        Record(
            video="videos/abc.mp4",
            subtitles={
                "de": (Cue(1.0, 2.5, "Hallo"),),
                "en": (Cue(1.0, 2.5, "Hello there"),),
                "fr": (Cue(1.0, 2.5, "Bonjour"),),
            },
        ),
        Record(video="videos/def.mp4", subtitles={"en": (Cue(0.0, 0.9, "hi"),)}),
    ]


def test_vtt_with_everything(tmp_path: Path) -> None:
    content = """\ufeffWEBVTT - a title
Kind: captions
Language: en

STYLE
::cue { color: papayawhip }

REGION
id:fred width:40%

NOTE
A comment
on two lines

intro
00:01.000 --> 00:04.000 position:10%,line-left align:left
- Never drink <b>liquid</b> nitrogen.
- It&apos;s <i.loud>cold</i> &amp; I &lt;3 it

100:00:01.5 --> 100:00:02.250
<v.first Roger Bingham>We <00:00:01.600><c>are</c> here</v>
<ruby>漢<rt>かん</rt></ruby>字

00:05.000-->00:06.000
3 < 5 and 7 > 5
"""
    cues, problems = cues_of(tmp_path, "x.en.vtt", content)
    assert not problems
    assert cues == (
        Cue(1.0, 4.0, "- Never drink liquid nitrogen. - It's cold & I <3 it"),
        Cue(5.0, 6.0, "3 < 5 and 7 > 5"),
        Cue(360001.5, 360002.25, "We are here 漢字"),
    )


def test_rolling_lines_of_automatic_subtitles_are_read_once(tmp_path: Path) -> None:
    content = """WEBVTT

00:00:00.160 --> 00:00:02.470 align:start position:0%
{blank}
hello<00:00:00.560><c> everyone</c>

00:00:02.470 --> 00:00:02.480 align:start position:0%
hello everyone
{blank}

00:00:02.480 --> 00:00:04.950 align:start position:0%
hello everyone
welcome<00:00:02.800><c> back</c>

00:00:04.950 --> 00:00:04.960 align:start position:0%
welcome back
{blank}

00:00:04.960 --> 00:00:06.000 align:start position:0%
welcome back
to the show

00:00:09.000 --> 00:00:10.000
to the show
"""
    # The line that is empty on the screen is not so in the file.
    cues, problems = cues_of(tmp_path, "x.en.vtt", content.replace("{blank}", " "))
    assert not problems
    assert cues == (
        Cue(0.16, 2.48, "hello everyone"),
        Cue(2.48, 4.96, "welcome back"),
        Cue(4.96, 6.0, "to the show"),
        Cue(9.0, 10.0, "to the show"),  # repeated after a pause
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_srt(tmp_path: Path, newline: str) -> None:
    content = (
        '\ufeff1\n00:00:01,500 --> 00:00:02,000\n<i>Guten Tag,</i>\n{\\an8}<font color="red">Welt'
        "</font>\n\n2\n00:00:03,000 --> 00:00:04,000\nohne Leerzeile\n3\n"
        "00:00:05,000 --> 00:00:06,000 X1:40 Y1:20\n\n4\n\n00:00:07,000 --> 00:00:08,000\nEnde\n"
    )
    cues, problems = cues_of(tmp_path, "x.de.srt", content.replace("\n", newline))
    assert not problems
    assert cues == (
        Cue(1.5, 2.0, "Guten Tag, Welt"),
        Cue(3.0, 4.0, "ohne Leerzeile"),
        Cue(7.0, 8.0, "Ende"),
    )


def test_srt_in_utf_16(tmp_path: Path) -> None:
    content = "1\n00:00:01,000 --> 00:00:02,000\nПривет\n".encode("utf-16")
    assert cues_of(tmp_path, "x.ru.srt", content)[0] == (Cue(1.0, 2.0, "Привет"),)


def test_another_encoding_is_named_with_its_line(tmp_path: Path) -> None:
    content = "1\n00:00:01,000 --> 00:00:02,000\nGrüße\n".encode("latin-1")
    cues, problems = cues_of(tmp_path, "x.de.srt", content)
    assert cues == ()
    assert [(problem.line, problem.expected) for problem in problems.items] == [
        (3, "expected UTF-8 text (or UTF-16 with a byte order mark)")
    ]


def test_bad_places_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    content = """1
00:00:01,000 --> 00:00:02,000
good

lost text
of two lines

2
00:00:09,000 --> 00:00:08,000
backwards

3
00:00:xx,000 --> 00:00:08,000
no time

4
00:00:10,000 --> 00:00:11,000
good again
"""
    cues, problems = cues_of(tmp_path, "x.en.srt", content)
    assert [cue.text for cue in cues] == ["good", "good again"]
    assert [(problem.line, problem.expected) for problem in problems.items] == [
        (5, "expected 'HH:MM:SS.mmm --> HH:MM:SS.mmm' before text"),
        (9, "expected the subtitle to start before it ends"),
        (13, "expected 'HH:MM:SS.mmm --> HH:MM:SS.mmm'"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        '[{"start": 1, "end": 2.5, "text": "a\\nb"}, {"start": 3, "end": 4, "text": "c"}]',
        '[{"start": "1", "duration": 1.5, "text": "a b"}, {"start": 3, "dur": 1, "text": "c"}]',
        '[[1, 2.5, "a b"], [3, 4, "c"]]',
        '{"start": [1, 3], "end": [2.5, 4], "text": ["a b", "c"]}',
        '{"text": "a b c", "segments": [{"id": 0, "start": 1, "end": 2.5, "text": " a b"},'
        '{"id": 1, "start": 3, "end": 4, "text": " c"}]}',
        '{"body": [{"from": 1, "to": 2.5, "content": "a b"},{"from": 3, "to": 4, "content": "c"}]}',
        '{"events": [{"tStartMs": 0, "id": 1}, {"tStartMs": 1000, "dDurationMs": 1500, "segs":'
        '[{"utf8": "a "}, {"utf8": "b", "tOffsetMs": 9}]},'
        '{"tStartMs": 2000, "segs": [{"utf8": "\\n"}]},'
        '{"tStartMs": 3000, "dDurationMs": 1000, "segs": [{"utf8": "c"}]}]}',
    ],
)
def test_json_in_many_shapes(tmp_path: Path, content: str) -> None:
    cues, problems = cues_of(tmp_path, "x.en.json", content)
    assert cues == (Cue(1.0, 2.5, "a b"), Cue(3.0, 4.0, "c"))
    assert not problems


def test_file_names_without_a_language_or_with_a_repeated_one(read_files) -> None:
    srt = "1\n00:00:01,000 --> 00:00:02,000\nhi\n"
    files = {"a.srt": srt, "b.zh-Hans.srt": srt, "b.zh-Hant.srt": srt, "c.en.srt": "", "d.txt": ""}
    records, problems = read_files("subtitles", files)
    assert [(record.video, *record.subtitles) for record in records] == [("b.mp4", "zh")]
    assert [str(problem).rsplit("/", 1)[-1] for problem in problems.items] == [
        "a.srt: expected a name with the language in it, such as VIDEO.en.vtt",
        "b.zh-Hant.srt: expected one track in 'zh'; kept the first",
        "c.en.srt: expected at least one subtitle",
    ]
    records, problems = read_files("subtitles", {}, "a.srt", language="en")
    assert records == [Record(video="a.mp4", subtitles={"en": (Cue(1.0, 2.0, "hi"),)})]


def test_a_file_name_that_is_not_unicode_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.en.vtt")
    path.write_text("WEBVTT\n\n00:01.000 --> 00:02.000\nhi\n")
    problems = Problems()
    assert list(read_dataset("subtitles", tmp_path, ReadOptions(), problems)) == []
    assert "the file's name to be text" in problems.items[0].expected

"""What a manifest holds, counted and shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from polyglance.data.summary import (
    CaptionCounts,
    ItemCounts,
    ManifestSummary,
    print_summary,
    quantiles,
    summarise_manifest,
)
from polyglance.errors import DataError
from polyglance.records import Cue, Question, Record, write_manifest

RECORDS = [
    Record(
        image="1.jpg", split="train", captions={"en": ("A dog.", "One dog runs."), "zh": ("狗",)}
    ),
    Record(image="2.jpg", split="train", captions={"en": ("A cat.",)}),
    Record(image="3.jpg", split="val", captions={"ar": ("كلب صغير",), "en": ("A small dog.",)}),
    Record(video="4.mp4", subtitles={"de": (Cue(0, 1, "Hallo"), Cue(1, 2, "Welt"))}),
    Record(captions={"cs": ("Pes.",)}),
    Record(
        image="5.jpg",
        questions=(
            Question("Why?", "en", ("so",)),
            Question("Proč?", "cs"),
            Question("Who?", "en"),
        ),
    ),
]


def printed(summary: ManifestSummary, samples: int = 3, width: int = 100) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out, width=width), samples)
    return out.getvalue()


def test_counts() -> None:
    summary = summarise_manifest(RECORDS)
    assert (summary.records, summary.pictures, summary.clips, summary.texts) == (6, 4, 1, 1)
    assert summary.captions == {
        ("train", "en"): CaptionCounts(records=2, captions=3, words=7, characters=6 + 13 + 6),
        ("train", "zh"): CaptionCounts(records=1, captions=1, words=1, characters=1),
        ("val", "ar"): CaptionCounts(records=1, captions=1, words=2, characters=8),
        ("val", "en"): CaptionCounts(records=1, captions=1, words=3, characters=12),
        ("", "cs"): CaptionCounts(records=1, captions=1, words=1, characters=4),
    }
    assert summary.questions == {"en": ItemCounts(1, 2), "cs": ItemCounts(1, 1)}
    german = summary.subtitles["de"]
    assert (german.records, german.items, german.tokens) == (1, 2, 2)
    assert len(summary.problems) == 0


def test_bad_lines_of_a_manifest_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    write_manifest(path, RECORDS)
    path.write_text(path.read_text() + "oops\n")
    summary = summarise_manifest(path)
    assert (summary.records, len(summary.problems)) == (6, 1)
    assert "malformed lines skipped: 1" in printed(summary)
    assert "manifest.jsonl:7: expected valid JSON" in printed(summary)
    with pytest.raises(DataError, match="no such manifest"):
        summarise_manifest(tmp_path / "none.jsonl")


def test_the_tables() -> None:
    lines = [" ".join(line.split()) for line in printed(summarise_manifest(RECORDS)).splitlines()]
    assert lines[0] == "6 records: 4 with a picture, 1 with a clip, 1 of text alone"
    assert "│ train │ en English │ 2 │ 3 │ 2.3 │ 8.3 │" in lines
    assert "│ │ zh Chinese │ 1 │ 1 │ – │ 1.0 │" in lines
    assert "│ val │ ar Arabic │ 1 │ 1 │ 2.0 │ 8.0 │" in lines
    assert "│ en English │ 1 │ 2 │" in lines  # questions
    assert "│ de German │ 1 │ 2 │" in lines  # subtitles


def test_tokens_of_subtitles_are_counted_by_video_and_subtitle() -> None:
    videos = [
        Record(
            video=f"{number}.mp4",
            subtitles={
                "en": (Cue(0, 1, "one two three"), *(Cue(1, 2, "four") for _ in range(number))),
                "zh": (Cue(0, 1, "一只 狗。"),),
            },
        )
        for number in range(3)
    ]
    summary = summarise_manifest(videos)
    english = summary.subtitles["en"]
    assert (english.items, english.tokens) == (6, 3 + 4 + 5)
    assert english.per_video == {3: 1, 4: 1, 5: 1}
    assert english.per_subtitle == {3: 3, 1: 3}
    assert quantiles(english.per_video) == [3, 4, 5]
    assert summary.subtitles["zh"].tokens == 3 * 3  # characters, without marks and spaces
    lines = [" ".join(line.split()) for line in printed(summary, width=140).splitlines()]
    assert "│ en English │ 12 │ 3 │ 4 │ 5 │ 1 │ 1 │ 3 │" in lines
    by_letter = summarise_manifest(videos, lambda text, language: len(text))
    assert by_letter.subtitles["en"].tokens == 3 * 13 + 3 * 4


def test_samples_differ_in_language() -> None:
    many = [Record(image=f"{n}.jpg", captions={"en": ("A dog.",)}) for n in range(20)]
    rare = Record(image="rare.jpg", captions={"sw": ("Mbwa.",)})
    text = printed(summarise_manifest([*many, rare]), samples=2)
    assert "Mbwa." in text
    assert text.count("A dog.") == 1
    assert "A dog." not in printed(summarise_manifest(many), samples=0)


def test_samples_cover_the_manifest_and_are_reproducible() -> None:
    records = [Record(id=str(number)) for number in range(2000)]
    drawn = [record.key for record in summarise_manifest(records).samples]
    assert drawn == [record.key for record in summarise_manifest(records).samples]
    assert len(set(drawn)) == 64
    halves = sum(int(key) < 1000 for key in drawn)
    assert 16 < halves < 48


def test_right_to_left_text_is_isolated() -> None:
    text = printed(summarise_manifest(RECORDS))
    assert "\u2068كلب صغير\u2069" in text
    assert "\u2068A small dog." not in text


def test_control_characters_are_removed() -> None:
    evil = "\x1b[31mred\x07 \u202eback [bold]bold[/bold] [/oops]\nnext"
    text = printed(
        summarise_manifest(
            [Record(image="\x1b]0;x\x07.jpg", split="\x1b", captions={"en": (evil,)})]
        )
    )
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[31mred" in text
    assert "[bold]bold[/bold] [/oops] next" in text


def test_long_text_is_cut_to_the_width() -> None:
    text = printed(
        summarise_manifest([Record(image="1.jpg", captions={"ja": ("犬" * 200,)})]), width=60
    )
    line = next(line for line in text.splitlines() if "犬犬" in line)
    assert line.endswith("…")
    assert line.count("犬") <= 26


def test_an_empty_manifest() -> None:
    assert printed(summarise_manifest([])) == "0 records\n"

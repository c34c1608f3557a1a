"""Records and manifests."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyglance import records
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import (
    Cue,
    Question,
    Record,
    Region,
    read_lines,
    read_manifest,
    write_manifest,
)

FULL = Record(
    video="clips/1.mp4",
    captions={"en": ("A dog.", "One dog."), "zh": ("一只狗",)},
    split="train",
    id="1",
    span=(1.5, 4.0),
    questions=(Question("Which animal?", "en", ("dog", "a dog"), "other", "q1"),),
    regions=(Region((0.0, 0.25, 0.5, 1.0), "dog"), Region((0.0, 0.0, 1.0, 1.0))),
    subtitles={"de": (Cue(0.0, 2.0, "Ein Hund."), Cue(2.0, 3.5, "Noch einer."))},
)

texts = st.text(max_size=8)
names = st.none() | st.text(min_size=1, max_size=8)
codes = st.sampled_from(["en", "de", "zh", "yue", "xx"])
numbers = st.floats(allow_nan=False, allow_infinity=False)
times = st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)).map(lambda pair: tuple(sorted(pair)))
cues = st.builds(lambda time, text: Cue(time[0], time[1], text), times, texts)
any_record = st.builds(
    Record,
    image=names,
    captions=st.dictionaries(codes, st.lists(texts, max_size=3).map(tuple), max_size=3),
    split=names,
    id=names,
    span=st.none() | times,
    questions=st.lists(
        st.builds(Question, texts, codes, st.lists(texts, max_size=3).map(tuple), names, names),
        max_size=2,
    ).map(tuple),
    regions=st.lists(
        st.builds(Region, st.tuples(numbers, numbers, numbers, numbers), names), max_size=2
    ).map(tuple),
    subtitles=st.dictionaries(codes, st.lists(cues, max_size=2).map(tuple), max_size=2),
)


@given(any_record)
@settings(max_examples=60)
def test_a_record_survives_json(record: Record) -> None:
    line = json.dumps(record.to_json(), ensure_ascii=False)
    assert "\n" not in line
    assert Record.from_json(json.loads(line)) == record


def test_a_manifest_line_omits_empty_fields() -> None:
    assert Record(image="1.jpg", captions={"en": ("A dog.",)}).to_json() == {
        "image": "1.jpg",
        "captions": {"en": ["A dog."]},
    }
    assert FULL.to_json()["questions"] == [
        {
            "text": "Which animal?",
            "language": "en",
            "answers": ["dog", "a dog"],
            "answer_type": "other",
            "id": "q1",
        }
    ]
    assert FULL.to_json()["subtitles"] == {
        "de": [[0.0, 2.0, "Ein Hund."], [2.0, 3.5, "Noch einer."]]
    }


@pytest.mark.parametrize("name", ["manifest.jsonl", "deep/er/manifest.jsonl.gz"])
def test_a_manifest_is_written_and_read(tmp_path: Path, name: str) -> None:
    wanted = [FULL, Record(image="größe.jpg", captions={"ar": ("كلب",)}), Record()]
    assert write_manifest(tmp_path / name, iter(wanted)) == 3
    assert list(read_manifest(tmp_path / name)) == wanted


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_manifest(tmp_path / name, [FULL])
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_an_interrupted_manifest_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    write_manifest(path, [FULL])

    def broken() -> Any:
        yield Record(image="2.jpg")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_manifest(path, broken())
    assert list(read_manifest(path)) == [FULL]
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_path_is_a_polyglance_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PolyglanceError, match="cannot be written"):
        write_manifest(tmp_path / "file" / "manifest.jsonl", [FULL])
    with pytest.raises(PolyglanceError, match="cannot be written"):
        write_manifest(tmp_path, [FULL])


def test_languages_are_normalised_and_merged() -> None:
    record = Record.from_json({"captions": {"cz": ["Pes."], "ces": ["Ten pes."], "en": ["Dog."]}})
    assert record.captions == {"cs": ("Pes.", "Ten pes."), "en": ("Dog.",)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([], "a JSON object"),
        ({"picture": "1.jpg"}, "no field 'picture', only image"),
        ({"image": 5}, "'image' to be text"),
        ({"image": ""}, "'image' to be text"),
        ({"image": "a", "video": "b"}, "not both"),
        ({"captions": ["A dog."]}, "object of lists by language"),
        ({"captions": {"en": "A dog."}}, "captions of 'en' to be a list"),
        ({"captions": {"en": ["\ud800"]}}, "captions of 'en' to be a list"),
        ({"captions": {"!": ["A dog."]}}, "a language code"),
        ({"span": [3, 1]}, "start before it ends"),
        ({"span": [0, float("nan")]}, "a start and an end"),
        ({"span": [0, 10**400]}, "a start and an end"),
        ({"span": [False, True]}, "a start and an end"),
        ({"questions": {}}, "'questions' to be a list"),
        ({"questions": [{"language": "en"}]}, "a question with 'text'"),
        ({"questions": [{"text": "Why?"}]}, "its 'language'"),
        ({"questions": [{"text": "Why?", "language": "en", "answers": [1]}]}, "list of texts"),
        ({"regions": [{"box": [0, 0, 1]}]}, "four numbers"),
        ({"subtitles": {"en": [[0, 1]]}}, "[start, end, text]"),
        ({"subtitles": {"en": [[2, 1, "a"]]}}, "start before it ends"),
    ],
)
def test_a_bad_line_says_what_was_expected(line: object, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        Record.from_json(line)


def test_bad_lines_are_named_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    good = b'{"image": "1.jpg"}\n'
    deep = b"[" * 100_000 + b"\n"
    huge = b'{"span": [0, ' + b"9" * 5000 + b"]}\n"
    path.write_bytes(b"\xef\xbb\xbf" + good + b"{oops\n\n" + good + b"\xff\xfe\n" + deep + huge)
    problems = Problems()
    assert len(list(read_manifest(path, problems))) == 2
    assert [(p.line, p.path) for p in problems.items] == [(n, str(path)) for n in (2, 5, 6, 7)]
    assert str(problems.items[0]).startswith(f"{path}:2: expected valid JSON")
    assert problems.items[1].expected == "expected UTF-8 text"
    with pytest.raises(DataError, match=r"manifest\.jsonl:2: expected valid JSON"):
        list(read_manifest(path))


def test_a_missing_manifest_is_an_error_even_when_lenient(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path, Path("x" * 5000)):
        with pytest.raises(DataError, match="no such manifest"):
            list(read_manifest(path, Problems()))


def test_a_damaged_archive_is_read_up_to_the_damage_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl.gz"
    lines = b"".join(b'{"id": "%d"}\n' % number for number in range(20_000))
    path.write_bytes(gzip.compress(lines)[:-20_000])
    problems = Problems()
    read = list(read_manifest(path, problems))
    assert 0 < len(read) < 20_000
    assert read[0] == Record(id="0")
    assert len(problems) == 1
    assert "cannot be read further" in str(problems.items[0])
    assert problems.items[0].line == len(read)


def test_an_overlong_line_is_skipped_without_loading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_LINE_BYTES", 10)
    (tmp_path / "lines").write_bytes(b"short\n" + b"x" * 35 + b"\nlast\r\n")
    problems = Problems()
    assert list(read_lines(tmp_path / "lines", problems)) == [(1, "short"), (3, "last")]
    assert [problem.line for problem in problems.items] == [2]


def test_problems_are_counted_beyond_those_kept() -> None:
    problems = Problems(max_items=2)
    for line in range(5):
        problems.report("file", line, "expected better")
    assert (len(problems), len(problems.items)) == (5, 2)


def test_a_file_name_of_any_bytes_can_be_printed() -> None:
    problems = Problems()
    problems.report(os.fsdecode(b"caf\xe9\x1b[31m\xc3\xa9.txt"), 1, "expected UTF-8 text")
    assert str(problems.items[0]) == "caf\\udce9\\x1b[31mé.txt:1: expected UTF-8 text"


def test_writing_through_a_link_keeps_the_link_and_the_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "target.jsonl", tmp_path / "link.jsonl"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o600)
    link.symlink_to(target)
    write_manifest(link, [Record(image="a.jpg")])
    assert link.is_symlink()
    assert "a.jpg" in target.read_text(encoding="utf-8")
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_manifest(pipe, [Record(image="a.jpg")])
    assert b"a.jpg" in os.read(reader, 1000)
    os.close(reader)
    assert pipe.is_fifo()

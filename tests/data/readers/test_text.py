"""Text without pictures, questions, and our own JSON lines."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.errors import Problems
from polyglance.records import Question, Record


def test_wikipedia(read_files, samples) -> None:
    records, problems = read_files("wikipedia", samples["wikipedia"])
    assert not problems
    assert [record.captions for record in records] == [
        {"de": ("Ein Satz.",)},
        {"de": ("Noch einer.",)},
        {"fr": ("Un chien.",)},
        {"ja": ("犬。",)},
        {"ja": ("犬は動物。",)},
    ]


def test_wikipedia_takes_the_language_from_the_source_or_the_options(read_files) -> None:
    records, _ = read_files("wikipedia", {"sw/AA/wiki_00": "Mbwa.\n"}, "sw")
    assert records == [Record(captions={"sw": ("Mbwa.",)})]
    records, problems = read_files("wikipedia", {"my_corpus/AF/wiki_00": "Hund.\n"}, "my_corpus")
    assert records == []
    assert "such as de.txt" in problems.items[0].expected
    records, problems = read_files("wikipedia", {}, "my_corpus", language="nl")
    assert records == [Record(captions={"nl": ("Hund.",)})]


def test_wikipedia_drops_the_title_once(read_files) -> None:
    page = '<doc id="1" title="A &amp; B">\nA & B\n\nA & B\nText.\n</doc>\n'
    records, _ = read_files("wikipedia", {"en.txt": page})
    assert [record.captions["en"] for record in records] == [("A & B",), ("Text.",)]


def test_wikipedia_names_a_bad_page(read_files) -> None:
    page = json.dumps({"title": "x"}) + '\n{"text": "cut o\n'
    records, problems = read_files("wikipedia", {"en.txt": page})
    assert records == []
    assert [problem.line for problem in problems.items] == [1, 2]


@pytest.mark.parametrize(
    ("format", "name", "line"),
    [
        ("conceptual-captions", "x.tsv.gz", b"a caption\thttp://x.org/1.jpg\n"),
        ("wikipedia", "de.txt.gz", b"Ein Satz.\n"),
        ("tatoeba", "x.tsv.gz", b"deu\tJa.\tYes.\n"),
        ("jsonl", "x.jsonl.gz", b'{"de": "Ja.", "en": "Yes."}\n'),
    ],
)
def test_lines_stream(tmp_path: Path, format: str, name: str, line: bytes) -> None:
    """Records are yielded before the end of the file is read: here the end is damaged."""
    content = gzip.compress(line * 50_000)
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    problems = Problems()
    records = read_dataset(format, tmp_path / name, ReadOptions(), problems)
    assert len(list(itertools.islice(records, 1000))) == 1000
    assert not problems
    assert 1000 < 1000 + sum(1 for _ in records) < 50_000
    assert len(problems) == 1


def test_tatoeba(read_files, samples) -> None:
    records, problems = read_files("tatoeba", samples["tatoeba"])
    assert not problems
    assert [record.captions for record in records] == [
        {"de": ("Ich bin da.",), "en": ("I am here.",)},
        {"zh": ("你好",), "en": ("Hello",)},
    ]


def test_tatoeba_names_bad_lines(read_files) -> None:
    records, problems = read_files("tatoeba", {"x.tsv": "deu\tJa.\n?\ta\tb\ndeu\t\tYes.\n"})
    assert records == []
    assert [problem.line for problem in problems.items] == [1, 2, 3]
    assert "LANGUAGE<TAB>SENTENCE" in problems.items[0].expected
    assert "a language code" in problems.items[1].expected


def test_vqa_v2(read_files, samples) -> None:
    records, problems = read_files("vqa-v2", samples["vqa-v2"], images="coco")
    assert not problems
    assert records == [
        Record(
            image="coco/train2014/COCO_train2014_000000000009.jpg",
            questions=(Question("What is it?", "en", ("food", "soup"), "other", "9000"),),
            split="train",
        )
    ]


def test_vqa_v2_test_has_no_answers(read_files) -> None:
    document = {
        "data_subtype": "test-dev2015",
        "questions": [
            {"image_id": 9, "question": "What?", "question_id": 1},
            {"image_id": 9, "question": "Where?", "question_id": 2},
            {"image_id": 10, "question": "", "question_id": 3},
        ],
    }
    name = "v2_OpenEnded_mscoco_test-dev2015_questions.json"
    records, problems = read_files("vqa-v2", {name: document}, name)
    assert records == [
        Record(
            image="test2015/COCO_test2015_000000000009.jpg",
            questions=(Question("What?", "en", id="1"), Question("Where?", "en", id="2")),
            split="test",
        )
    ]
    assert problems.items[0].expected == "questions[2]: expected 'question' not to be empty"


def test_visual_genome_vqa_ja(read_files, samples) -> None:
    records, problems = read_files("visual-genome-vqa-ja", samples["visual-genome-vqa-ja"])
    assert not problems
    assert records == [Record(image="1.jpg", questions=(Question("何色?", "ja", ("赤",), id="7"),))]


def test_visual_genome_vqa_names_the_place_of_a_bad_pair(read_files) -> None:
    pages = [{"id": 1, "qas": [{"question": "a?"}, {"question": "b?", "answer": "c"}]}]
    records, problems = read_files("visual-genome-vqa-ja", {"question_answers.json": pages})
    assert [len(record.questions) for record in records] == [1]
    assert problems.items[0].expected == "[0].qas[0]: expected 'answer' to be text"


def test_jsonl_in_all_its_shapes(read_files, samples) -> None:
    records, problems = read_files("jsonl", samples["jsonl"], images="data")
    assert not problems
    assert records[:4] == [
        Record(
            image="data/images/1.webp",
            captions={"en": ("A dog.",), "de": ("Ein Hund.",)},
            split="train",
        ),
        Record(video="-4wsuPCjDBc_5_15", captions={"zh": ("松鼠",)}, split="train"),
        Record(
            image="data/images/2.webp",
            questions=(Question("What?", "en", ("a", "b"), "other"),),
            split="train",
        ),
        Record(captions={"en": ("A dog.",), "cs": ("Pes.",)}, split="train"),
    ]
    assert records[4].video == "data/v.mp4"


def test_jsonl_names_bad_lines(read_files) -> None:
    lines = (
        '{"image": "1.jpg"}',
        '{"question": "What?", "image": "1.jpg"}',
        '{"picture": "1.jpg"}',
        "[]",
        "{",
        '{"en": ""}',
        '{"id": "7"}',
        "",
    )
    records, problems = read_files("jsonl", {"x.jsonl": "\n".join(lines)})
    assert [record.key for record in records] == ["1.jpg", "7"]
    assert [problem.line for problem in problems.items] == [2, 3, 4, 5, 6]
    assert problems.items[0].expected == "expected a question with its 'language'"


def test_indonesian_is_not_an_identifier(read_files) -> None:
    line = json.dumps({"id": "Seekor anjing.", "en": "A dog."})
    records, _ = read_files("jsonl", {"x.jsonl": line})
    assert records == [Record(captions={"id": ("Seekor anjing.",), "en": ("A dog.",)})]

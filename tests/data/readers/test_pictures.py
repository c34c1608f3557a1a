"""Datasets of pictures with captions: Multi30K, Karpathy's splits, and those on MSCOCO."""

from __future__ import annotations

import gzip
import zlib

import pytest

from polyglance.records import Record


def test_multi30k_task_1(read_files, samples) -> None:
    records, problems = read_files("multi30k-task1", samples["multi30k-task1"], images="flickr")
    assert not problems
    assert records == [
        Record(
            image="flickr/1.jpg",
            captions={"de": ("Ein Hund läuft.",), "en": ("A dog runs.",)},
            split="train",
        ),
        Record(
            image="flickr/COCO_val2014_000000157771.jpg",
            captions={"de": ("Zwei Männer.",), "en": ("Two men.",)},
            split="train",
            id="COCO_val2014_000000157771.jpg#2282",
        ),
        Record(image="flickr/3.jpg", captions={"en": ("A cat.",)}, split="val"),
    ]


def test_multi30k_stays_aligned_past_bad_lines(read_files) -> None:
    records, problems = read_files(
        "multi30k-task1",
        {
            "train.en": b"one\n\xff\n\nfour\nfive\n",
            "train.de": "eins\nzwei\ndrei\nvier\n",
            "train.txt": "1.jpg\n2.jpg\n3.jpg\n4.jpg\n5.jpg\n6.jpg\n",
        },
    )
    assert [(record.image, record.captions) for record in records] == [
        ("1.jpg", {"de": ("eins",), "en": ("one",)}),
        ("2.jpg", {"de": ("zwei",)}),
        ("3.jpg", {"de": ("drei",)}),
        ("4.jpg", {"de": ("vier",), "en": ("four",)}),
        ("5.jpg", {"en": ("five",)}),
        ("6.jpg", {}),
    ]
    assert [str(problem).rsplit("/", 1)[-1] for problem in problems.items] == [
        "train.en:2: expected UTF-8 text",
        "train.en:3: expected a sentence not to be empty",
        "train.de:5: expected as many lines as the other files",
        "train.en:6: expected as many lines as the other files",
    ]


def test_multi30k_without_pictures_is_parallel_text(read_files) -> None:
    files = {"val.lc.norm.tok.en": "a dog\n", "val.lc.norm.tok.fr": "un chien\n"}
    records, problems = read_files("multi30k-task1", files)
    assert records == [Record(captions={"en": ("a dog",), "fr": ("un chien",)}, split="val")]
    assert [problem.expected for problem in problems.items] == [
        "expected val.txt with the names of the images"
    ]


def test_multi30k_prefers_the_unzipped_of_two_copies(read_files) -> None:
    files = {"val.en": "new\n", "val.en.gz": gzip.compress(b"old\n"), "val.txt": "1.jpg\n"}
    records, _ = read_files("multi30k-task1", files)
    assert [record.captions for record in records] == [{"en": ("new",)}]


def test_multi30k_task_2(read_files, samples) -> None:
    records, problems = read_files("multi30k-task2", samples["multi30k-task2"])
    assert not problems
    assert records[0] == Record(
        image="1.jpg",
        captions={"de": ("Ein Hund.",), "en": ("A dog runs.", "The dog.")},
        split="train",
    )
    assert records[1].captions["en"] == ("Two men.", "Men.")


def test_karpathy(read_files, samples) -> None:
    records, problems = read_files(
        "karpathy", samples["karpathy"], "dataset_coco.json", images="coco"
    )
    assert not problems
    assert records == [
        Record(
            image="coco/val2014/COCO_val2014_000000391895.jpg",
            captions={"en": ("A man.",)},
            split="restval",
        ),
        Record(image="coco/2.jpg", captions={"en": ("a dog",)}, split="val"),
    ]


def test_karpathy_names_the_place_of_a_bad_entry(read_files) -> None:
    images = [
        {"filename": "1.jpg", "sentences": [{"raw": "Good."}, {"raw": 5}, "bad"]},
        {"split": "train", "sentences": []},
        7,
    ]
    records, problems = read_files("karpathy", {"dataset_x.json": {"images": images}})
    assert [record.captions for record in records] == [{"en": ("Good.",)}]
    assert [problem.expected for problem in problems.items] == [
        "images[0].sentences[1]: expected 'raw' to be text",
        "images[0].sentences[2]: expected an object",
        "images[1]: expected 'filename' to be text",
        "images[2]: expected an object",
    ]


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        ('{"images": [\n{"filename": "1.jpg"},\n{]}', 3, "expected valid JSON"),
        (b'{"images":\n"\xff"}', 2, "expected UTF-8 text"),
        ("[]", 1, "expected a JSON object"),
        ('{"images": 5}', None, "expected a list 'images'"),
        ("[" * 100_000, None, "expected JSON without endless"),
        ('{"images": ' + "1" * 5000 + "}", None, "expected JSON without endless"),
        ("", 1, "expected valid JSON"),
    ],
)
def test_a_file_that_is_not_json_is_named_with_its_line(
    read_files, content: object, line: int | None, expected: str
) -> None:
    records, problems = read_files("karpathy", {"dataset_x.json": content})
    assert records == []
    assert [problem.line for problem in problems.items] == [line]
    assert problems.items[0].expected.startswith(expected)


def test_coco_captions(read_files) -> None:
    document = {
        "images": [
            {"id": 42, "file_name": "COCO_val2014_000000000042.jpg"},
            {"id": 9, "file_name": "COCO_val2014_000000000009.jpg"},
            {"id": 1, "file_name": "COCO_val2014_000000000001.jpg"},
        ],
        "annotations": [
            {"image_id": 9, "caption": "A bowl.\n"},
            {"image_id": 42, "caption": "A shoe."},
            {"image_id": "9", "caption": "Food."},
            {"image_id": 7, "caption": "Unnamed."},
            {"image_id": -1, "caption": "Nothing."},
        ],
    }
    records, problems = read_files("coco-captions", {"captions_val2014.json": document})
    assert [(record.image, record.captions["en"]) for record in records] == [
        ("val2014/COCO_val2014_000000000042.jpg", ("A shoe.",)),
        ("val2014/COCO_val2014_000000000009.jpg", ("A bowl.", "Food.")),
        ("val2014/COCO_val2014_000000000007.jpg", ("Unnamed.",)),
    ]
    assert {record.split for record in records} == {"val"}
    assert [problem.expected for problem in problems.items] == [
        "annotations[4]: expected 'image_id' to be a whole number"
    ]


def test_coco_captions_of_2017_and_another_language(read_files) -> None:
    document = {
        "images": [{"id": 9, "file_name": "000000000009.jpg"}],
        "annotations": [{"image_id": 9, "caption": "Una ciotola."}],
    }
    records, _ = read_files(
        "coco-captions", {"captions_train2017.json": document}, language="it", images="coco"
    )
    assert records == [
        Record(
            image="coco/train2017/000000000009.jpg",
            captions={"it": ("Una ciotola.",)},
            split="train",
        )
    ]


def test_stair_names_pictures_by_their_address(read_files, samples) -> None:
    records, problems = read_files("stair", samples["stair"])
    assert not problems
    assert records == [
        Record(
            image="train2014/COCO_train2014_000000000009.jpg",
            captions={"ja": ("食べ物",)},
            split="train",
        )
    ]


def test_stair_tokenized_is_joined_and_read_only_if_alone(read_files) -> None:
    tokenized = {"annotations": [{"image_id": 9, "tokenized_caption": "皿 の 上"}]}
    files: dict[str, object] = {"stair_captions_v1.2_val_tokenized.json": tokenized}
    records, _ = read_files("stair", files)
    assert records == [
        Record(
            image="val2014/COCO_val2014_000000000009.jpg",
            captions={"ja": ("皿の上",)},
            split="val",
        )
    ]
    plain = {"annotations": [{"image_id": 9, "caption": "皿の上だ"}]}
    records, _ = read_files("stair", {**files, "stair_captions_v1.2_val.json": plain})
    assert [record.captions["ja"] for record in records] == [("皿の上だ",)]


def test_yjcaptions_are_training_pictures(read_files, samples) -> None:
    records, problems = read_files("yjcaptions", samples["yjcaptions"])
    assert not problems
    assert records == [
        Record(image="train2014/COCO_train2014_000000000009.jpg", captions={"ja": ("食べ物",)})
    ]


def test_coco_cn(read_files, samples) -> None:
    records, problems = read_files("coco-cn", samples["coco-cn"], images="coco", flat=True)
    assert not problems
    assert records == [
        Record(
            image="coco/COCO_train2014_000000000009.jpg",
            captions={"zh": ("一碗食物", "食物")},
            split="train",
        ),
        Record(
            image="coco/COCO_val2014_000000000074.jpg", captions={"zh": ("小狗",)}, split="test"
        ),
    ]


def test_coco_cn_names_bad_lines_and_leaves_other_files_alone(read_files) -> None:
    files = {
        "imageid.human-written-caption.txt": "no tab\nCOCO_train2014_000000000009#0\t\nx#1\t好\n",
        "imageid.human-written-caption.bosonseg.txt": "x#1\t好 的\n",
        "imageid.manually-translated-caption.txt": "x#1\t翻译\n",
    }
    records, problems = read_files("coco-cn", files)
    assert [record.captions for record in records] == [{"zh": ("好",)}]
    assert [problem.line for problem in problems.items] == [1, 2]
    assert "IMAGE#NUMBER<TAB>CAPTION" in problems.items[0].expected
    records, _ = read_files("coco-cn", {}, "imageid.manually-translated-caption.txt")
    assert [record.captions for record in records] == [{"zh": ("翻译",)}]


def test_conceptual_captions(read_files, samples) -> None:
    records, problems = read_files("conceptual-captions", samples["conceptual-captions"])
    assert not problems
    assert records == [
        Record(
            image="http://x.org/1.jpg",
            captions={"en": ("a bus station",)},
            split="train",
            id=str(zlib.crc32(b"http://x.org/1.jpg")),
        ),
        Record(
            image="2.webp",
            captions={"en": ("a dog",)},
            split="train",
            id=str(zlib.crc32(b"http://x.org/2.jpg")),
        ),
    ]
    records, _ = read_files("conceptual-captions", {}, images="training")
    assert [record.image for record in records] == [
        f"training/{zlib.crc32(b'http://x.org/1.jpg')}",
        "training/2.webp",
    ]


def test_translated_conceptual_captions_have_the_ids_of_the_english_ones(read_files) -> None:
    files = {
        "val_imageId2Ann_de.tsv": (
            "0000007\thttp://x.org/1.jpg\tein Busbahnhof\tsuccess\n"
            '0000008\thttp://x.org/2.jpg\t"""Bello"", ein Hund"\tsuccess\n'
            "0000009\thttp://x.org/3.jpg\t\tfail\n"
        ),
    }
    records, problems = read_files("conceptual-captions", files)
    assert not problems
    assert [record.captions for record in records] == [
        {"de": ("ein Busbahnhof",)},
        {"de": ('"Bello", ein Hund',)},
    ]
    first = records[0]
    assert (first.image, first.split) == ("0000007", "val")
    assert first.id == str(zlib.crc32(b"http://x.org/1.jpg"))


def test_conceptual_captions_names_bad_lines(read_files) -> None:
    records, problems = read_files("conceptual-captions", {"x.tsv": "a\n\tb\n\nok\thttp://x\n"})
    assert len(records) == 1
    assert [problem.line for problem in problems.items] == [1, 2, 3]
    assert problems.items[0].expected.startswith("expected 'CAPTION<TAB>URL'")

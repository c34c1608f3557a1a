"""A small sample of every format in its published layout, and a way to read files made up here."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.errors import Problems
from polyglance.records import Record

Files = dict[str, bytes]
ReadFiles = Callable[..., tuple[list[Record], Problems]]


def as_bytes(content: object) -> bytes:
    """Bytes as they are or are made, text in UTF-8, anything else as JSON."""
    content = content() if callable(content) else content
    if isinstance(content, bytes):
        return content
    return (content if isinstance(content, str) else json.dumps(content)).encode()


@pytest.fixture
def read_files(tmp_path: Path) -> ReadFiles:
    """Write files below a folder, read them in a format, and return records and problems."""

    def write_and_read(
        format: str, files: Mapping[str, object], source: str = ".", **options: Any
    ) -> tuple[list[Record], Problems]:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_bytes(content))
        problems = Problems()
        return list(
            read_dataset(format, tmp_path / source, ReadOptions(**options), problems)
        ), problems

    return write_and_read


def tar_bytes(members: Mapping[str, bytes]) -> bytes:
    """Return a tar with these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def parquet_bytes(columns: Mapping[str, list[Any]]) -> bytes:
    """Return a Parquet file with these columns."""
    import pyarrow
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), out)
    return out.getvalue()


SAMPLES: dict[str, dict[str, object]] = {
    "multi30k-task1": {
        "raw/train.en": "A dog runs.\nTwo men.\n",
        "raw/train.de.gz": gzip.compress("Ein Hund läuft.\nZwei Männer.\n".encode()),
        "image_splits/train.txt": "1.jpg\nCOCO_val2014_000000157771.jpg#2282\n",
        "raw/val.en": "A cat.\n",
        "image_splits/val.txt": "3.jpg\n",
    },
    "multi30k-task2": {
        "train.1.en": "A dog runs.\nTwo men.\n",
        "train.2.en": "The dog.\nMen.\n",
        "train.1.de": "Ein Hund.\nMänner.\n",
        "train_images.txt": "1.jpg\n2.jpg\n",
    },
    "karpathy": {
        "dataset_coco.json": {
            "dataset": "coco",
            "images": [
                {
                    "filepath": "val2014",
                    "filename": "COCO_val2014_000000391895.jpg",
                    "split": "restval",
                    "cocoid": 391895,
                    "sentids": [770337],
                    "sentences": [{"tokens": ["a", "man"], "raw": "A man.", "sentid": 770337}],
                },
                {"filename": "2.jpg", "split": "val", "sentences": [{"tokens": ["a", "dog"]}]},
            ],
        }
    },
    "coco-captions": {
        "captions_val2014.json": {
            "info": {"year": 2014},
            "images": [{"id": 9, "file_name": "COCO_val2014_000000000009.jpg", "width": 640}],
            "annotations": [{"id": 1, "image_id": 9, "caption": "A bowl of food.\n"}],
        }
    },
    "stair": {
        "stair_captions_v1.2_train.json": {
            "images": [{"id": 9, "url": "http://x.org/COCO_train2014_000000000009.jpg"}],
            "annotations": [
                {"id": 1, "image_id": 9, "caption": "食べ物", "tokenized_caption": "x"}
            ],
        }
    },
    "yjcaptions": {
        "yjcaptions26k_clean.json": {
            "annotations": [{"id": 1, "image_id": 9, "caption": "食べ物"}],
        }
    },
    "coco-cn": {
        "imageid.human-written-caption.txt": (
            "COCO_train2014_000000000009#0\t一碗食物\nCOCO_val2014_000000000074#0\t小狗\n"
            "COCO_train2014_000000000009#1\t食物\n"
        ),
        "coco-cn_train.txt": "COCO_train2014_000000000009\n",
        "coco-cn_test.txt": "COCO_val2014_000000000074\n",
    },
    "conceptual-captions": {
        "Train_GCC-training.tsv": (
            "a bus station\thttp://x.org/1.jpg\na dog\thttp://x.org/2.jpg\t2.webp\n"
        ),
    },
    "wikipedia": {
        "de.txt": "Ein Satz.\nNoch einer.\n",
        "fr/AA/wiki_00": '<doc id="1" url="x" title="Chien">\nChien\n\nUn chien.\n</doc>\n',
        "ja/AA/wiki_00": json.dumps({"id": "1", "title": "犬", "text": "犬。\n\n犬は動物。"})
        + "\n",
    },
    "tatoeba": {"tatoeba.tsv": "deu\tIch bin da.\tI am here.\ncmn\t你好\tHello\n"},
    "msrvtt": {
        "train_val_videodatainfo.json": {
            "videos": [
                {
                    "video_id": "video0",
                    "split": "validate",
                    "url": "https://www.youtube.com/watch?v=9lZi22qLlEo",
                    "start time": 137.72,
                    "end time": 149.44,
                }
            ],
            "sentences": [{"sen_id": 1, "video_id": "video0", "caption": "a car is shown"}],
        }
    },
    "msrvtt-jsfusion": {
        "MSRVTT_JSFUSION_test.csv": (
            "key,vid_key,video_id,sentence\n"
            "ret0,msr9770,video9770,a person is connecting something to system\n"
            'ret1,msr9771,video9771,"a little girl, who sings"\n'
        )
    },
    "msvd": {
        "video_corpus.csv": (
            "VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description\n"
            "mv89psg6zh4,33,46,588702,unverified,55,Slovene,Papagaj se umiva pod tekočo vodo.\n"
            "mv89psg6zh4,33,46,362812,unverified,33,English,a bird in a sink\n"
            "mv89psg6zh4,33,46,968828,clean,84,English,a bird\n"
            "-4wsuPCjDBc,5,15,968828,clean,84,English,a squirrel eats\n"
        ),
        "train_list.txt": "mv89psg6zh4_33_46\n",
        "test_list.txt": "-4wsuPCjDBc_5_15\n",
    },
    "vatex": {
        "vatex_training_v1.0.json": [
            {"videoID": "Ptf_2VRj-V0_000122_000132", "enCap": ["A man."], "chCap": ["男人"]}
        ]
    },
    "howto100m": {
        "how2_en.json": {
            "abc": {"start": [0.5, 2.0], "end": [2.0, 4.5], "text": ["cut it", "stir it"]},
            "def": {"start": [1], "end": [2], "text": ["pour"]},
        },
        "how2_de.json": {"abc": {"start": [0.6], "end": [2.1], "text": ["schneiden"]}},
    },
    "subtitles": {
        "abc.en.vtt": (
            "WEBVTT\nKind: captions\n\nNOTE by hand\n\n00:01.000 --> 00:02.500 align:start\n"
            "<v Ann>Hello <c.yellow>there</c>\n"
        ),
        "abc.de.srt": "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hallo</i>\r\n",
        "abc.fr.json": [{"start": 1.0, "duration": 1.5, "text": "Bonjour"}],
        "def.en.json": {
            "events": [
                {"tStartMs": 0, "dDurationMs": 900, "segs": [{"utf8": "hi"}]},
                {"tStartMs": 5},
            ]
        },
    },
    "vqa-v2": {
        "v2_OpenEnded_mscoco_train2014_questions.json": {
            "data_subtype": "train2014",
            "questions": [{"image_id": 9, "question": "What is it?", "question_id": 9000}],
        },
        "v2_mscoco_train2014_annotations.json": {
            "annotations": [
                {
                    "question_id": 9000,
                    "image_id": 9,
                    "answer_type": "other",
                    "answers": [{"answer": "food", "answer_id": 1}, {"answer": "soup"}],
                }
            ]
        },
    },
    "visual-genome-vqa-ja": {
        "question_answers.json": [
            {"id": 1, "qas": [{"qa_id": 7, "image_id": 1, "question": "何色?", "answer": "赤"}]}
        ]
    },
    "webdataset": {
        "train-000000.tar": tar_bytes(
            {
                "0001.jpg": b"...",
                "0001.json": b'{"caption": "A dog.", "url": "https://example.org/1.jpg"}',
                "0002.png": b"...",
                "0002.txt": "Zwei Männer.".encode(),
            }
        ),
    },
    "imagefolder": {
        "train/metadata.jsonl": (
            '{"file_name": "1.jpg", "text": "A dog.", "caption_de": ["Ein Hund."], "id": 7}\n'
            '{"file_name": "more/2.jpg", "captions": {"fr": ["Un chat."]}, "width": 640}\n'
        ),
        "train/1.jpg": b"...",
        "test/metadata.csv": 'file_name,caption\n3.jpg,"A man, smiling."\n',
    },
    "captioned-folder": {
        "dog.jpg": b"...",
        "dog.txt": "A dog.\nA brown dog.\n",
        "dog.de.txt": "Ein Hund.\n",
        "test/cat.png": b"...",
        "test/cat.txt": "A cat.\n",
        "plain.webp": b"...",
    },
    "parquet": {
        "data/train-00000-of-00001.parquet": partial(
            parquet_bytes,
            {
                "image": [
                    {"bytes": b"\xff\xd8\xff...", "path": None},
                    {"bytes": b"x", "path": "2.png"},
                ],
                "caption_0": ["A dog.", "A man."],
                "caption_1": ["The dog.", None],
                "image_id": [7, 8],
            },
        ),
    },
    "jsonl": {
        "train.jsonl": "\n".join(
            json.dumps(line)
            for line in (
                {"image": "images/1.webp", "captions": {"en": ["A dog."], "de": ["Ein Hund."]}},
                {"video": "-4wsuPCjDBc_5_15", "captions": {"zh": ["松鼠"]}},
                {
                    "image": "images/2.webp",
                    "question": "What?",
                    "answers": ["a", "b"],
                    "answer_type": "other",
                    "language": "en",
                },
                {"en": "A dog.", "cz": "Pes."},
                {"video": "v.mp4", "span": [0, 1], "subtitles": {"en": [[0, 1.5, "hi"]]}},
            )
        )
        + "\n",
    },
}


@pytest.fixture(scope="session")
def samples() -> dict[str, Files]:
    """The files of a valid sample of each format, by name."""
    return {
        format: {name: as_bytes(content) for name, content in files.items()}
        for format, files in SAMPLES.items()
    }

"""Dataset readers: one small module per published format, each yielding `Record`s.

    problems = Problems()
    source, options = Path("dataset_coco.json"), ReadOptions(images="coco")
    for record in read_dataset("karpathy", source, options, problems):
        ...

A reader is a module with ``read(source, options, problems)``, imported on first use. Malformed
entries are added to ``problems``; whatever the files contain, the only exception raised is a
`PolyglanceError`.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from polyglance.data.readers.base import ReadOptions
from polyglance.errors import DataError, PolyglanceError, Problems, error_reason, printable
from polyglance.records import Record

__all__ = ["FORMATS", "Format", "ReadOptions", "find_format", "read_all_records", "read_dataset"]


@dataclass(frozen=True, slots=True)
class Format:
    """A dataset's published format: its name, a help line, what SOURCE is, and its module."""

    name: str
    help: str
    source: str
    module: str


def _format(name: str, help_line: str, source: str) -> tuple[str, Format]:
    module = f"{__name__}.{name.replace('-', '_')}"
    return name, Format(name, help_line, source, module)


FORMATS = dict(
    (
        _format(
            "multi30k-task1",
            "Multi30K, task 1: a picture with one sentence and its translations",
            "the folder with train.en, train.de ... (data/task1 or its raw/)",
        ),
        _format(
            "multi30k-task2",
            "Multi30K, task 2: a picture with five descriptions per language",
            "the folder with train.1.en ... train.5.de (data/task2 or its raw/)",
        ),
        _format(
            "karpathy",
            "Karpathy's splits of Flickr8k, Flickr30k and MSCOCO",
            "dataset_flickr30k.json, dataset_coco.json ..., or a folder of them",
        ),
        _format(
            "coco-captions",
            "MSCOCO captions",
            "captions_train2014.json, or the folder with captions_*.json",
        ),
        _format(
            "stair",
            "STAIR Captions: MSCOCO in Japanese",
            "stair_captions_v1.2_train.json, or the folder with both files",
        ),
        _format(
            "yjcaptions",
            "YJ Captions 26k: MSCOCO in Japanese",
            "yjcaptions26k_clean.json",
        ),
        _format(
            "coco-cn",
            "COCO-CN: MSCOCO in Chinese",
            "the folder with imageid.human-written-caption.txt and coco-cn_*.txt",
        ),
        _format(
            "conceptual-captions",
            "Conceptual Captions: a caption and an image URL per line; UC2's translations",
            "Train_GCC-training.tsv, train_imageId2Ann_de.tsv, or the folder with several",
        ),
        _format(
            "wikipedia",
            "plain text by language: one sentence per line",
            "de.txt, a folder of such files, or WikiExtractor's output in folders de/, fr/ ...",
        ),
        _format(
            "tatoeba",
            "Tatoeba pairs: language, sentence and English sentence per line",
            "tatoeba.tsv",
        ),
        _format(
            "msrvtt",
            "MSR-VTT: clips with twenty sentences each",
            "train_val_videodatainfo.json, or the folder with *videodatainfo*.json",
        ),
        _format(
            "msrvtt-jsfusion",
            "MSR-VTT's test of 1,000 clips with one query each (1k-A)",
            "MSRVTT_JSFUSION_test.csv, or the folder with it",
        ),
        _format(
            "msvd",
            "MSVD (YouTube2Text): clips with descriptions in many languages",
            "video_corpus.csv, or the folder with it and train_list.txt ...",
        ),
        _format(
            "vatex",
            "VATEX: clips with English and Chinese captions",
            "vatex_training_v1.0.json, or the folder with vatex_*.json",
        ),
        _format(
            "howto100m",
            "HowTo100M and Multi-HowTo100M: videos with subtitles in one or more languages",
            "raw_caption.json, caption.json, or the folder with how2_en.json, how2_de.json ...",
        ),
        _format(
            "subtitles",
            "subtitle files of videos, in SRT, VTT or JSON",
            "the folder with VIDEO.en.vtt, VIDEO.de.srt, VIDEO.fr.json ...",
        ),
        _format(
            "vqa-v2",
            "VQA v2: questions about MSCOCO pictures with ten answers each",
            "v2_OpenEnded_mscoco_train2014_questions.json, or the folder with all files",
        ),
        _format(
            "visual-genome-vqa-ja",
            "Visual Genome VQA, in Japanese or its own English: questions with one answer each",
            "question_answers.json",
        ),
        _format(
            "webdataset",
            "tars of WebDataset's layout: KEY.jpg with KEY.json or KEY.txt",
            "a tar, or the folder with NAME-000000.tar ...",
        ),
        _format(
            "imagefolder",
            "imagefolder of Hugging Face: pictures with metadata.jsonl, .csv or .parquet",
            "the folder with metadata.jsonl, or with train/metadata.jsonl ...",
        ),
        _format(
            "captioned-folder",
            "pictures with their captions in text files of the same name, by language",
            "the folder with dog.jpg, dog.txt, dog.de.txt ...",
        ),
        _format(
            "parquet",
            "Parquet of the Hugging Face hub: pictures and captions in the columns of a table",
            "train-00000-of-00001.parquet, or the folder with several",
        ),
        _format(
            "jsonl",
            "JSON Lines: a manifest, questions, or sentences by language",
            "train.jsonl, or a folder of .jsonl and .jsonl.gz files",
        ),
    )
)
"""The formats by name."""


def find_format(name: str) -> Format:
    """Return the format of this name; an unknown name is an error with suggestions."""
    if name in FORMATS:
        return FORMATS[name]
    wanted = name.lower().replace("_", "-")
    near = [
        known for known in FORMATS if wanted and (wanted in known or known in wanted)
    ] or difflib.get_close_matches(wanted, FORMATS, n=1, cutoff=0.5)
    names = " or ".join(repr(known) for known in near)
    hint = f"did you mean {names}?" if near else f"use one of {', '.join(FORMATS)}"
    raise PolyglanceError(f"no format is called {printable(name)!r}: {hint}")


def read_dataset(
    format: str, source: str | Path, options: ReadOptions, problems: Problems
) -> Iterator[Record]:
    """Yield the records of a dataset in its published format.

    Args:
        format: One of `FORMATS`.
        source: The dataset's file or folder.
        options: What the files do not say.
        problems: Collects malformed entries.
    """
    module = importlib.import_module(find_format(format).module)
    source = Path(source)
    if not os.path.exists(source):  # noqa: PTH110 (unlike Path.exists it never raises)
        expected = FORMATS[format].source
        raise DataError(f"{printable(str(source))}: no such file or folder; expected {expected}")
    return _convert_os_errors(source, module.read(source, options, problems))


def read_all_records(format: str, source: str | Path) -> list[Record]:
    """Return all records of a dataset; the first malformed entry is an error."""
    return list(read_dataset(format, source, ReadOptions(), Problems(strict=True)))


def _convert_os_errors(source: Path, records: Iterator[Record]) -> Iterator[Record]:
    """Yield the same records; turn an `OSError` on the way into a `DataError`."""
    try:
        yield from records
    except OSError as error:
        where = printable(str(error.filename or source))
        raise DataError(f"{where}: cannot be read ({error_reason(error)})") from error

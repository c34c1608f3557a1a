"""The registry of formats, and what all readers share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyglance.data.readers import FORMATS, ReadOptions, find_format, read_dataset
from polyglance.data.readers.base import language_in_name, normalise_split, split_in_name
from polyglance.errors import DataError, PolyglanceError, Problems


def test_every_format_is_described_and_readable() -> None:
    assert len(FORMATS) == 23
    for name, format in FORMATS.items():
        assert format.name == name
        assert format.help
        assert format.source
        assert "\n" not in format.help
        assert format.module.startswith("polyglance.data.readers.")


@pytest.mark.parametrize(
    ("typed", "format"),
    [
        ("multi30k", "multi30k-task1' or 'multi30k-task2"),
        ("coco_captions", "coco-captions"),
        ("vqa", "vqa-v2' or 'visual-genome-vqa-ja"),
        ("kaparthy", "karpathy"),
        ("MSRVTT", "msrvtt' or 'msrvtt-jsfusion"),
        ("cc3m-conceptual-captions", "conceptual-captions"),
    ],
)
def test_a_wrong_name_suggests_the_nearest(typed: str, format: str) -> None:
    with pytest.raises(PolyglanceError, match=rf"did you mean '{format}'\?"):
        find_format(typed)


def test_an_unknown_name_lists_all_formats() -> None:
    with pytest.raises(PolyglanceError, match="use one of multi30k-task1, multi30k-task2"):
        find_format("zzz")


def test_a_missing_source_is_an_error_with_the_expected_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file or folder; expected .*dataset_coco\.json"):
        read_dataset("karpathy", tmp_path / "none.json", ReadOptions(), Problems())
    with pytest.raises(DataError, match="no such file or folder"):
        read_dataset("karpathy", "x" * 5000, ReadOptions(), Problems())


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_folder_is_an_error_with_the_expected_files(format: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected"):
        list(read_dataset(format, tmp_path, ReadOptions(), Problems()))


@pytest.mark.parametrize("format", FORMATS)
def test_a_source_that_is_neither_file_nor_folder_is_refused(format: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: (expected|cannot be read)"):
        list(read_dataset(format, tmp_path / "pipe", ReadOptions(), Problems()))


def test_readers_are_imported_lazily() -> None:
    code = (
        "import sys, polyglance.data.readers as r\n"
        "assert not any(f.module in sys.modules for f in r.FORMATS.values())\n"
        "assert not {'torch', 'numpy', 'rich'} & sys.modules.keys()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_invalid_language_is_refused() -> None:
    assert ReadOptions(language="cz").language == "cs"
    with pytest.raises(PolyglanceError, match="language: expected a language code"):
        ReadOptions(language="??")


def test_paths_of_pictures() -> None:
    assert ReadOptions().path("train2014/1.jpg") == "train2014/1.jpg"
    assert ReadOptions(images="coco/").path("train2014/1.jpg") == "coco/train2014/1.jpg"
    assert ReadOptions(images="coco", flat=True).path("train2014/1.jpg") == "coco/1.jpg"
    assert ReadOptions(images="coco").path("/disk/1.jpg") == "/disk/1.jpg"
    assert ReadOptions(images="coco").path("http://x.org/1.jpg") == "http://x.org/1.jpg"
    assert ReadOptions(images="v").video_path("abc") == "v/abc.mp4"
    assert ReadOptions(extension="").video_path("abc") == "abc"


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("captions_train2014.json", "train"),
        ("vatex_validation_v1.0.json", "val"),
        ("vatex_public_test_english_v1.1.json", "test"),
        ("Validation_GCC-1.1.0-Validation.tsv", "val"),
        ("en-train.jsonl.gz", "train"),
        ("contest.jsonl", None),
        ("yjcaptions26k_clean.json", None),
    ],
)
def test_split_in_a_file_name(name: str, split: str | None) -> None:
    assert split_in_name(Path(name)) == split


def test_split_names_are_normalised() -> None:
    names = ("train", "validate", "validation", "dev", "test", "restval", "test_2016_flickr")
    assert [normalise_split(name) for name in names] == [
        *("train", "val", "val", "val", "test", "restval", "test_2016_flickr")
    ]


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("de.txt", "de"),
        ("wiki.de.txt.gz", "de"),
        ("how2_cs.json", "cs"),
        ("to_translate.fr.txt", "fr"),
        ("wiki_00", None),
        ("AA", None),
        ("caption.json", None),
    ],
)
def test_language_in_a_file_name(name: str, language: str | None) -> None:
    assert language_in_name(name) == language

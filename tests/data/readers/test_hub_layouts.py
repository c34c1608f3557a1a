"""Layouts of Hugging Face's ``datasets``, as that package itself writes and reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polyglance.data.captioned_pictures import read_captioned_pictures
from polyglance.data.import_dataset import import_dataset
from polyglance.data.readers import ReadOptions, read_all_records, read_dataset
from polyglance.data.tar_writer import write_tars
from polyglance.errors import DataError, Problems
from polyglance.recipes.cross_encoder.config import CaptionedImages
from polyglance.recipes.cross_encoder.corpora import read_corpus
from polyglance.records import Record, read_manifest, write_manifest

ReadFiles = Callable[..., tuple[list[Record], Problems]]
CAPTIONS = ["a red square", "ein grünes Quadrat", "青い四角"]
COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


@pytest.fixture(scope="module")
def datasets() -> Any:
    """Imported where it is used: it brings pandas."""
    import datasets

    datasets.disable_progress_bars()
    return datasets


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    paths = [tmp_path_factory.mktemp("hub") / f"{number}.png" for number in range(3)]
    for path, colour in zip(paths, COLOURS, strict=True):
        Image.new("RGB", (5, 4), colour).save(path)
    return paths


def pixels(path: Path) -> tuple[int, ...]:
    return Image.open(path).convert("RGB").getpixel((0, 0))  # type: ignore[return-value]


def test_an_imagefolder_is_read_as_the_package_reads_it(
    datasets: Any, pictures: list[Path], tmp_path: Path
) -> None:
    for split, numbers in {"train": [0, 1], "test": [2]}.items():
        folder = tmp_path / "photos" / split
        folder.mkdir(parents=True)
        lines = []
        for number in numbers:
            (folder / pictures[number].name).write_bytes(pictures[number].read_bytes())
            lines.append({"file_name": pictures[number].name, "text": CAPTIONS[number]})
        (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "out" / "photos.jsonl"
    import_dataset("imagefolder", tmp_path / "photos", out, strict=True)
    ours = list(read_manifest(out))
    theirs = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "photos"), cache_dir=str(tmp_path / "cache")
    )
    for split in ("train", "test"):
        own = [record for record in ours if record.split == split]
        assert [record.captions["en"] for record in own] == [(t,) for t in theirs[split]["text"]]
        for record, image in zip(own, theirs[split]["image"], strict=True):
            path = out.parent / str(record.image)
            assert pixels(path) == image.convert("RGB").getpixel((0, 0))


def test_parquet_is_read_as_the_package_writes_it(
    datasets: Any, pictures: list[Path], tmp_path: Path
) -> None:
    table = datasets.Dataset.from_dict(
        {"image": [str(path) for path in pictures], "caption": CAPTIONS, "id": [7, 8, 9]}
    ).cast_column("image", datasets.Image())
    data = tmp_path / "set" / "data"
    data.mkdir(parents=True)
    # As `push_to_hub` does: the files themselves, in place of their paths.
    embed = datasets.table.embed_table_storage
    table = table.with_format("arrow").map(embed, batched=True).with_format(None)
    table.to_parquet(str(data / "validation-00000-of-00001.parquet"))
    out = tmp_path / "set.jsonl"
    import_dataset("parquet", tmp_path / "set", out, ReadOptions(language="en"), strict=True)
    ours = list(read_manifest(out))
    assert [record.captions for record in ours] == [{"en": (text,)} for text in CAPTIONS]
    assert [(record.id, record.split) for record in ours] == [(str(n), "val") for n in (7, 8, 9)]
    assert [pixels(tmp_path / str(record.image)) for record in ours] == COLOURS
    assert {str(record.image).partition("/")[0] for record in ours} == {"set-images"}
    again = datasets.load_dataset("parquet", data_dir=str(data), cache_dir=str(tmp_path / "cache"))
    assert again["validation"]["caption"][:] == CAPTIONS


def test_webdataset_is_read_as_the_package_reads_it(
    datasets: Any, pictures: list[Path], tmp_path: Path
) -> None:
    manifest = tmp_path / "m.jsonl"
    lines = [
        {"image": str(path), "captions": {"en": [text]}}
        for path, text in zip(pictures, CAPTIONS, strict=True)
    ]
    manifest.write_text("\n".join(map(json.dumps, lines)))
    write_tars(manifest, tmp_path / "tars" / "train")
    ours = read_all_records("webdataset", tmp_path / "tars")
    theirs = datasets.load_dataset(
        "webdataset",
        data_files={"train": str(tmp_path / "tars" / "*.tar")},
        cache_dir=str(tmp_path / "cache"),
    )["train"]
    assert [record.captions["en"][0] for record in ours] == CAPTIONS
    assert [row["json"]["captions"]["en"][0] for row in theirs] == CAPTIONS
    assert [row["png"].convert("RGB").getpixel((0, 0)) for row in theirs] == COLOURS


def test_training_reads_them_directly(pictures: list[Path], tmp_path: Path) -> None:
    lines = [
        {"file_name": path.name, "caption_de": text}
        for path, text in zip(pictures, CAPTIONS, strict=True)
    ]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    corpus = CaptionedImages(manifest="photos", format="imagefolder", images="photos")
    records = read_corpus(corpus, tmp_path)
    assert [record.captions["de"] for record in records] == [(text,) for text in CAPTIONS]
    assert records[0].image == "photos/0.png"
    for source in ("photos", "photos/metadata.jsonl"):
        records, folder = read_captioned_pictures(tmp_path / source)
        assert [record.captions["de"] for record in records] == [(text,) for text in CAPTIONS]
        assert (records[0].image, folder) == ("0.png", tmp_path / "photos")


def test_training_reads_folders_with_text_files_and_manifests(
    pictures: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "0.png").write_bytes(pictures[0].read_bytes())
    (tmp_path / "0.de.txt").write_text("ein rotes Quadrat")
    records, folder = read_captioned_pictures(tmp_path)
    expected = [Record(image="0.png", captions={"de": ("ein rotes Quadrat",)})]
    assert (records, folder) == (expected, tmp_path)
    write_manifest(tmp_path / "captions.jsonl", expected)
    for source in ("captions.jsonl", "."):  # a manifest comes before text files
        assert read_captioned_pictures(tmp_path / source) == (expected, tmp_path)


@pytest.mark.parametrize(
    ("columns", "captions"),
    [
        ({"text": "a dog"}, {"en": ["a dog"]}),
        ({"captions": ["a dog", " ", None, "dogs"]}, {"en": ["a dog", "dogs"]}),
        ({"caption_0": "a dog", "caption_1": "dogs"}, {"en": ["a dog", "dogs"]}),
        ({"caption_de": "ein Hund", "fr": ["un chien"]}, {"de": ["ein Hund"], "fr": ["un chien"]}),
        ({"captions": {"de": ["ein Hund"], "cz": "pes"}}, {"de": ["ein Hund"], "cs": ["pes"]}),
        ({"sentences": [{"raw": "a dog"}, {"raw": "dogs"}]}, {"en": ["a dog", "dogs"]}),
        ({"text": "un chien", "language": "fr"}, {"fr": ["un chien"]}),
        ({"caption_id": 9, "text_length": 5, "width": 640, "id": "x"}, {}),
    ],
)
def test_columns_of_captions(
    columns: dict[str, Any], captions: dict[str, list[str]], read_files: ReadFiles
) -> None:
    line = {"file_name": "1.jpg", **columns}
    [record], problems = read_files("imagefolder", {"metadata.jsonl": line})
    assert not problems
    assert {code: list(texts) for code, texts in record.captions.items()} == captions


def test_a_picture_must_lie_in_the_folder(read_files: ReadFiles) -> None:
    lines = [{"file_name": name, "text": "x"} for name in ("../1.jpg", "/etc/1.jpg", "")]
    text = "\n".join(map(json.dumps, lines))
    records, problems = read_files("imagefolder", {"metadata.jsonl": text})
    assert (records, len(problems)) == ([], 3)
    assert "to lie in the folder of the table" in str(problems.items[0])


def test_rows_that_hold_no_picture_are_reported(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = [
        {"image": b"\xff\xd8\xff", "en": "a dog", "de": "ein Hund"},
        {"image": b"??", "en": "x", "de": None},
        {"image": None, "en": "a cat", "de": "eine Katze"},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "x.parquet")
    problems = Problems()
    records = list(read_dataset("parquet", tmp_path, ReadOptions(images="p"), problems))
    assert [record.image for record in records] == ["p/x/0000000.jpg", None]
    assert records[1].captions == {"en": ("a cat",), "de": ("eine Katze",)}
    assert "row 1: expected the bytes of a picture file" in str(problems.items[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.parquet"]  # nothing unpacked


def test_a_folder_without_a_table_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "dog").mkdir()
    np.save(tmp_path / "dog" / "x.npy", np.zeros(1))
    with pytest.raises(DataError, match=r"expected pictures with metadata\.jsonl"):
        read_all_records("imagefolder", tmp_path)

"""From a dataset's published files to a manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyglance.data.import_dataset import import_dataset
from polyglance.data.machine_captions import (
    machine_captions_path,
    read_with_machine_captions,
    update_machine_captions,
)
from polyglance.data.readers import ReadOptions
from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record, read_manifest, write_manifest

LINES = '{"image": "images/1.webp", "captions": {"en": ["A dog."]}}\nbad\n{"video": "bare-id"}\n'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "train.jsonl"
    (tmp_path / "data" / "images").mkdir(parents=True)
    (tmp_path / "data" / "images" / "1.webp").touch()
    path.write_text(LINES)
    return path


def test_bad_lines_are_skipped_and_counted(source: Path, tmp_path: Path) -> None:
    result = import_dataset("jsonl", source, tmp_path / "out" / "manifest.jsonl")
    assert (result.records, len(result.problems)) == (2, 1)
    assert str(result.problems.items[0]).startswith(f"{source}:2: expected valid JSON")


def test_marks_of_machine_captions_are_imported_too(tmp_path: Path) -> None:
    source, out = tmp_path / "many.jsonl", tmp_path / "out" / "m.jsonl"
    records = [Record(image=f"{n}.jpg", captions={"en": ("x",), "de": ("y",)}) for n in range(2)]
    write_manifest(source, records)
    update_machine_captions(source, records, [{"de": (0,)}, {}])
    import_dataset("jsonl", source, out)
    assert [machine for _, machine in read_with_machine_captions(out)] == [{"de": (0,)}, {}]
    machine_captions_path(source).unlink()
    import_dataset("jsonl", source, out)
    assert not machine_captions_path(out).exists()


def test_strict_stops_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "manifest.jsonl"
    with pytest.raises(DataError, match=r"train\.jsonl:2: expected valid JSON"):
        import_dataset("jsonl", source, out, strict=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_image_paths_are_relative_to_the_manifest(source: Path, tmp_path: Path) -> None:
    for out in (tmp_path / "out" / "m.jsonl", source.parent / "m.jsonl", tmp_path / "m.jsonl.gz"):
        import_dataset("jsonl", source, out)
        picture, clip = read_manifest(out)
        assert picture.image is not None
        assert (out.parent / picture.image).is_file()
        assert clip.video == "bare-id"


def test_the_image_folder_is_relative_to_the_working_directory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"images": [{"filename": "1.webp", "sentences": [{"raw": "A dog."}]}]}
    (tmp_path / "dataset_x.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)

    def image(images: str) -> str | None:
        options = ReadOptions(images=images)
        import_dataset("karpathy", "dataset_x.json", "out/m.jsonl", options)
        (record,) = read_manifest("out/m.jsonl")
        return record.image

    assert image("data/images") == "../data/images/1.webp"
    assert Path("out", str(image("data/images"))).is_file()
    assert image("out") == "1.webp"
    assert image("") == "1.webp"
    assert image("/disk") == "/disk/1.webp"
    assert image("https://x.org/a") == "https://x.org/a/1.webp"


def test_a_source_without_records_is_an_error_that_says_why(tmp_path: Path) -> None:
    path = tmp_path / "dataset_x.json"
    path.write_text("{oops")
    with pytest.raises(
        DataError, match=r"no record of format 'karpathy'.*x\.json:1: expected valid"
    ):
        import_dataset("karpathy", path, tmp_path / "out.jsonl")
    path.write_text('{"images": []}')
    with pytest.raises(DataError, match=r"no record of format 'karpathy'$"):
        import_dataset("karpathy", path, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_an_unknown_format_is_an_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="did you mean 'jsonl'"):
        import_dataset("json", source, tmp_path / "out.jsonl")


@pytest.mark.real_data
def test_research_data_is_imported_without_a_problem(real_data: Path, tmp_path: Path) -> None:
    counts = {
        "flickr8k/train.jsonl": 5868,
        "flickr8k/val.jsonl": 1081,
        "flickr8k/test.jsonl": 929,
        "coco/train.jsonl": 12257,
        "msvd/train.jsonl": 1472,
        "vqa/vi-test.jsonl": 384,
        "text/multi30k-parallel.jsonl.gz": 22007,
        "text/tatoeba.tsv.gz": 88877,
    }
    for name, count in counts.items():
        format = "tatoeba" if "tatoeba" in name else "jsonl"
        result = import_dataset(format, real_data / name, tmp_path / "m.jsonl", strict=True)
        assert result.records == count


def test_a_source_is_not_overwritten(source: Path) -> None:
    with pytest.raises(PolyglanceError, match="is the source: give"):
        import_dataset("jsonl", source, source)
    assert source.read_text() == LINES


def test_an_extension_has_its_dot() -> None:
    assert ReadOptions(extension="webm").video_path("clip") == "clip.webm"
    assert ReadOptions(extension="").video_path("clip") == "clip"

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.data.machine_captions import (
    count_machine_captions,
    read_human_captions,
    read_translators,
    read_with_machine_captions,
    write_machine_captions,
)
from polyglance.data.merge import merge_manifests
from polyglance.errors import DataError
from polyglance.recipes.uc2.aligned_captions import align_captions, read_translated
from polyglance.records import Record, read_manifest, write_manifest


def write(path: Path, marked: list[tuple[Record, dict[str, tuple[int, ...]]]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(path, (record for record, _ in marked))
    write_machine_captions(path, marked, {"de": "tiny 0123"})
    return path


@pytest.fixture
def manifests(tmp_path: Path) -> tuple[Path, Path]:
    """Two files with one picture in common; German is translated, one line of it by people."""
    (tmp_path / "a/images").mkdir(parents=True)
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (tmp_path / "a/images" / name).touch()
    first = write(tmp_path / "a/first.jsonl", [
        (Record(image="images/1.jpg", captions={"en": ("a dog", "a cat"), "de": ("eine Katze",)}),
         {"de": (1,)}),
        (Record(image="images/2.jpg", captions={"en": ("a bus",)}), {}),
    ])  # fmt: skip
    second = tmp_path / "a/second.jsonl"
    write_manifest(second, [
        Record(image="images/3.jpg", captions={"fr": ("un vélo",)}),
        Record(image="images/1.jpg", captions={"en": ("a cat", "a pet"), "de": ("ein Haustier",)}),
    ])  # fmt: skip
    return first, second


def test_pictures_of_several_manifests_become_one_record(
    manifests: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "b/merged.jsonl"
    out.parent.mkdir()
    result = merge_manifests(manifests, out)
    records = list(read_with_machine_captions(out))
    assert [record.image for record, _ in records] == [f"../a/images/{n}.jpg" for n in (1, 2, 3)]
    record, machine = records[0]
    assert record.captions["en"] == ("a dog", "a cat", "a pet")
    assert record.captions["de"] == ("eine Katze", "ein Haustier")
    assert machine == {"de": (1, -1)}
    assert (result.records, result.machine) == (3, {"de": 1})
    assert result.captions == {"de": 2, "en": 4, "fr": 1}
    assert read_translators(out) == {"de": "tiny 0123"}
    assert count_machine_captions(out) == {"de": 1}
    human = next(iter(read_human_captions(out)))
    assert human.captions["de"] == ("ein Haustier",)


def test_marks_say_which_captions_translate_each_other(
    manifests: tuple[Path, Path], tmp_path: Path
) -> None:
    merge_manifests(manifests, tmp_path / "merged.jsonl")
    records = list(read_manifest(tmp_path / "merged.jsonl"))
    translated = read_translated([tmp_path / "merged.jsonl"], "en")
    pairs = align_captions(records, "en", "de", pairing="marked", translated=translated)
    assert [(pair.image, pair.first, pair.second) for pair in pairs] == [(0, 1, 0)]


def test_the_command_keeps_chosen_languages(manifests: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "merged.jsonl"
    arguments = ["data", "merge", *map(str, manifests), "--out", str(out), "--languages", "fr"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "3 records, captions en 4  fr 1" in result.output
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert set().union(*(line["captions"] for line in lines)) == {"en", "fr"}


def test_pictures_without_a_required_language_are_left_out(
    manifests: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "merged.jsonl"
    arguments = ["data", "merge", *map(str, manifests), "--out", str(out), "--require"]
    result = CliRunner().invoke(app, [*arguments, "en,de"])
    assert result.exit_code == 0, result.output
    assert "1 record, captions de 2 (1 by machine)  en 3" in result.output
    [record] = read_manifest(out)
    assert record.captions["en"] == ("a dog", "a cat", "a pet")  # of both manifests
    assert merge_manifests(manifests, out, require=["en"]).records == 2
    with pytest.raises(DataError, match="no picture has captions in de, fr"):
        merge_manifests(manifests, out, require=["de", "fr"])


def test_records_without_a_picture_are_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path / "texts.jsonl", [Record(captions={"en": ("a dog",)})])
    with pytest.raises(DataError, match="no picture or clip to merge by"):
        merge_manifests([tmp_path / "texts.jsonl"], tmp_path / "out.jsonl")

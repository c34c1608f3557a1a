from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.data.hold_out import hold_out_pictures
from polyglance.errors import DataError
from polyglance.records import Record, read_manifest, rebase_paths, write_manifest


def names(path: Path) -> list[str]:
    return [Path(str(record.image)).name for record in read_manifest(path)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty pictures with English captions, the even ones with German ones too."""
    (tmp_path / "images").mkdir()
    records = []
    for number in range(40):
        captions = {"en": (f"picture {number}",)}
        if number % 2 == 0:
            captions["de"] = (f"Bild {number}",)
        (tmp_path / f"images/{number}.jpg").touch()
        records.append(Record(image=f"images/{number}.jpg", captions=captions))
    write_manifest(tmp_path / "corpus.jsonl", records)
    return tmp_path / "corpus.jsonl"


def test_the_same_pictures_are_held_out_of_every_manifest(corpus: Path, tmp_path: Path) -> None:
    assert hold_out_pictures(corpus, tmp_path / "all.jsonl", pictures=20) == 20
    hold_out_pictures(corpus, tmp_path / "fewer.jsonl", pictures=10)
    assert names(tmp_path / "fewer.jsonl") == names(tmp_path / "all.jsonl")[:10]
    # Another order, another folder: the same choice.
    other = tmp_path / "other" / "corpus.jsonl"
    other.parent.mkdir()
    moved = [rebase_paths(one, corpus.parent, other.parent) for one in read_manifest(corpus)]
    write_manifest(other, reversed(moved))
    hold_out_pictures(other, tmp_path / "again.jsonl", pictures=10)
    assert names(tmp_path / "again.jsonl") == names(tmp_path / "fewer.jsonl")
    assert names(tmp_path / "fewer.jsonl") != names(corpus)[:10]


def test_only_captions_of_the_language_are_held_out(corpus: Path, tmp_path: Path) -> None:
    hold_out_pictures(corpus, tmp_path / "de.jsonl", pictures=15, language="de")
    records = list(read_manifest(tmp_path / "de.jsonl"))
    assert len(records) == 15
    assert all(record.captions.keys() == {"de"} for record in records)
    with pytest.raises(DataError, match="only 20 pictures can be held out: ask for fewer than 21"):
        hold_out_pictures(corpus, tmp_path / "more.jsonl", pictures=21, language="de")
    assert not (tmp_path / "more.jsonl").exists()


def test_what_is_held_out_is_left_out_of_training(corpus: Path, tmp_path: Path) -> None:
    seen, held, rest = tmp_path / "seen.jsonl", tmp_path / "held/out.jsonl", tmp_path / "rest.jsonl"
    write_manifest(seen, list(read_manifest(corpus))[:8])
    arguments = ["data", "hold-out", str(corpus), "--out", str(held), "--pictures", "12"]
    held.parent.mkdir()
    result = CliRunner().invoke(app, [*arguments, "--not-in", str(seen)])
    assert result.output == f"{held}: 12 pictures held out\n"
    assert not set(names(held)) & set(names(seen))
    assert next(read_manifest(held)).image == f"../images/{names(held)[0]}"
    arguments = ["data", "merge", str(corpus), str(seen), "--out", str(rest)]
    assert CliRunner().invoke(app, [*arguments, "--without", str(held)]).exit_code == 0
    assert set(names(rest)) == set(names(corpus)) - set(names(held))
